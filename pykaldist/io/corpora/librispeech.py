"""LibriSpeech and Mini LibriSpeech: read English books, 16 kHz, in the layout of OpenSLR 12 and 31, with the models of OpenSLR 11.

A part of the corpus, such as train-clean-100, is a folder of readers with folders of chapters in them; a chapter has FLAC files and
their transcripts. lhotse's recipe reads it. As in Kaldi, the speaker of an utterance is a chapter of a reader: chapters were recorded at
different times. OpenSLR 11 has the lexicon, ARPAbet with marks of stress, and language models, which Kaldi's recipes name by their sizes.

Source: Panayotov, Chen, Povey & Khudanpur, "Librispeech: an ASR corpus based on public domain audio books", ICASSP 2015.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import copy_file
from pykaldist.io.audio import find_audio
from pykaldist.io.corpora import packages
from pykaldist.io.corpora.by_lhotse import call_lhotse
from pykaldist.io.corpora.dictionary import Lexicon, read_lexicon, write_dict
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives
from pykaldist.io.datadir import write_datadir, write_table
from pykaldist.io.tables import read_lines

# SHA-256: those that torchaudio gives for OpenSLR 12. Of OpenSLR 31 and 11 only sizes are published (Kaldi's recipes).
SHA256 = {
    "dev-clean": "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    "dev-other": "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    "test-clean": "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    "test-other": "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
    "train-clean-100": "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    "train-clean-360": "146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
    "train-other-500": "ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2"}
FULL = ("train-clean-100", "train-clean-360", "train-other-500", "dev-clean", "dev-other", "test-clean", "test-other")
MINI = ("train-clean-5", "dev-clean-2")
URL = "https://www.openslr.org/resources"
LEXICON = Archive((f"{URL}/11/librispeech-lexicon.txt",), 5627653, plain=True)
MODELS = {"tgsmall": Archive((f"{URL}/11/3-gram.pruned.3e-7.arpa.gz",), 13654242, plain=True),
          "tgmed": Archive((f"{URL}/11/3-gram.pruned.1e-7.arpa.gz",), 34094057, plain=True),
          "tglarge": Archive((f"{URL}/11/3-gram.arpa.gz",), 759636181, plain=True),
          "fglarge": Archive((f"{URL}/11/4-gram.arpa.gz",), 1355172078, plain=True)}
LISTED = 5  # names in a message


def archive_of(part: str) -> Archive:
    """Where a part of the corpus is fetched from."""
    return Archive((f"{URL}/{31 if part in MINI else 12}/{part}.tar.gz",), sha256=SHA256.get(part))


def find_part(corpus: str | None, fetch_dir: str | os.PathLike[str], part: str) -> Path:
    """The folder of a part: below `corpus`, else what was fetched before, else a new copy. Raises UserError where there is none."""
    folder = Path(corpus) if corpus else Path(fetch_dir) / part
    if not corpus and not folder.is_dir():
        try:
            fetch_archives([archive_of(part)], folder)
        except Unreachable as error:
            raise UserError(f"{part} could not be fetched ({error}); download {archive_of(part).urls[0]} elsewhere, unpack it, and give "
                            "the folder that has LibriSpeech/ with --corpus.") from error
    tried = [folder / "LibriSpeech" / part, folder / part]
    found = next((path for path in tried if path.is_dir()), None)
    if found is None:
        inside = sorted(path.name for path in folder.iterdir())[:LISTED] if folder.is_dir() else []
        raise UserError(f"{folder} has neither LibriSpeech/{part} nor {part}" + (f", but {', '.join(inside)}" if inside else "") +
                        f"; give --corpus the folder in which {archive_of(part).urls[0]} was unpacked "
                        f"(OpenSLR {31 if part in MINI else 12}).")
    return found


def find_models(corpus: str | None, fetch_dir: str | os.PathLike[str], models: Sequence[str]) -> dict[str, Path]:
    """The lexicon, under the key `lexicon`, and language models, by their sizes (packages.find_models)."""
    return packages.find_models(corpus, fetch_dir, {"lexicon": LEXICON, **{model: MODELS[model] for model in models}})


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str], parts: Sequence[str],
            models: Sequence[str]) -> Iterable[str]:
    """Write <data>/<part> for each part, its hyphens as underscores, <data>/local/dict and <data>/local/lm_<model>.arpa.gz.

    Yields lines that say what came out. Audio without a transcript, and a transcript without audio, is left out, counted, and listed in
    <data>/local/<part>. Raises UserError where a part is not there or is empty, for files that lhotse cannot read, and for two utterances
    of one name.
    """
    data = Path(data)
    folders = {part: find_part(corpus, fetch_dir, part) for part in parts}
    files = find_models(corpus, fetch_dir, models)
    for part, folder in folders.items():
        yield from _write_part(folder, data / part.replace("-", "_"))
    lexicon: Lexicon = read_lexicon(files.pop("lexicon"))
    write_dict(data / "local/dict", {word: variants for word, variants in lexicon.items() if not word.startswith("<")}, stress=True)
    yield f"{len(lexicon)} words in {data}/local/dict/lexicon.txt"
    for model, path in files.items():
        copy_file(path, data / f"local/lm_{model}.arpa.gz")
        yield f"language model {model}: {data}/local/lm_{model}.arpa.gz"


def _write_part(folder: Path, target: Path) -> Iterable[str]:
    from lhotse.recipes.librispeech import prepare_librispeech  # takes a second

    said: dict[str, str] = {}
    for path in sorted(folder.rglob("*.trans.txt")):
        for number, line in enumerate(read_lines(path), 1):
            utt, _, words = line.partition(" ")
            if utt in said:
                raise UserError(f"{path}, line {number}: the utterance {utt} has a transcript already; one of the two is to go.")
            if not words.strip():
                raise UserError(f"{path}, line {number}: expected an utterance and its words, found {line!r}; unpack the corpus again, or "
                                "move it away and run ./run.sh without --corpus.")
            said[utt] = words.strip()
    heard = {stem.rsplit("/", 1)[-1] for stem in find_audio(folder, (".flac",))}
    if not heard & set(said):
        raise UserError(f"{folder} has {len(said)} transcripts (*.trans.txt) and {len(heard)} FLAC files, and no utterance with both; "
                        f"unpack {archive_of(folder.name).urls[0]} again, or move it away and run ./run.sh without --corpus.")
    parts = call_lhotse(lambda: prepare_librispeech(folder.parent, dataset_parts=[folder.name], num_jobs=os.cpu_count() or 1), folder,
                        f"unpack {archive_of(folder.name).urls[0]} again")
    manifests = parts[folder.name]
    recordings = {one.id: one for one in manifests["recordings"]}
    chosen = [one for one in manifests["supervisions"] if one.id in recordings]
    speakers = {one.id: one.id.rsplit("-", 1)[0] for one in chosen}
    write_datadir(target, {utt: str(Path(recordings[utt].sources[0].source).resolve()) for utt in speakers},
                  {one.id: one.text for one in chosen}, speakers)
    write_table(target / "utt2dur", {utt: f"{recordings[utt].duration:.6g}" for utt in speakers})
    sexes = _sexes(folder.parent / "SPEAKERS.TXT")
    readers = {one.speaker for one in chosen}
    if readers <= sexes.keys():
        write_table(target / "spk2gender", {speaker: sexes[speaker.split("-")[0]] for speaker in set(speakers.values())})
    hours = sum(recordings[utt].duration for utt in speakers) / 3600
    yield f"{len(speakers)} utterances of {len(readers)} readers, {hours:.2f} h, in {target}"
    yield from packages.left_out(target.parent / "local" / target.name, (
        ("transcripts_without_audio", f"{target.name}: transcripts without audio", sorted(set(said) - heard)),
        ("audio_without_transcripts", f"{target.name}: audio files without a transcript", sorted(heard - set(said)))))


def _sexes(path: Path) -> dict[str, str]:
    """Reader -> m or f, by the list that comes with the corpus; without it, of nobody."""
    if not path.is_file():
        return {}
    rows = (re.split(r"\s*\|\s*", line.strip()) for line in read_lines(path) if not line.startswith(";"))
    return {row[0]: row[1].lower() for row in rows if len(row) > 2 and row[1].lower() in ("m", "f")}
