"""What is said of a corpus that is not whole: every cell of the table in docs/recipes.md, through the verb that a recipe calls.

Where the table has "said", the verb ends with status 1 and one sentence, and leaves no set half-written. Where it has "listed", "counted"
or "read", the verb goes on with status 0, and every set that it writes is whole.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from layouts import commonvoice, fisher, librispeech, speech, swbd, tedlium, timit, tones

from pykaldist.cli import main
from pykaldist.io import sphere
from pykaldist.io.audio import read_utterances
from pykaldist.io.datadir import DataDir

TABLE = "### What is said of a corpus that is not whole"
COLUMNS = ("Switchboard", "Fisher", "NIST's tests", "LibriSpeech", "TED-LIUM", "TIMIT", "Common Voice", "of your own")
PARTS = {"train": (2, 3), "dev": (1, 3), "test": (1, 3)}  # speakers, utterances of each


@dataclass
class Corpus:
    """A stand-in, which a test may change."""

    folder: Path

    def one(self, pattern: str) -> Path:
        return next(iter(sorted(self.folder.rglob(pattern))))

    def copy(self, pattern: str, name: str) -> None:
        """A file of the corpus once more, beside it."""
        shutil.copy(self.one(pattern), self.one(pattern).with_name(name))


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each column of the table, with its stand-in."""
    folder = tmp_path_factory.mktemp("stand_ins")
    spoken = tones.as_an4(folder / "tones", 8, 3)
    for column in COLUMNS:
        lay_out(column, spoken, folder / column)
    return folder


def verb_of(column: str, folder: Path, root: Path) -> list[str]:
    """What prepares the corpus in `folder`, but for the data directory."""
    egs = root / "egs"
    libri = [*["prepare-corpus", "--lms", "tgsmall", "--parts"], "train-clean-5 dev-clean-2", "--corpus", str(folder), "mini_librispeech"]
    return {
        "Switchboard": ["prepare-swbd", "--tables", str(egs / "swbd/s5c/local"), "--sets", "train", str(folder)],
        "Fisher": ["prepare-swbd", "--tables", str(egs / "fisher_swbd/s5/local"), "--sets", "train_swbd train_fisher", str(folder)],
        "NIST's tests": ["prepare-swbd", "--tables", str(egs / "swbd/s5c/local"), "--sets", "eval2000 rt03", str(folder)],
        "LibriSpeech": libri,
        "TED-LIUM": ["prepare-corpus", "--table", str(egs / "tedlium/s5_r3/local/words.tsv"), "--corpus", str(folder), "tedlium"],
        "TIMIT": ["prepare-corpus", "--table", str(egs / "timit/s5/local/phones.tsv"), "--corpus", str(folder), "timit"],
        "Common Voice": ["prepare-commonvoice", "--language", "en", str(folder)],
        "of your own": ["prepare-table", "--audio", str(folder / "audio"), "--transcripts", str(folder / "table.csv"), "--lexicon",
                        "graphemes"],
    }[column]


def lay_out(column: str, spoken: Path, folder: Path) -> None:
    if column in ("Switchboard", "Fisher", "NIST's tests"):
        swbd.small(spoken, folder, 6, 3, 2)
        fisher.lay_out(spoken, folder, 4, 3, 0)
    elif column == "LibriSpeech":
        said = librispeech.lay_out(spoken, folder, {"train-clean-5": (4, 3), "dev-clean-2": (2, 3)})
        librispeech.lay_out_models(spoken, folder, said)
    elif column == "TED-LIUM":
        tedlium.lay_out(spoken, folder, folder / "lm", PARTS, 0)
    elif column == "TIMIT":
        timit.lay_out(spoken, folder, 2, 3)
    elif column == "Common Voice":
        commonvoice.lay_out(spoken, folder, PARTS)
    else:
        rows = ["file,text"]
        for one in speech.an4(spoken):
            speech.write(folder / f"audio/{one.speaker}/{one.name}.sph", one.samples(8000), 8000, "NIST")
            rows.append(f"{one.speaker}/{one.name}.sph,{one.text}")
        speech.lines(folder / "table.csv", rows)


def header(path: Path, old: bytes, new: bytes) -> None:
    """Replace a part of a sphere file's header, whose length stays."""
    content = path.read_bytes()
    assert old in content[:1024] and len(new) >= len(old)
    head = content[:1024].replace(old, new, 1)
    path.write_bytes(head.rstrip(b"\0 ")[:1024].ljust(1024) + content[1024:])


def other_rate(pattern: str, old: bytes, new: bytes) -> Callable[[Corpus], None]:
    return lambda corpus: header(corpus.one(pattern), b"sample_rate -i " + old, b"sample_rate -i " + new)


def damaged(pattern: str) -> Callable[[Corpus], None]:
    return lambda corpus: header(corpus.one(pattern), b"sample_count", b"sample_cnt  ")


def shortened(pattern: str) -> Callable[[Corpus], None]:
    """As if files were compressed: what follows a header does not count then. The file as it was stands beside, for `a_program`."""
    def change(corpus: Corpus) -> None:
        for path in sorted(corpus.folder.rglob(pattern)):
            content = path.read_bytes()
            path.with_name(f"{path.name}.plain").write_bytes(content)
            coding = re.search(rb"sample_coding -s\d+ (\w+)", content[:1024])
            kind = coding[1] if coding else b"pcm"
            line = b"sample_coding -s%d %s" % (len(kind) + 24, kind + b",embedded-shorten-v2.00")
            head = content[:1024].replace(coding[0], line) if coding else content[:1024].replace(b"end_head", line + b"\nend_head")
            path.write_bytes(head[:1024].ljust(1024) + content[1024:])
    return change


def taken(*patterns: str) -> Callable[[Corpus], None]:
    """Without the first file or folder of each pattern."""
    def change(corpus: Corpus) -> None:
        for pattern in patterns:
            path = corpus.one(pattern)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return change


def again(pattern: str, name: str) -> Callable[[Corpus], None]:
    return lambda corpus: corpus.copy(pattern, name)


def appended(pattern: str, line: int) -> Callable[[Corpus], None]:
    """A line of a text file once more, at its end."""
    def change(corpus: Corpus) -> None:
        lines = corpus.one(pattern).read_text().splitlines()
        speech.lines(corpus.one(pattern), [*lines, lines[line]])
    return change


def one_channel(pattern: str) -> Callable[[Corpus], None]:
    return lambda corpus: swbd.write(corpus.one(pattern), swbd.noise(9.0, 0), 8000, "NIST", "ULAW")


def elsewhere(corpus: Corpus) -> None:
    """A folder in which there is something else."""
    shutil.rmtree(corpus.folder)
    speech.lines(corpus.folder / "readme.txt", ["hello"])


def duplicate_row(corpus: Corpus) -> None:
    """A clip that two of Common Voice's tables have."""
    row = corpus.one("train.tsv").read_text().splitlines()[1]
    corpus.one("dev.tsv").write_text(corpus.one("dev.tsv").read_text() + row + "\n")


def call(corpus: Corpus, number: int) -> tuple[Path, Path]:
    """One more call of Fisher: its audio and its transcript."""
    transcript = fisher.call(corpus.folder, 0, number, [[(swbd.noise(0.5, side), "ba")] for side in (1, 2)])
    return corpus.one(f"fe_03_0000{number}.sph"), transcript


def calls_without(corpus: Corpus) -> None:
    """Fisher's calls with transcripts, of which all but one have no audio."""
    for number in (3, 4, 5):
        call(corpus, number)[0].unlink()


def twice_in_timit(corpus: Corpus) -> None:
    """The same speakers in two dialects."""
    shutil.copytree(corpus.folder / "TRAIN/DR1", corpus.folder / "TRAIN/DR2")


def odd_row(corpus: Corpus) -> None:
    """A row of a table whose audio is not there."""
    with open(corpus.folder / "table.csv", "a", encoding="utf-8") as stream:
        stream.write("mtaa/gone.sph,BA\n")


def a_program(home: Path) -> Path:
    """What stands for sph2pipe of the consortium, where lhotse puts it: reads the file that stands beside a shortened one."""
    program = home / ".lhotse/tools/sph2pipe-2.5/sph2pipe"
    speech.lines(program, ["#!/bin/sh", "for file; do :; done", 'while [ "$1" != "$file" ]; do set -- "$@" "$1"; shift; done', "shift",
                           f'exec {sphere.own_program()} "$@" "$file.plain"'])
    program.chmod(0o755)
    return program


DISC = "A disc of {} is missing, or was not unpacked"
SHORTENED = r"is compressed with shorten, as \d+ of \d+ recordings are; this needs .*`lhotse install-sph2pipe`"
RATE = "expected {} Hz, found {} Hz; this is another corpus"
HEADER = "{} recordings cannot be used. The first: .*: the sphere header is damaged .*; fetch it again"
ONE = "take one away"
# Row of the table -> column -> what is done to the corpus, the word that the cell begins with, and what is said.
CASES: dict[str, dict[str, tuple[Callable[[Corpus], object], str, str]]] = {
    "another folder": {
        "Switchboard": (elsewhere, "said",
                        r"has no sw0\*.sph, which was looked for in it and below; found 1: readme.txt. Expected LDC97S62"),
        "Fisher": (lambda one: [shutil.rmtree(path) for path in one.folder.glob("LDC200[45]*")], "said",
                   r"has no folder LDC2004S13; found 4: .*Expected LDC2004S13 \(Fisher English Training Part 1, Speech\)"),
        "NIST's tests": (elsewhere, "said", r"has no hub5e_00.pem, which was looked for .*; found 1: readme.txt. Expected LDC2002S09"),
        "LibriSpeech": (elsewhere, "said", r"has neither LibriSpeech/train-clean-5 nor train-clean-5, but readme.txt; .*OpenSLR 31"),
        "TED-LIUM": (elsewhere, "said", r"has no TEDLIUM.152k.dic, which was looked for .* found 1: readme.txt. Expected OpenSLR 51"),
        "TIMIT": (elsewhere, "said", r"has no train, which was looked for in it and below; found 1: readme.txt. Expected LDC93S1"),
        "Common Voice": (lambda one: (one.folder / "en").rename(one.folder / "de"), "said",
                         "has no folder en/ with train.tsv and clips/; it has de. Choose one of these with --language"),
        "of your own": (lambda one: [path.rename(path.with_suffix(".txt")) for path in one.folder.rglob("*.sph")], "said",
                        r"audio has no audio: looked for \*.wav, .*, found ftab, ftad"),
    },
    "a disc or part is missing": {
        "Switchboard": (taken("sw02201.sph", "sw02401.sph"), "said",
                        "2 of 3 conversations with transcripts have no audio in .*LDC97S62, from "
                        r"sw02201 to sw02401; its folders with sphere files: swb1_d2 \(1\), swb1_d4 \(1\). " + DISC.format("LDC97S62")),
        "Fisher": (calls_without, "said", "3 of 4 conversations with transcripts have no audio in .*LDC2004S13, from fe_03_00003 to "
                   "fe_03_00005; .*" + DISC.format("LDC2004S13")),
        "NIST's tests": (taken("en_4301.sph"), "said", "has no audio of 1: en_4301, which .*stm names; a part of LDC2002S09 is missing"),
        "LibriSpeech": (taken("dev-clean-2"), "said", "has neither LibriSpeech/dev-clean-2 nor dev-clean-2, but .*OpenSLR 31"),
        "TED-LIUM": (taken("train/sph/*.sph", "train/sph/*.sph"), "said",
                     r"train/sph has no sphere files \(\*.sph\), in it or below; unpack"),
        "TIMIT": (taken("FDHC0", "FELC0", "MDAB0"), "said", "has no sentences of the speakers of test, which TEST/ should have; a part of"),
        "Common Voice": (taken("dev.tsv"), "said",
                         r"has no dev.tsv, which was looked for in it and below; found .*Expected en \(Common Voice"),
    },
    "damaged audio": {
        "Switchboard": (damaged("sw02001.sph"), "said", HEADER.format("1 of 3")),
        "Fisher": (damaged("fe_03_00001.sph"), "said", HEADER.format("1 of 2")),
        "NIST's tests": (damaged("sw_4300.sph"), "said", HEADER.format("1 of 2")),
        "LibriSpeech": (lambda one: one.one("*.flac").write_bytes(b"fLaC, no more"), "said", "lhotse cannot read .*flac.*; unpack .*again"),
        "TED-LIUM": (damaged("train/sph/*.sph"), "said", HEADER.format("1 of 2")),
        "TIMIT": (damaged("TRAIN/**/SX1.WAV"), "said", HEADER.format("1 of 24")),
        "Common Voice": (lambda one: one.one("*.mp3").write_bytes(b"no audio"), "said", "lhotse cannot read .*; fetch the clip again, or"),
        "of your own": (lambda one: one.one("*.sph").write_bytes(b"no audio"), "listed",
                        "left out, audio files that cannot be read: 1, such as"),
    },
    "another sampling rate": {
        "Switchboard": (other_rate("sw02001.sph", b"8000", b"9000"), "said", RATE.format(8000, 9000)),
        "Fisher": (other_rate("fe_03_00001.sph", b"8000", b"9000"), "said", RATE.format(8000, 9000)),
        "NIST's tests": (other_rate("sw_4300.sph", b"8000", b"9000"), "said", RATE.format(8000, 9000)),
        "LibriSpeech": (lambda one: speech.write(one.one("*.flac"), swbd.noise(1.0, 0), 8000, "FLAC"), "read",
                        "12 utterances of 4 readers"),
        "TED-LIUM": (other_rate("train/sph/*.sph", b"16000", b"22050"), "said", RATE.format(16000, 22050)),
        "TIMIT": (other_rate("TRAIN/**/SX1.WAV", b"16000", b"22050"), "said", RATE.format(16000, 22050)),
        "Common Voice": (lambda one: speech.write(one.one("*.mp3"), swbd.noise(1.0, 0), 48000, "MP3", "MPEG_LAYER_III"), "read",
                         "12 recordings are converted to one channel at 16000 Hz"),
        "of your own": (lambda one: speech.write(one.one("*.sph"), swbd.noise(1.0, 0), 16000, "NIST"), "read",
                        "1 recordings are converted to one channel at 8000 Hz"),
    },
    "audio compressed with shorten": {
        "Switchboard": (shortened("sw0*.sph"), "said", SHORTENED),
        "Fisher": (shortened("fe_03*.sph"), "said", SHORTENED),
        "NIST's tests": (shortened("sw_4300.sph"), "said", SHORTENED),
        "TED-LIUM": (shortened("train/sph/*.sph"), "said", SHORTENED),
        "TIMIT": (shortened("TRAIN/**/SX1.WAV"), "said", SHORTENED),
        "of your own": (shortened("ftab/*.sph"), "listed", "left out, audio files that cannot be read: 3, such as .*shorten"),
    },
    "audio without transcripts": {
        "Switchboard": (lambda one: None, "listed",
                        "left out: recordings without transcripts, 1: sw04999 .all in .*audio_without_transcripts"),
        "Fisher": (lambda one: call(one, 7)[1].unlink(), "listed",
                   "left out: recordings without transcripts, 1: fe_03_00007 .all in .*audio_without_transcripts"),
        "NIST's tests": (again("en_4301.sph", "en_4399.sph"), "listed",
                         "left out: eval2000: recordings without reference, 1: en_4399 .all in"),
        "LibriSpeech": (again("11-100011-0000.flac", "11-100011-0009.flac"), "listed",
                        "left out: train_clean_5: audio files without a transcript, 1: 11-100011-0009 .all in"),
        "TED-LIUM": (taken("train/stm/Mtaa_2016.stm"), "listed", "left out: train: talks without a transcript, 1: Mtaa_2016 .all in"),
        "TIMIT": (taken("TRAIN/**/SX1.PHN"), "listed", "left out: sentences that lack one of their files .*, 1: .*sx1 .all in"),
        "Common Voice": (again("common_voice_en_00000001.mp3", "more.mp3"), "counted", "clips that none of the three tables has: 1"),
        "of your own": (again("ftab/an00-ftab-b.sph", "more.sph"), "listed", "left out, audio files without a transcript: 1, .*more.sph"),
    },
    "transcripts without audio": {
        "Switchboard": (taken("sw02201.sph"), "listed", "left out: conversations with transcripts and no audio, 1: sw02201 .all in"),
        "Fisher": (lambda one: call(one, 7)[0].unlink(), "listed",
                   "left out: conversations with transcripts and no audio, 1: fe_03_00007 .all in"),
        "NIST's tests": (taken("fsh_60262.sph"), "said",
                         "has no audio of 1: fsh_60262, which .*stm names; a part of LDC2007S10 is missing"),
        "LibriSpeech": (taken("11-100011-0000.flac"), "listed", "left out: train_clean_5: transcripts without audio, 1: 11-100011-0000"),
        "TED-LIUM": (taken("train/sph/Mtaa_2016.sph"), "listed",
                     "left out: train: transcripts of talks that are not there, 1: Mtaa_2016 .all"),
        "TIMIT": (taken("TRAIN/**/SX1.WAV"), "listed", "left out: sentences with phones and no audio, 1: .*sx1 .all in"),
        "Common Voice": (taken("common_voice_en_00000001.mp3"), "listed",
                         "left out, transcripts without audio: 1: common_voice_en_00000001.mp3"),
        "of your own": (odd_row, "listed", "left out, transcripts without audio: 1, such as mtaa/gone.sph"),
    },
    "a side without a channel": {
        "Switchboard": (one_channel("sw02001.sph"), "listed", "left out: sides without a channel, 1: sw02001-B .all in"),
        "Fisher": (one_channel("fe_03_00002.sph"), "listed", "left out: sides without a channel, 1: fe_03_00002-B .all in"),
        "NIST's tests": (one_channel("sw_4300.sph"), "said", "sw_4300.sph has one channel, and .*stm has its side B; 1 of the sides"),
    },
    "two recordings of one name": {
        "Switchboard": (again("sw02001.sph", "SW02001.SPH"), "said", f"two recordings are called sw02001: .*SPH and .*sph; {ONE}"),
        "Fisher": (again("fe_03_00001.sph", "FE_03_00001.SPH"), "said", f"two recordings are called fe_03_00001: .*; {ONE}"),
        "NIST's tests": (again("sw_4300.sph", "SW_4300.SPH"), "said", f"two recordings are called sw_4300: .*; {ONE}"),
        "TED-LIUM": (again("train/sph/Mtaa_2016.sph", "Mtaa_2016.SPH"), "said", f"two talks are called Mtaa_2016: .*; {ONE}"),
        "TIMIT": (twice_in_timit, "said", f"two sentences are called .*_sa1: .*; {ONE}"),
        "Common Voice": (duplicate_row, "said",
                         "dev.tsv, line 5: the clip common_voice_en_00000001.mp3 stands in train.tsv, line 2 too; one"),
        "of your own": (again("ftab/an00-ftab-b.sph", "an00-ftab-b.SPH"), "listed",
                        "left out, audio files beside another of the same name: 1, such as .*/ftab/an00-ftab-b.SPH"),
    },
    "two utterances of one name": {
        "Switchboard": (appended("sw2001A-ms98-a-trans.text", -1), "said",
                        "two utterances are called sw02001-A_.* two segments of the same"),
        "Fisher": (appended("fe_03_00002.txt", -1), "said", "two utterances are called fe_03_00002-.* has two segments of the same times"),
        "NIST's tests": (appended("sw_45097.stm", -1), "counted",
                         "rt03: segments that the reference has twice, 1: sw_45097-B_.*counts both"),
        "LibriSpeech": (appended("11-100011.trans.txt", 0), "said",
                        "line 4: the utterance 11-100011-0000 has a transcript already; one of"),
        "TED-LIUM": (appended("train/stm/Mtaa_2016.stm", -1), "said",
                     "two utterances are called Mtaa_2016-.* two segments of the same times"),
        "TIMIT": (twice_in_timit, "said", f"two sentences are called .*_sa1: .*; {ONE}"),
        "Common Voice": (appended("train.tsv", 1), "said", "train.tsv, line 8: the clip .* stands in train.tsv, line 2 too; one has to go"),
        "of your own": (appended("table.csv", 1), "said",
                        r"rows that the table has twice: 1, such as .* \(.*line 2, and line 26\); keep one"),
    },
}


@pytest.mark.parametrize(("row", "column"), [(row, column) for row, columns in CASES.items() for column in columns])
def test_it_is_said(stand_ins: Path, root: Path, tmp_path: Path, row: str, column: str, capfd: pytest.CaptureFixture[str],
                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where lhotse would have a program for shortened files
    monkeypatch.setenv("PATH", "/usr/bin")
    corpus, data = Corpus(tmp_path / "corpus"), tmp_path / "data"
    shutil.copytree(stand_ins / column, corpus.folder)
    change, kind, said = CASES[row][column]
    change(corpus)
    status = main([*verb_of(column, corpus.folder, root), str(data)])
    out, err = capfd.readouterr()
    assert re.search(said, err if kind == "said" else out), (status, out, err)
    assert status == (kind == "said") and err.count("\n") == status and "Traceback" not in err, (status, err)
    written = [path.parent for path in sorted(data.rglob("wav.scp"))]
    for folder in written:
        DataDir(folder).validate()
    assert written or kind == "said"


@pytest.mark.parametrize("column", list(CASES["audio compressed with shorten"])[:-1])
def test_shortened_audio_is_read_by_the_program(stand_ins: Path, root: Path, tmp_path: Path, column: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    corpus, data, program = Corpus(tmp_path / "corpus"), tmp_path / "data", a_program(tmp_path)
    shutil.copytree(stand_ins / column, corpus.folder)
    CASES["audio compressed with shorten"][column][0](corpus)
    assert main([*verb_of(column, corpus.folder, root), str(data)]) == 0
    sets = [DataDir(path.parent) for path in data.rglob("wav.scp")]
    entries = [entry for one in sets for entry in one.wav_scp.values()]
    assert any(entry.startswith(f"{program} ") or "/local/" in entry for entry in entries)
    rate = 16000 if column in ("TED-LIUM", "TIMIT") else 8000
    for one in sets:
        assert all(not isinstance(samples, Exception) for _, samples in read_utterances(one, one.utterances(), rate))


def test_the_table_has_these_words(root: Path) -> None:
    """Every cell of docs/recipes.md has the word of its test; cells without one say that there is no such thing in this corpus."""
    lines = (root / "docs/recipes.md").read_text().split(TABLE)[1].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")][: len(CASES) + 2]
    assert tuple(head[1:]) == COLUMNS
    cells = {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}
    assert list(cells) == list(CASES)
    for row, columns in cells.items():
        for column, cell in columns.items():
            assert cell == CASES[row][column][1] if column in CASES[row] else cell in ("none", "any"), (row, column)
