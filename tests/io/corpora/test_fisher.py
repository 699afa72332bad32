"""Fisher beside Switchboard: known answers on calls with the known oddities, the lexicon of both, and every error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import fisher as layout
from layouts import swbd
from layouts.speech import lines

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.corpora import fisher
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.corpora.swbd_lexicon import read_acronyms
from pykaldist.io.datadir import DataDir

LETTERS = {letter: [(letter.lower(),)] for letter in "ABUS"}
SAID = [(swbd.noise(0.5, 1), "well, *mandatory u._s._a. [laugh]"), (swbd.noise(0.5, 2), "(( i think )) so"),
        (swbd.noise(0.5, 3), "[pause]"), (swbd.noise(0.5, 4), "bantam bantam an- <german ja> zebra")]


@pytest.fixture
def tables(root: Path) -> Path:
    return root / "egs/fisher_swbd/s5/local"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two calls of Fisher, one in each part, and a conversation of Switchboard, whose dictionary has some of their words."""
    folder = tmp_path / "ldc"
    for part, number in ((0, 1), (1, 5851)):
        layout.call(folder, part, number, [SAID, [(swbd.noise(0.5, 5), "well")]])
    lines(folder / "LDC2004T19/fe_03_p1_tran/doc/readme.txt", ["about it"])
    swbd.stereo(folder / "LDC97S62/swb1_d1/data/sw02001.sph", [swbd.noise(2.0, 1), swbd.noise(2.0, 2)])
    swbd.rows(folder / "LDC97S62", 2001, "A", [(0.5, 1.0, "well bat")])
    swbd.dictionary(folder / "LDC97S62", ["well w eh l", "bat b ae t", "ban b ae n", "tam t ae m", "mandatory m ae n d", "ja y aa"])
    return folder


def prepare(corpus: Path, tables: Path) -> tuple[Path, list[str]]:
    data = corpus.parent / "data"
    return data, list(fisher.prepare(str(corpus), {}, data, tables / "fisher.tsv"))


def test_known_answers(corpus: Path, tables: Path) -> None:
    data, said = prepare(corpus, tables)
    train = DataDir(data / "train_fisher")
    assert {utt: " ".join(words) for utt, words in train.text.items() if utt.startswith("fe_03_00001")} == {
        "fe_03_00001-A_000020-000070": "well mandatory u._s._a. [laughter]", "fe_03_00001-A_000230-000280": "bantam bantam an- zebra",
        "fe_03_00001-B_000020-000070": "well"}
    assert set(train.spk2utt) == {f"fe_03_{number}-{side}" for number in ("00001", "05851") for side in "AB"}
    assert train.segments["fe_03_05851-B_000020-000070"] == ("fe_03_05851-B", 0.2, 0.7)
    assert said[-1].startswith("6 utterances of 4 speakers (sides) of 2 conversations") and "4 segments without sure words" in said[-1]


def test_words_of_fisher_come_into_the_lexicon(corpus: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Acronyms by their letters, others by a letter-to-sound model; words that broke off, and those said once, do not."""
    data = corpus.parent / "data"
    arguments = ["prepare-swbd", "--tables", str(tables), "--sets", "train_swbd train_fisher", str(corpus), str(data), "--min-count"]
    assert main([*arguments, "3"]) == 0
    lexicon = dict(line.split(maxsplit=1) for line in (data / "local/dict/lexicon.txt").read_text().splitlines())
    assert "bantam" in lexicon and "zebra" not in lexicon and "an-" not in lexicon and lexicon["well"] == "w eh l"
    assert set(DataDir(data / "train_swbd").spk2utt) == {"sw02001-A"}
    assert main([*arguments, "2"]) == 0
    lexicon = dict(line.split(maxsplit=1) for line in (data / "local/dict/lexicon.txt").read_text().splitlines())
    assert lexicon["u._s._a."] == "y uw eh s ey"
    assert read_acronyms(data / "local/dict/acronyms.txt")["u._s._a."] == ["u", "s", "a"]
    assert "acronyms of Fisher by their letters" in capsys.readouterr().out


def test_fisher_needs_the_lexicon_of_switchboard(corpus: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["prepare-swbd", "--tables", str(tables), str(corpus), str(corpus.parent / "data"), "--sets"]
    assert main([*arguments, "train_fisher"]) == 1
    assert "give train_swbd before train_fisher in --sets" in capsys.readouterr().err
    assert main([*arguments, "train fisher"]) == 1
    assert "expected some of train, train_swbd, train_fisher, eval2000" in capsys.readouterr().err


@given(st.lists(st.sampled_from("abus"), min_size=1, max_size=5), st.sampled_from(["", "s", "'s"]))
def test_an_acronym_is_said_letter_by_letter(letters: list[str], ending: str) -> None:
    word = "._".join(letters) + "." + ending
    assert fisher.spelled([word, "usa", "q."], LETTERS) == {word: [(*letters, *(["z"] if ending else []))]}


def test_rules_keep_what_their_examples_say(tables: Path) -> None:
    assert Rules(tables / "fisher.tsv")("'cause I- [mn] a.s") == "cause I- [vocalized-noise] a.'s"


def test_calls_without_transcripts_and_the_reverse_are_listed(corpus: Path, tables: Path) -> None:
    layout.call(corpus, 0, 2, [SAID, SAID]).unlink()
    layout.call(corpus, 1, 5852, [SAID, SAID])
    next(corpus.rglob("fe_03_05852.sph")).unlink()
    swbd.stereo(next(corpus.rglob("fe_03_05851.sph")), [swbd.noise(3.0, 1)])  # one side
    data, said = prepare(corpus, tables)
    listed = {path.name: path.read_text().split() for path in (data / "local/train_fisher").iterdir()}
    assert listed["audio_without_transcripts"] == ["fe_03_00002"] and listed["transcripts_without_audio"] == ["fe_03_05852"]
    assert listed["sides_without_audio"] == ["fe_03_05851-B"]
    assert any("left out: conversations with transcripts and no audio, 1: fe_03_05852" in line for line in said)


@pytest.mark.parametrize(("change", "message"), [
    (lambda one: shutil.rmtree(one / "LDC2005S13"), r"has no folder LDC2005S13; found .*Expected LDC2005S13 \(Fisher English Tr"),
    (lambda one: shutil.rmtree(one / "LDC2004T19/fe_03_p1_tran/data"), r"has no fe_03_\*.txt, which was looked for in it and below"),
    (lambda one: [layout.call(one, 0, n, [SAID, SAID]) and next(one.rglob(f"fe_03_0000{n}.sph")).unlink() for n in (2, 3)],
     r"2 of 3 conversations with transcripts have no audio in .*LDC2004S13, from fe_03_00002 to fe_03_00003; .*A disc of LDC2004S13 is"),
    (lambda one: next(one.rglob("fe_03_00001.sph")).write_bytes(b"NIST_1A\n   1024\nend_head\n" + bytes(999)),
     "1 of 2 recordings cannot be used. The first: .*the sphere header is damaged"),
    (lambda one: shutil.copy(next(one.rglob("fe_03_00001.sph")), one / "LDC2004S13/FE_03_00001.sph"), "two recordings are called fe_03"),
    (lambda one: lines(next(one.rglob("fe_03_00001.txt")), ["#", "#", "", "0.5 1.0 C: well"]), "expected a head of three lines, then"),
    (lambda one: lines(next(one.rglob("fe_03_00001.txt")), ["#", "#", "", "0.5 1.0 A: well", "0.5 1.0 A: bat"]), "two utterances are"),
])
def test_errors_say_what_is_wanted(corpus: Path, tables: Path, change: Callable[[Path], object], message: str) -> None:
    change(corpus)
    with pytest.raises(UserError, match=message):
        prepare(corpus, tables)
