"""TIMIT: known answers on both of its releases' letters, the folding of phones, and every error."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from layouts.speech import lines, write

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.corpora import timit
from pykaldist.io.datadir import DataDir

SAID = {"TRAIN/DR1/FTRN0/SX1": "h# q ao kcl k h#", "TRAIN/DR2/MTRN0/SI9": "h# ax-h zh epi h#", "TRAIN/DR1/FTRN0/SA1": "h# aa h#",
        "TEST/DR1/FAKS0/SX1": "h# ih ix h#", "TEST/DR1/FDHC0/SX1": "h# el l h#", "TEST/DR1/MXXX0/SX1": "h# b h#"}


@pytest.fixture
def table(root: Path) -> Path:
    return root / "egs/timit/s5/local/phones.tsv"


def lay_out(folder: Path, small_letters: bool = False) -> Path:
    rng = np.random.default_rng(0)
    for name, phones in SAID.items():
        for suffix in (".WAV", ".PHN", ".TXT", ".WRD"):
            path = folder / (name + suffix if not small_letters else (name + suffix).lower())
            if suffix == ".WAV":
                write(path, rng.integers(-999, 999, 16000).astype(np.int16), 16000, "NIST")
            elif suffix == ".TXT":
                lines(path, ["0 16000 Some words."])
            else:
                found = phones.split() if suffix == ".PHN" else ["some", "words"]
                lines(path, [f"{100 * i} {100 * i + 100} {one}" for i, one in enumerate(found)])
    return folder


def prepare(corpus: Path, table: Path) -> tuple[Path, list[str]]:
    data = corpus.parent / f"data_{corpus.name}"
    return data, list(timit.prepare(str(corpus), data, table))


@pytest.mark.parametrize("small_letters", [False, True])
def test_known_answers(tmp_path: Path, table: Path, small_letters: bool) -> None:
    data, said = prepare(lay_out(tmp_path / "LDC93S1/timit", small_letters), table)
    found = {name: DataDir(data / name) for name in ("train", "dev", "test")}
    assert {utt: " ".join(words) for one in found.values() for utt, words in one.text.items()} == {
        "ftrn0_sx1": "sil ao cl k sil", "mtrn0_si9": "sil ax zh epi sil", "faks0_sx1": "sil ih ix sil", "fdhc0_sx1": "sil el l sil"}
    assert list(found["dev"].text) == ["faks0_sx1"] and list(found["test"].text) == ["fdhc0_sx1"]
    assert found["train"].table("spk2gender") == {"ftrn0": "f", "mtrn0": "m"}
    assert found["train"].table("utt2dur") == {"ftrn0_sx1": "1", "mtrn0_si9": "1"}
    assert Path(found["dev"].wav_scp["faks0_sx1"]).is_file()
    assert (data / "local/dict/lexicon.txt").read_text().splitlines() == [f"{p} {p}" for p in ("ao", "ax", "cl", "epi", "k", "sil", "zh")]
    assert said[0] == f"2 utterances of 2 speakers, 0.00 h, in {data / 'train'}"


def test_the_folding_is_that_of_lee_and_hon(table: Path) -> None:
    """48 and 39 phones; lhotse's tables, written independently, say the same of every phone."""
    from lhotse.recipes.timit import get_phonemes

    mine = timit.read_phones(table)
    assert [len(mine), len({of48 for of48, _ in mine.values()} - {""}), len({of39 for _, of39 in mine.values()} - {""})] == [61, 48, 39]
    for position, number in enumerate((48, 39)):
        theirs = {phone: one for phone, one in get_phonemes(number).items() if phone not in ("sil", "q")}
        assert {phone: mine[phone][position] for phone in mine if phone != "q"} == theirs
    assert mine["q"] == ("", "")


def test_scores_are_of_39_phones(root: Path, table: Path) -> None:
    folded = dict(timit.read_phones(table).values())
    del folded[""]
    line = f"utt1 {' '.join(folded)}\n"
    done = subprocess.run([root / "egs/timit/s5/local/wer_output_filter"], input=line + "utt2\nutt3 sil\n", cwd=root / "egs/timit/s5",
                          capture_output=True, text=True, check=True)
    assert done.stdout == f"utt1 {' '.join(folded.values())}\nutt2\nutt3 sil\n"


def test_tables_that_are_wrong_are_refused(tmp_path: Path) -> None:
    for rows, what in (("aa\taa\taa\naa\tah\tah\n", "line 2: the phone aa stands twice"),
                       ("aa\taa\taa\nao\taa\tah\n", "line 2: the phone ao makes aa both aa and ah")):
        (tmp_path / "phones.tsv").write_text(rows)
        with pytest.raises(UserError, match=what):
            timit.read_phones(tmp_path / "phones.tsv")


def test_what_is_not_whole_is_left_out_and_listed(tmp_path: Path, table: Path) -> None:
    corpus = lay_out(tmp_path / "timit")
    (corpus / "TRAIN/DR1/FTRN0/SX1.WRD").unlink()
    lines(corpus / "TEST/DR1/FDHC0/SX2.PHN", ["0 1 h#"])
    data, said = prepare(corpus, table)
    assert list(DataDir(data / "train").text) == ["mtrn0_si9"]
    assert (data / "local/timit/audio_without_transcripts").read_text() == "ftrn0_sx1\n"
    assert (data / "local/timit/transcripts_without_audio").read_text() == "fdhc0_sx2\n"
    assert any("sentences that lack one of their files" in line and "1: ftrn0_sx1" in line for line in said)


def test_errors_say_what_is_wanted(tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(change: object, name: str) -> str:
        corpus = lay_out(tmp_path / name)
        change(corpus)  # type: ignore[operator]  # a function of the corpus
        with pytest.raises(UserError) as error:
            prepare(corpus, table)
        return str(error.value)

    wav = "TRAIN/DR1/FTRN0/SX1.WAV"
    assert "has no test, which was looked for in it and below; found 1: TRAIN/. Expected LDC93S1 (TIMIT" in broken(
        lambda one: shutil.rmtree(one / "TEST"), "a")
    assert "has no sentences of the speakers of test, which TEST/ should have; a part of LDC93S1" in broken(
        lambda one: shutil.rmtree(one / "TEST/DR1/FDHC0"), "b")
    assert "two sentences are called ftrn0_sa1" in broken(lambda one: shutil.copytree(one / "TRAIN/DR1", one / "TRAIN/DR3"), "c")
    assert "is no sphere file: expected NIST_1A" in broken(lambda one: (one / wav).write_bytes(b"RIFF" * 99), "d")
    assert "expected phones of TIMIT, found 'xx'" in broken(lambda one: lines(one / wav.replace("WAV", "PHN"), ["0 9 xx"]), "e")
    assert "lhotse cannot read" in broken(lambda one: lines(one / wav.replace("WAV", "PHN"), ["0 nine"]), "f")
    shortened = (tmp_path / "a" / wav).read_bytes().replace(b"sample_coding -s3 pcm", b"sample_coding -s26 pcm,embedded-shorten-v2.00")
    if b"shorten" not in shortened:
        shortened = shortened[:1024].replace(b"end_head", b"sample_coding -s26 pcm,embedded-shorten-v2.00\nend_head")
    assert "compressed with shorten" in broken(lambda one: (one / wav).write_bytes(shortened), "g")
    assert main(["prepare-corpus", "--table", str(table), "timit", str(tmp_path / "data")]) == 1
    assert "--corpus is needed: the folder of LDC93S1" in capsys.readouterr().err
