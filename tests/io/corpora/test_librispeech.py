"""LibriSpeech: small copies in its public layout, with the files of OpenSLR 11 beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.corpora import librispeech
from pykaldist.io.corpora.counts import compare, count
from pykaldist.io.corpora.dictionary import write_dict
from pykaldist.io.corpora.fetch import Archive
from pykaldist.io.datadir import DataDir

RECIPE = Path(__file__).parents[3] / "egs/librispeech/s5"
LEXICON = "A\tAH0\nA\tEY1\nBEE\tB IY1\nTEA\tT IY2\n"
SPEAKERS = ";ID  |SEX| SUBSET           |MINUTES| NAME\n14  | F | train-clean-5    | 25.03 | Kate\n27  | M | dev-clean-2 | 9 | |CBW|Simon\n"


def small(folder: Path, parts: tuple[str, ...] = librispeech.MINI) -> Path:
    """Two chapters of one reader a part, two utterances each, of 0.5 s; the lexicon and the smallest model beside it."""
    for part, reader in zip(parts, (14, 27, 30), strict=False):
        for chapter in (100, 208):
            place, name = folder / "LibriSpeech" / part / f"{reader}/{chapter}", f"{reader}-{chapter}"
            place.mkdir(parents=True)
            for number in range(2):
                soundfile.write(place / f"{name}-{number:04d}.flac", [0.0, 0.1] * 4000, 16000)
            (place / f"{name}.trans.txt").write_text(f"{name}-0000 A BEE\n{name}-0001 TEA\n")
    (folder / "LibriSpeech/SPEAKERS.TXT").write_text(SPEAKERS)
    (folder / "librispeech-lexicon.txt").write_text(LEXICON)
    (folder / "3-gram.pruned.3e-7.arpa.gz").write_bytes(b"small")
    return folder


def test_the_layout_of_openslr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = small(tmp_path / "corpus")
    assert main(["prepare-corpus", "--corpus", str(corpus), "--lms", "tgsmall", "mini_librispeech", str(tmp_path / "data")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"4 utterances of 1 readers, 0.00 h, in {tmp_path}/data/train_clean_5"
    train = DataDir(tmp_path / "data/train_clean_5")
    train.validate()
    assert train.spk2utt == {"14-100": ["14-100-0000", "14-100-0001"], "14-208": ["14-208-0000", "14-208-0001"]}
    assert train.text["14-208-0000"] == ["A", "BEE"]
    assert train.table("wav.scp")["14-100-0001"] == str(corpus / "LibriSpeech/train-clean-5/14/100/14-100-0001.flac")
    assert train.table("utt2dur")["14-100-0001"] == "0.5" and train.table("spk2gender") == {"14-100": "f", "14-208": "f"}
    assert DataDir(tmp_path / "data/dev_clean_2").table("spk2gender")["27-100"] == "m"
    own = tmp_path / "data/local"
    assert (own / "dict/lexicon.txt").read_text() == "<SIL> SIL\n<UNK> SPN\nA AH0\nA EY1\nBEE B IY1\nTEA T IY2\n"
    assert (own / "dict/nonsilence_phones.txt").read_text() == "AH0\nB\nEY1\nIY1 IY2\nT\n"
    assert (own / "dict/extra_questions.txt").read_text() == "SIL SPN\nB T\nAH0\nEY1 IY1\nIY2\n"
    assert (own / "lm_tgsmall.arpa.gz").read_bytes() == b"small"


def test_counts_beside_those_that_are_published(tmp_path: Path) -> None:
    """All sets of the recipe are in its table; of a set that is there readers, not chapters, are counted, and hours without segments."""
    list(librispeech.prepare(str(small(tmp_path / "corpus", ("dev-clean",))), tmp_path / "data", tmp_path / "fetch", ["dev-clean"], []))
    dev = tmp_path / "data/dev_clean"
    assert [count(dev, what) for what in ("utterances", "speakers", "readers")] == [4, 2, 1]
    assert count(dev, "hours") == pytest.approx(2.0 / 3600)
    known = {(one.folder, one.what): one for one in compare(RECIPE / "local/counts.tsv", tmp_path / "data")}
    parts = {part.replace("-", "_") for part in librispeech.FULL}
    assert set(known) == {(part, what) for part in parts for what in ("utterances", "hours", "readers")}
    assert known["dev_clean", "readers"].differs and known["test_clean", "hours"].found is None
    mini = small(tmp_path / "mini", ("train-clean-5", "dev-clean-2"))
    list(librispeech.prepare(str(mini), tmp_path / "data", tmp_path, ["dev-clean-2"], []))
    words, = compare(RECIPE.parents[1] / "mini_librispeech/s5/local/counts.tsv", tmp_path / "data")
    assert (words.folder, words.what, words.found, words.differs) == ("dev_clean_2", "transcribed words", 6, True)


def test_kaldis_names_and_folders_of_models(tmp_path: Path) -> None:
    corpus = small(tmp_path / "corpus", ("dev-clean",))
    (corpus / "3-gram.pruned.3e-7.arpa.gz").rename(corpus / "lm_tgsmall.arpa.gz")
    (corpus / "lm").mkdir()
    (corpus / "lm/4-gram.arpa.gz").write_bytes(b"large")
    found = librispeech.find_models(str(corpus), tmp_path / "fetch", ["tgsmall", "fglarge"])
    assert {name: path.relative_to(corpus).as_posix() for name, path in found.items()} == {
        "lexicon": "librispeech-lexicon.txt", "tgsmall": "lm_tgsmall.arpa.gz", "fglarge": "lm/4-gram.arpa.gz"}
    assert librispeech.find_part(str(corpus / "LibriSpeech"), tmp_path / "fetch", "dev-clean") == corpus / "LibriSpeech/dev-clean"


def test_what_has_no_counterpart_is_counted_and_left_out(tmp_path: Path) -> None:
    corpus = small(tmp_path / "corpus", ("dev-clean",))
    place = corpus / "LibriSpeech/dev-clean/14/100"
    (place / "14-100-0001.flac").rename(place / "14-100-0009.flac")
    said = list(librispeech.prepare(str(corpus), tmp_path / "data", tmp_path / "fetch", ["dev-clean"], []))
    assert said[:3] == [f"3 utterances of 1 readers, 0.00 h, in {tmp_path}/data/dev_clean",
                        "left out: dev_clean: transcripts without audio, 1: 14-100-0001 "
                        f"(all in {tmp_path}/data/local/dev_clean/transcripts_without_audio)",
                        "left out: dev_clean: audio files without a transcript, 1: 14-100-0009 "
                        f"(all in {tmp_path}/data/local/dev_clean/audio_without_transcripts)"]
    DataDir(tmp_path / "data/dev_clean").validate()


def test_a_damaged_corpus_ends_in_a_sentence(tmp_path: Path) -> None:
    def fails(corpus: Path, message: str) -> None:
        with pytest.raises(UserError, match=message):
            list(librispeech.prepare(str(corpus), tmp_path / "data", tmp_path / "fetch", ["dev-clean"], []))
        assert not (tmp_path / "data/dev_clean/text").exists()

    corpus = small(tmp_path / "corpus", ("test-clean",))
    fails(corpus, r"has neither LibriSpeech/dev-clean nor dev-clean, but 3-gram.*give --corpus .*dev-clean.tar.gz was unpacked")
    (corpus / "LibriSpeech/test-clean").rename(corpus / "LibriSpeech/dev-clean")
    place = corpus / "LibriSpeech/dev-clean/14/100"
    text = place / "14-100.trans.txt"
    text.write_text("14-100-0000 A\n14-100-0000 BEE\n")
    fails(corpus, "14-100.trans.txt, line 2: the utterance 14-100-0000 has a transcript already")
    text.write_text("14-100-0000\n")
    fails(corpus, "line 1: expected an utterance and its words, found '14-100-0000'")
    text.write_text("14-100-0000 A\n")
    (place / "14-100-0000.flac").write_bytes(b"fLaC but no more")
    fails(corpus, r"lhotse cannot read .*dev-clean: Fetching .*14-100-0000.flac' failed .*; unpack .*dev-clean.tar.gz again")
    for path in corpus.rglob("*.flac"):
        path.unlink()
    fails(corpus, "has 3 transcripts .* and 0 FLAC files, and no utterance with both")


def test_what_is_not_there_is_fetched_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = small(tmp_path / "corpus", ("dev-clean",))
    (corpus / "librispeech-lexicon.txt").rename(tmp_path / "librispeech-lexicon.txt")
    url = (tmp_path / "librispeech-lexicon.txt").as_uri()
    monkeypatch.setattr(librispeech, "LEXICON", Archive((url,), len(LEXICON), plain=True))
    found = librispeech.find_models(str(corpus), tmp_path / "fetch", [])
    assert found["lexicon"] == tmp_path / "fetch/lm/lexicon/librispeech-lexicon.txt" and found["lexicon"].read_text() == LEXICON
    monkeypatch.setattr(librispeech, "LEXICON", Archive((url,), len(LEXICON) + 1, plain=True))
    with pytest.raises(UserError, match=rf"could not be fetched .* has {len(LEXICON)} bytes, expected {len(LEXICON) + 1}.*put it beside"):
        librispeech.find_models(str(corpus), tmp_path / "elsewhere", [])
    monkeypatch.setattr(librispeech, "archive_of", lambda part: Archive(((tmp_path / "none.tar.gz").as_uri(),)))
    with pytest.raises(UserError, match=r"dev-other could not be fetched .*give the folder that has LibriSpeech/ with --corpus"):
        librispeech.find_part(None, tmp_path / "fetch", "dev-other")
    for options, message in ((["--parts", "dev-clean"], "--parts: mini_librispeech has train-clean-5, dev-clean-2, and no dev-clean."),
                             (["--lms", "huge"], "--lms: mini_librispeech has tgsmall, tgmed, tglarge, fglarge, and no huge.")):
        assert main(["prepare-corpus", *options, "mini_librispeech", str(tmp_path / "data")]) == 1
        assert message in capsys.readouterr().err


def test_phones_with_marks_of_stress_are_told_only_where_asked(tmp_path: Path) -> None:
    write_dict(tmp_path, {"A": [("AH0",), ("AH1",)]})
    assert (tmp_path / "nonsilence_phones.txt").read_text() == "AH0\nAH1\n" and (tmp_path / "extra_questions.txt").read_text() == ""
