"""AN4 as Kaldi prepared it, in every audio format it comes in; yesno with Kaldi's split; bad copies of both."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import read_audio
from pykaldist.io.corpora import an4, yesno
from pykaldist.io.corpora.fetch import Archive
from pykaldist.io.datadir import DataDir


def test_an4_equals_kaldis_files(shared: Path, golden: Path, tmp_path: Path) -> None:
    said = list(an4.prepare(str(shared / "data/an4"), tmp_path, tmp_path / "fetch"))
    assert said[0].startswith("948 utterances of 74 speakers") and said[1].startswith("130 utterances of 10 speakers")
    expected = golden / "an4_kaldi"
    for part in ("train", "test"):
        for name in ("text", "utt2spk", "spk2utt"):
            assert (tmp_path / part / name).read_text() == (expected / "data" / part / name).read_text()
        DataDir(tmp_path / part).validate()
    for name in ("lexicon.txt", "nonsilence_phones.txt", "silence_phones.txt", "optional_silence.txt", "extra_questions.txt"):
        assert (tmp_path / "local/dict" / name).read_text() == (expected / "dict" / name).read_text()


def small_an4(folder: Path, kind: str) -> np.ndarray:
    """Two utterances of a tone, in the public layout."""
    tone = (8000 * np.sin(np.arange(1600) / 9)).astype(np.int16)
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/an4.dic").write_text("YES                  Y EH S\nYES(2)  Y AE S\n")
    (folder / "etc/an4.lm").write_text("\\data\\\n")
    for part, home, line in (("train", "an4_clstk", "<s> YES </s> (an1-abc-b)"), ("test", "an4test_clstk", "YES YES (an1-abc-b)")):
        (folder / f"etc/an4_{part}.transcription").write_text(line + "\n")
        path = folder / f"wav/{home}/abc/an1-abc-b"
        path.parent.mkdir(parents=True)
        if kind.startswith("raw"):
            path.with_suffix(".raw").write_bytes(tone.astype(">i2" if kind == "raw-big" else "<i2").tobytes())
        else:
            soundfile.write(path.with_suffix(f".{kind}"), tone, 16000, format={"sph": "NIST"}.get(kind, kind.upper()))
    return tone


@pytest.mark.parametrize("kind", ["wav", "flac", "sph", "raw-big", "raw-little"])
def test_an4_in_any_format(tmp_path: Path, kind: str) -> None:
    tone = small_an4(tmp_path / "c", kind)
    list(an4.prepare(str(tmp_path / "c"), tmp_path / "data", tmp_path / "fetch"))
    data = DataDir(tmp_path / "data/train")
    assert data.text == {"abc-an1-abc-b": ["YES"]} and data.utt2spk["abc-an1-abc-b"] == "abc"
    samples, rate = read_audio(data.wav_scp["abc-an1-abc-b"])
    assert rate == 16000
    np.testing.assert_array_equal(samples, tone)
    assert "YES Y AE S\nYES Y EH S\n" in (tmp_path / "data/local/dict/lexicon.txt").read_text()


def test_bad_an4_ends_in_a_sentence(tmp_path: Path) -> None:
    corpus = tmp_path / "c"

    def fails(message: str) -> None:
        with pytest.raises(UserError, match=message):
            list(an4.prepare(str(corpus), tmp_path / "data", tmp_path / "fetch"))

    corpus.mkdir()
    fails("has no etc/an4.dic, so it is not AN4")
    corpus.rmdir()
    small_an4(corpus, "wav")
    (corpus / "etc/an4_train.transcription").write_text("")
    fails("an4_train.transcription is empty")
    (corpus / "etc/an4_train.transcription").write_text("YES an1\n")
    fails(r"line 1: expected `WORDS \(file\)`")
    (corpus / "etc/an4_train.transcription").write_text("YES (an2-abc-b)\n")
    fails("no audio .* of an2-abc-b")
    shutil.rmtree(corpus / "wav")
    fails("has no wav")
    with pytest.raises(UserError, match=r"could not be fetched from .*--corpus"):
        an4.find_corpus(None, tmp_path / "fetch", (tmp_path / "nowhere").as_uri())


@pytest.mark.parametrize("inner", ["", "waves_yesno"])
def test_yesno_has_kaldis_split(shared: Path, tmp_path: Path, inner: str) -> None:
    said = list(yesno.prepare(str(shared / "data/yesno" / inner), tmp_path, tmp_path / "fetch"))
    assert said[0].startswith("31 utterances") and said[1].startswith("29 utterances")
    train, test = DataDir(tmp_path / "train"), DataDir(tmp_path / "test")
    train.validate()
    test.validate()
    assert max(train.utt2spk) < min(test.utt2spk)
    assert train.text["0_0_0_0_1_1_1_1"] == ["NO"] * 4 + ["YES"] * 4
    assert (tmp_path / "local/dict/lexicon.txt").read_text() == "<SIL> SIL\nNO N\nYES Y\n"
    entries = dict(line.split("\t")[::-1] for line in (tmp_path / "local/lm.arpa").read_text().splitlines() if "\t" in line)
    assert sum(10 ** float(p) for p in entries.values()) == pytest.approx(1, abs=1e-6)


def test_bad_yesno_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 0 recordings named like"):
        list(yesno.prepare(str(tmp_path), tmp_path / "data", tmp_path / "fetch"))
    with pytest.raises(UserError, match=r"could not be fetched .*--corpus"):
        yesno.find_recordings(None, tmp_path / "fetch", Archive(("file:///nowhere.tar.gz",)))
