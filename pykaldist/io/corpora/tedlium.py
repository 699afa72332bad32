"""TED-LIUM release 3 (OpenSLR 51): talks, 16 kHz, with transcripts of their segments (.stm), a dictionary, and development and test sets.

lhotse's recipe reads the distribution `legacy`. It stops where a talk lacks its transcript, or the other way round, so it is shown links to
the talks that have both. What it lacks is here: words by a table of rules, names as in Kaldi's recipe, the lexicon and the language models
that Kaldi's recipe fetches.

Source: Hernandez, Nguyen, Ghannay, Tomashenko & Esteve, "TED-LIUM 3: twice as much data and corpus repartition for experiments on speaker
adaptation", SPECOM 2018.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.atomic import copy_file
from pykaldist.io.corpora.by_lhotse import call_lhotse, lay_links
from pykaldist.io.corpora.dictionary import Lexicon, read_lexicon, write_dict
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives
from pykaldist.io.corpora.packages import check_complete, check_recordings, find_files, find_models, left_out, package, plain_files
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.datadir import write_datadir, write_table

NUMBER, TITLE = "OpenSLR 51", "TED-LIUM release 3"
CORPUS = Archive(("https://www.openslr.org/resources/51/TEDLIUM_release-3.tgz",))
MODELS = {"small": Archive(("http://kaldi-asr.org/models/5/4gram_small.arpa.gz",), plain=True),
          "big": Archive(("http://kaldi-asr.org/models/5/4gram_big.arpa.gz",), plain=True)}
DICTIONARY = "TEDLIUM.152k.dic"
SETS = ("train", "dev", "test")
RATE = 16000
PADDING = {"train": (0.15, 0.1)}  # seconds before and behind a segment, where there is so much audio; as in Kaldi's recipe
NOISES: Lexicon = {"!SIL": [("SIL",)], "<unk>": [("NSN",)], "[NOISE]": [("NSN",)]}


def find_corpus(corpus: str | None, fetch_dir: str | os.PathLike[str]) -> Path:
    """The folder with legacy/ and the dictionary: in `corpus` or below, else fetched. Raises UserError where it is not there."""
    folder = Path(corpus) if corpus else Path(fetch_dir) / "tedlium"
    if not corpus and not folder.is_dir():
        try:
            fetch_archives([CORPUS], folder)
        except Unreachable as error:
            raise UserError(f"{TITLE} could not be fetched ({error}); download {CORPUS.urls[0]} elsewhere, unpack it, and give the folder "
                            "that has TEDLIUM_release-3/ with --corpus.") from error
    return package(folder, NUMBER, TITLE, "corpus", [DICTIONARY, "legacy"])[1][1].parent


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str],
            words: str | os.PathLike[str]) -> Iterable[str]:
    """Write <data>/{train,dev,test}, <data>/local/dict and <data>/local/lm_{small,big}.arpa.gz; yields lines that say what came out.

    `words`: the table of rules for transcripts. Lists of what was left out stand in <data>/local/<set>. Raises UserError for audio or
    transcripts that are not there, damaged, of one name, or too few.
    """
    root, data, rules = find_corpus(corpus, fetch_dir), Path(data), Rules(words)
    models = find_models(corpus, fetch_dir, MODELS)
    for name in SETS:
        yield from _write_set(root, name, data, rules)
    lexicon: Lexicon = {}
    silences = {phone for variants in NOISES.values() for phones in variants for phone in phones}
    for word, variants in read_lexicon(root / DICTIONARY).items():
        if word not in ("<s>", "</s>", *NOISES):
            own = lexicon.setdefault(re.sub(r"\(\d+\)$", "", word), [])
            own += [phones for phones in variants if phones not in own and not silences & set(phones)]
    lexicon = {word: variants for word, variants in lexicon.items() if variants}
    write_dict(data / "local/dict", lexicon, NOISES)
    yield f"{len(lexicon):,} words in {data}/local/dict/lexicon.txt"
    for model, path in models.items():
        copy_file(path, data / f"local/lm_{model}.arpa.gz")
        yield f"language model {model}: {data}/local/lm_{model}.arpa.gz"


def _write_set(root: Path, name: str, data: Path, rules: Rules) -> Iterable[str]:
    folder = root / "legacy" / name
    talks, stms = (find_files(folder / kind, f".{kind}", what, lambda path: path.stem)
                   for kind, what in (("sph", "talks"), ("stm", "transcripts")))
    unheard = check_complete(folder, f"{NUMBER} ({TITLE})", talks, stms, "talks")
    headers = check_recordings({talk: path for talk, path in talks.items() if talk in stms}, RATE)
    audio = plain_files(talks, headers, data / "local" / name / "audio")
    links = data / "local" / name / "links"
    lay_links(links, {f"legacy/{name}/{kind}/{talk}.{kind}": files[talk] for kind, files in (("sph", audio), ("stm", stms))
                      for talk in headers})
    from lhotse.recipes.tedlium import prepare_tedlium  # takes a second

    manifests = call_lhotse(lambda: prepare_tedlium(links, dataset_parts=[name])[name], folder, f"unpack {CORPUS.urls[0]} again",
                            "LibsndfileBackend")
    wav: dict[str, str] = {}
    texts: dict[str, str] = {}
    segments: dict[str, str] = {}
    silent, seconds, (before, behind) = [], 0.0, PADDING.get(name, (0.0, 0.0))
    for one in manifests["supervisions"]:
        utt = _name(one)
        if not (text := " ".join(rules(one.text).split())):
            silent.append(utt)
            continue
        if utt in texts:
            raise UserError(f"two utterances are called {utt}: {stms[one.recording_id]} has two segments of the same times; take one away.")
        header = headers[one.recording_id]
        start, end = max(one.start - before, 0.0), min(one.end + behind, header.samples / RATE)
        wav.setdefault(one.recording_id, str(audio[one.recording_id].resolve()))
        texts[utt], segments[utt], seconds = text, f"{one.recording_id} {start:.2f} {end:.2f}", seconds + end - start
    if not texts:
        raise UserError(f"{folder}/stm has no segment with words that lies in its talk; unpack {CORPUS.urls[0]} again, or move it away and "
                        "run ./run.sh without --corpus.")
    made = write_datadir(data / name, wav, texts, {utt: segment.split()[0] for utt, segment in segments.items()}, segments)
    write_table(made.path / "reco2file_and_channel", {talk: f"{talk} A" for talk in wav})
    yield f"{len(texts):,} utterances of {len(wav):,} talks, {seconds / 3600:.2f} h, in {data / name}"
    yield from left_out(data / "local" / name, (
        ("audio_without_transcripts", f"{name}: talks without a transcript", sorted(set(talks) - set(stms))),
        ("transcripts_without_audio", f"{name}: transcripts of talks that are not there", unheard),
        ("without_words", f"{name}: segments without words", silent)))


def _name(supervision: Any) -> str:
    """The name of an utterance as in Kaldi's recipe: talk, begin and end in hundredths of a second."""
    return f"{supervision.recording_id}-{int(100 * supervision.start + 1e-6):07d}-{int(100 * supervision.end + 1e-6):07d}"
