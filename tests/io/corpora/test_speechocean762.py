"""speechocean762: the copy for development, which has no test set, and small copies in the public layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import read_audio
from pykaldist.io.corpora import speechocean762
from pykaldist.io.corpora.fetch import Archive
from pykaldist.io.datadir import DataDir

AGES = {"0001": 6, "0002": 18, "0003": 40}


def small(corpus: Path, parts: tuple[str, ...] = ("train", "test"), speakers: int = 3) -> Path:
    """Two utterances a speaker; test speakers have numbers from 5000 up."""
    (corpus / "resource").mkdir(parents=True)
    (corpus / "resource/lexicon.txt").write_text("GO\tG OW1\nGO\tG OW0\nHERE\tHH IY1 R\n<UNK>\tSPN\n")
    for part in parts:
        (corpus / part).mkdir()
        numbers = [f"{int(s) + 5000 * (part == 'test'):04d}" for s in list(AGES)[:speakers]]
        utts = {f"0{s}00{n}": s for s in numbers for n in (1, 2)}
        for name, table in (("utt2spk", utts), ("text", dict.fromkeys(utts, "GO HERE")),
                            ("spk2age", {s: AGES[f"{int(s) % 5000:04d}"] for s in numbers})):
            (corpus / part / name).write_text("".join(f"{key}\t{value}\n" for key, value in table.items()))
        for utt, s in utts.items():
            (corpus / f"WAVE/SPEAKER{s}").mkdir(parents=True, exist_ok=True)
            soundfile.write(corpus / f"WAVE/SPEAKER{s}/{utt}.WAV", [0.0, 0.1], 16000)
    return corpus


@pytest.mark.parametrize(("speakers", "expected"), [("adults", ["0002", "0003"]), ("all", ["0001", "0002", "0003"])])
def test_the_corpus_has_lists_of_its_own(tmp_path: Path, speakers: str, expected: list[str]) -> None:
    said = list(speechocean762.prepare(str(small(tmp_path / "c")), tmp_path, tmp_path / "fetch", speakers))
    train, test = DataDir(tmp_path / "train"), DataDir(tmp_path / "test")
    train.validate()
    test.validate()
    assert list(train.spk2utt) == expected and list(test.spk2utt) == [f"{int(s) + 5000}" for s in expected]
    assert train.text["00002001"] == ["GO", "HERE"]
    assert (tmp_path / "local/dict/lexicon.txt").read_text() == "<SIL> SIL\n<UNK> SPN\nGO G OW\nHERE HH IY R\n"
    assert said[0] == f"{2 * len(expected)} utterances of {len(expected)} speakers in {tmp_path / 'train'}"


def test_speakers_are_held_out_where_there_is_no_test_set(shared: Path, tmp_path: Path) -> None:
    said = list(speechocean762.prepare(str(shared / "data/speechocean762"), tmp_path, tmp_path / "fetch"))
    assert "has no test/: 3 of its speakers are held out" in said[0]
    train, test = DataDir(tmp_path / "train"), DataDir(tmp_path / "test")
    train.validate()
    test.validate()
    assert (len(train.spk2utt), len(test.spk2utt)) == (31, 3) and len(train.utt2spk) + len(test.utt2spk) == 680
    assert not set(train.spk2utt) & set(test.spk2utt)
    phones = (tmp_path / "local/dict/nonsilence_phones.txt").read_text().split()
    assert len(phones) == 39 and not any(phone[-1].isdigit() for phone in phones)


def test_children_are_the_test_set_of_a_copy_with_no_other(tmp_path: Path) -> None:
    """Its audio is Ogg Opus, which has other samples but as many."""
    corpus = small(tmp_path / "c")
    (corpus / "test").rename(corpus / "test_children")
    for path in corpus.rglob("*.WAV"):
        with soundfile.SoundFile(path.with_suffix(".opus"), "w", 16000, 1, format="OGG", subtype="OPUS") as sound:
            sound.write([0.0, 0.1] * 4000)
        path.unlink()
    list(speechocean762.prepare(str(corpus), tmp_path, tmp_path / "fetch", "all"))
    test = DataDir(tmp_path / "test")
    assert list(test.spk2utt) == ["5001", "5002", "5003"]
    for path in (test.wav_scp["05001001"], DataDir(tmp_path / "train").wav_scp["00001001"]):
        samples, rate = read_audio(path)
        assert path.endswith(".opus") and (len(samples), rate) == (8000, 16000)


def test_a_damaged_copy_ends_in_a_sentence(tmp_path: Path) -> None:
    def fails(corpus: Path, message: str, speakers: str = "adults") -> None:
        with pytest.raises(UserError, match=message):
            list(speechocean762.prepare(str(corpus), tmp_path / "data", tmp_path / "fetch", speakers))

    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", "has no train/text, so it is not speechocean762")
    fails(small(tmp_path / "few", ("train",)), "has no test/, and 2 training speakers, too few")
    fails(small(tmp_path / "young", speakers=1), "no utterances of speakers of 18 years or older; use --speakers all")
    corpus = small(tmp_path / "c")
    next((corpus / "WAVE/SPEAKER0002").iterdir()).unlink()
    fails(corpus, r"0000200\d of train/utt2spk has no audio below WAVE/")
    (corpus / "test/spk2age").write_text("5001\t6\n")
    fails(corpus, "test/spk2age has no age of speaker 5002")
    with pytest.raises(UserError, match=r"could not be fetched .*--corpus"):
        speechocean762.find_corpus(None, tmp_path / "fetch", Archive(("file:///nowhere.tar.gz",)))
