"""TIMIT (LDC93S1): read sentences in eight dialects of American English, 16 kHz, with the phones that were said.

TRAIN/ and TEST/ have folders of dialects, with folders of speakers, with a sphere file (.WAV), its phones (.PHN), words and text of each
sentence; releases differ in large and small letters. lhotse's recipe reads one of these ways, so it is shown links that lie in this way. It
also knows the speakers of the core test set (24) and of the development set (50), who are both in TEST/. As in public recipes the two
sentences that everybody read (SA) are left out. What lhotse's recipe lacks is here: other releases, and the folding of phones by a table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.corpora.by_lhotse import call_lhotse, lay_links
from pykaldist.io.corpora.dictionary import write_dict
from pykaldist.io.corpora.packages import check_recordings, find_files, left_out, package, plain_files
from pykaldist.io.corpora.rules import read_columns
from pykaldist.io.datadir import write_datadir, write_table

NUMBER, TITLE = "LDC93S1", "TIMIT Acoustic-Phonetic Continuous Speech Corpus"
RATE = 16000
SETS = {"train": "TRAIN", "dev": "DEV", "test": "TEST"}  # of data/, and lhotse's
BESIDE = (".PHN", ".TXT", ".WRD")
SILENCE = "sil"
NONE = "-"  # in the table: this phone is left out


def read_phones(path: str | os.PathLike[str]) -> dict[str, tuple[str, str]]:
    """Phone of the transcripts -> (one of 48, one of 39), empty where it is left out.

    Raises UserError for a phone that stands twice, and where one of the 48 becomes two of the 39.
    """
    table: dict[str, tuple[str, str]] = {}
    folded: dict[str, str] = {}
    for number, (phone, of48, of39) in read_columns(path, 3):
        if phone in table or folded.setdefault(of48, of39) != of39:
            what = "stands twice" if phone in table else f"makes {of48} both {folded[of48]} and {of39}"
            raise UserError(f"{path}, line {number}: the phone {phone} {what}; correct the table.")
        table[phone] = ("", "") if of48 == NONE else (of48, of39)
    return table


def _sentence(path: Path) -> str:
    """The name of an utterance, as in Kaldi's recipe: fcjf0_si1027."""
    return f"{path.parent.name}_{path.stem}".lower()


def _links(files: dict[str, dict[str, Path]], audio: dict[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """The files of all whole utterances by the names that lhotse's recipe reads, and the names of the utterances that are not whole.

    `audio`: those of `files`, or what was made of them.
    """
    links, broken = {}, []
    for utt, path in files[".WAV"].items():
        if any(utt not in files[suffix] for suffix in BESIDE):
            broken.append(utt)
        else:
            place = "/".join(path.with_suffix("").parts[-4:]).upper()  # TRAIN/DR1/FCJF0/SI1027
            links.update({f"data/{place}.WAV": audio[utt], **{f"data/{place}{suffix}": files[suffix][utt] for suffix in BESIDE}})
    return links, broken


def prepare(corpus: str, data: str | os.PathLike[str], phones: str | os.PathLike[str]) -> Iterable[str]:
    """Write <data>/{train,dev,test} with the 48 phones as words, and <data>/local/dict; yields lines that say what came out.

    `phones`: the table of phones (61, 48 and 39). Lists of what was left out stand in <data>/local/timit. Raises UserError for what is not
    there, damaged or of one name, and for a phone that the table does not know.
    """
    folder, found = package(Path(corpus), NUMBER, TITLE, "corpus", ["train", "test"])
    root, data, table = found[0].parent, Path(data), read_phones(phones)
    files = {suffix: {utt: path for utt, path in find_files(root, suffix.lower(), "sentences", _sentence).items()
                      if not path.stem.upper().startswith("SA")} for suffix in (".WAV", *BESIDE)}
    headers = check_recordings(files[".WAV"], RATE)
    audio = plain_files(files[".WAV"], headers, data / "local/timit/audio")
    links, broken = _links(files, audio)
    shown = data / "local/timit/links"
    lay_links(shown, links)
    from lhotse.recipes.timit import get_speakers, prepare_timit  # takes a second

    dev, test = get_speakers()
    for name, part, wanted in (("train", "TRAIN", None), ("dev", "TEST", dev), ("test", "TEST", test)):
        here = {place.split("/")[-2].lower() for place in links if f"/{part}/" in place}
        if not here.intersection(here if wanted is None else wanted):
            raise UserError(f"{root} has no sentences of the speakers of {name}, which {part}/ should have; a part of {NUMBER} ({TITLE}) "
                            "is missing.")
    manifests = call_lhotse(lambda: prepare_timit(shown, num_phones=60), folder, f"unpack {NUMBER} again")
    used: set[str] = set()
    for name, part in SETS.items():
        said = {one.id.replace("-", "_", 1).lower(): [item.symbol for item in one.alignment["phone"]]
                for one in manifests[part]["supervisions"]}
        text = {utt: _folded(one, table, files[".PHN"][utt]) for utt, one in said.items()}
        speakers = {utt: utt.split("_")[0] for utt in text}
        write_datadir(data / name, {utt: str(audio[utt].resolve()) for utt in text},
                      {utt: " ".join(one) for utt, one in text.items()}, speakers)
        seconds = {utt: headers[utt].samples / RATE for utt in text}
        write_table(data / name / "utt2dur", {utt: f"{one:.6g}" for utt, one in seconds.items()})
        write_table(data / name / "spk2gender", {speaker: speaker[0] for speaker in set(speakers.values())})
        if name == "train":
            used = {phone for one in text.values() for phone in one}
        yield f"{len(text)} utterances of {len(set(speakers.values()))} speakers, {sum(seconds.values()) / 3600:.2f} h, in {data / name}"
    write_dict(data / "local/dict", {phone: [(phone,)] for phone in used - {SILENCE}}, {SILENCE: [(SILENCE,)]})
    yield f"{len(used)} phones, which are words of {data}/local/dict/lexicon.txt"
    yield from left_out(data / "local/timit", (
        ("audio_without_transcripts", f"sentences that lack one of their files {', '.join(BESIDE)}", broken),
        ("transcripts_without_audio", "sentences with phones and no audio", sorted(set(files[".PHN"]) - set(files[".WAV"])))))


def _folded(phones: Sequence[str], table: dict[str, tuple[str, str]], path: Path) -> list[str]:
    unknown = next((phone for phone in phones if phone not in table), None)
    if unknown is not None:
        raise UserError(f"{path}: expected phones of TIMIT, found {unknown!r}; fetch the file again.")
    return [table[phone][0] for phone in phones if table[phone][0]]
