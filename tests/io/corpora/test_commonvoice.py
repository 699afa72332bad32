"""Common Voice: known answers in two scripts, old tables, what is left out, and every error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layouts.commonvoice import COLUMNS
from layouts.speech import lines, write

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.corpora import commonvoice
from pykaldist.io.datadir import DataDir

SENTENCES = {"train": [("a" * 128, "İyi \"günler\", Iğdır!"), ("a" * 128, "Evet."), ("b" * 128, "...")], "dev": [("c" * 128, "Hayır.")],
             "test": [("c" * 16 + "d" * 112, "Evet")]}


def lay_out(folder: Path, language: str = "tr", columns: tuple[str, ...] = COLUMNS) -> Path:
    """A release with one language; clips of half a second at 32 kHz."""
    number = 0
    for part, rows in SENTENCES.items():
        table = ["\t".join(columns)]
        for speaker, sentence in rows:
            number += 1
            samples = np.random.default_rng(number).integers(-999, 999, 16000).astype(np.int16)
            write(folder / language / f"clips/c{number}.mp3", samples, 32000, "MP3", "MPEG_LAYER_III")
            row = {"client_id": speaker, "path": f"c{number}.mp3", "sentence": sentence}
            table.append("\t".join(row.get(column, "") for column in columns))
        lines(folder / language / f"{part}.tsv", table)
    return folder


@pytest.mark.parametrize("columns", [COLUMNS, ("client_id", "path", "sentence", "up_votes", "down_votes", "age", "gender", "accent")])
def test_known_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: tuple[str, ...]) -> None:
    corpus, data = lay_out(tmp_path / "cv", columns=columns), tmp_path / "data"
    (corpus / "tr/clips/c9.mp3").write_bytes(b"")
    assert main(["prepare-commonvoice", "--language", "tr", str(corpus), str(data)]) == 0
    said = capsys.readouterr().out
    train = DataDir(data / "train")
    assert {utt: " ".join(words) for utt, words in train.text.items()} == {
        f"{'a' * 16}-c1": "iyi günler ığdır", f"{'a' * 16}-c2": "evet"}  # Turkish small letters
    assert set(DataDir(data / "dev").spk2utt) == {"c" * 128} and set(DataDir(data / "test").spk2utt) == {"c" * 16 + "d" * 112}
    assert train.wav_scp[f"{'a' * 16}-c1"].endswith("local/audio/c1.flac")
    assert "left out, transcripts without a word: 1: c3 (train.tsv)" in said and "clips that none of the three tables has: 1" in said
    assert "hid_layers=2" in (data / "local/sizes").read_text().split()
    assert "evet e v e t" in (data / "local/dict/lexicon.txt").read_text().splitlines()


def test_scripts_without_blanks(tmp_path: Path) -> None:
    corpus = lay_out(tmp_path / "cv", "ja")
    for part, clip, text in (("train", 1, "猫が好き"), ("dev", 4, "犬"), ("test", 5, "猫")):
        lines(corpus / f"ja/{part}.tsv", ["client_id\tpath\tsentence", f"a\tc{clip}.mp3\t{text}"])
    planned = commonvoice.plan(str(corpus), "ja", True, tmp_path / "work")
    assert next(iter(planned.words.values())) == list("猫が好き")


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    corpus = lay_out(tmp_path / "cv")
    (corpus / "tr/clips/c1.mp3").unlink()
    (corpus / "tr/clips/c3.mp3").write_bytes(b"")
    planned = commonvoice.plan(str(corpus), "tr", True, tmp_path / "work")
    assert len(planned.sets["train"]) == 1
    assert planned.left_out["transcripts without audio"] == ["c1.mp3 (train.tsv, line 2)"]
    assert planned.left_out["audio files that are empty"] == ["c3.mp3 (train.tsv, line 4)"]


def test_errors_say_what_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = lay_out(tmp_path / "cv")
    with pytest.raises(UserError, match=r"has no folder de/ with train.tsv and clips/; it has tr. Choose one of these with --language"):
        commonvoice.plan(str(corpus), "de", True, tmp_path / "work")
    with pytest.raises(UserError, match=r"has no train.tsv, which was looked for in it and below; .* Expected tr \(Common Voice"):
        commonvoice.plan(str(corpus / "tr/clips"), "tr", True, tmp_path / "work")
    lines(corpus / "tr/dev.tsv", ["client_id\tpath", "a\tc4.mp3"])
    with pytest.raises(UserError, match=r"dev.tsv: expected columns client_id, path, sentence, found client_id, path"):
        commonvoice.plan(str(corpus), "tr", True, tmp_path / "work")
    lines(corpus / "tr/dev.tsv", ["client_id\tpath\tsentence", "a\tc1.mp3\tEvet"])
    with pytest.raises(UserError, match=r"dev.tsv, line 2: the clip c1.mp3 stands in train.tsv, line 2 too"):
        commonvoice.plan(str(corpus), "tr", True, tmp_path / "work")
    lines(corpus / "tr/dev.tsv", ["client_id\tpath\tsentence", "a\tc8.mp3\tEvet"])
    with pytest.raises(UserError, match=r"dev.tsv has no row with a clip"):
        commonvoice.plan(str(corpus), "tr", True, tmp_path / "work")
    lines(corpus / "tr/dev.tsv", ["client_id\tpath\tsentence", "a\tc4.mp3\tEvet"])
    (corpus / "tr/clips/c4.mp3").write_bytes(b"no audio")
    with pytest.raises(UserError, match=r"lhotse cannot read .*; fetch the clip again, or take its row out of the table"):
        commonvoice.plan(str(corpus), "tr", True, tmp_path / "work")
    assert main(["prepare-commonvoice", "--language", "tr", "", str(tmp_path / "data")]) == 1
    assert "--corpus is needed: the folder of a release of Common Voice" in capsys.readouterr().err
