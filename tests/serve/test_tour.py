"""The tour of a recipe: its stops in order, the utterance that is heard, trainings side by side, and recipes that have little to show."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.datadir import write_datadir
from pykaldist.serve import tour
from pykaldist.serve.tour import Tour

PER_UTT = """\
a ref one two three four five six seven eight nine
a hyp one two three four five six seven eight ten
a #csid 8 1 0 0
b ref *** one
b hyp two one
b #csid 1 0 1 0
c ref one
c hyp one
c #csid 1 0 0 0
d ref one two three four five six seven
d hyp one *** three four five six seven
d #csid 6 0 0 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A scored system, and its test set: of `d` the audio comes from a command."""
    folder = tmp_path / "my recipe"
    details = folder / "exp/dnn/decode/scoring_kaldi/wer_details"
    details.mkdir(parents=True)
    (details / "per_utt").write_text(PER_UTT)
    (folder / "exp/dnn/decode/best_wer").write_text("%WER 16.67 [ 3 / 18, 1 ins, 1 del, 1 sub ] exp/dnn/decode/wer_8_0.5\n")
    audio = {utt: str(folder / f"{utt}.wav") for utt in "abc"}
    for path in audio.values():
        soundfile.write(path, np.random.default_rng(0).normal(scale=0.1, size=8000), 8000)
    write_datadir(folder / "data/test", {**audio, "d": "sox d.wav -t wav - |"}, dict.fromkeys("abcd", "one"), {utt: utt for utt in "abcd"})
    return folder


@pytest.fixture
def said() -> list[str]:
    return []


def taken(recipe: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, player: str | None = None) -> Tour:
    """A tour whose commands are put down, not run, on a machine that has this player of audio."""
    monkeypatch.setenv("PATH", str(recipe) if player else "")
    if player:
        (recipe / player).write_text(f"#!/bin/sh\necho \"$@\" > '{recipe}/played'\n")
        os.chmod(recipe / player, 0o755)
    made = Tour(recipe, recipe / "tour", False, lambda: said.append("(pause)"), said.append)
    monkeypatch.setattr(made, "command", lambda words: said.append(f"$ pykaldist {shlex.join(words)}"))
    return made


def test_its_stops(recipe: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two utterances with one error the one with about eight words is heard, and none whose audio would be a command's."""
    (recipe / "tour").mkdir()
    taken(recipe, said, monkeypatch, "aplay").run()
    text = "\n".join(said)
    assert [line for line in said if line.startswith("\n[")] == [
        "\n[1/4] The page of all experiments", "\n[2/4] An utterance, and what was made of it",
        "\n[3/4] The same network by two strategies, side by side", "\n[4/4] A recording of your own"]
    assert said.count("(pause)") == 3 and "There is no frame store" in text
    assert f"$ pykaldist report '{recipe}/exp' --html '{recipe}/tour/report.html'" in said
    assert "  recognised one two three four five six seven eight ten" in said and "a, by dnn/decode." in said
    assert said[said.index("  recognised one two three four five six seven eight ten") + 1].split() == ["^"]
    assert (recipe / "played").read_text() == f"-q {recipe}/tour/utterance.wav\n"
    assert f"$ pykaldist transcribe --format vtt '{recipe}/exp/dnn' '{recipe}/tour/utterance.wav'" in said


def test_without_player_and_without_audio(recipe: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = taken(recipe, said, monkeypatch)
    made.listen(made._example())
    assert f"listen to {recipe}/tour/utterance.wav" in said[-1]
    made.listen(None)
    assert "No utterance with errors has audio in a plain file" in said[-1]


def test_recipes_that_were_not_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no exp; run its run\.sh first"):
        Tour(tmp_path, tmp_path / "tour", False, lambda: None, print)
    (tmp_path / "exp").mkdir()
    with pytest.raises(UserError, match="holds no scored system"):
        Tour(tmp_path, tmp_path / "tour", False, lambda: None, print)


@pytest.mark.slow
def test_two_strategies_train_side_by_side(recipe: Path, make_store, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(tour, "UNITS", 16)
    make_store([50] * 4, seed=2, name="dev")
    store = make_store([50] * 1000, name="train").path.parent  # a training that is seen while it runs
    (recipe / "exp/dnn/store").symlink_to(store)
    made = taken(recipe, said, monkeypatch)
    made.train()
    assert all((recipe / "tour" / name / "final.pt").is_file() for name in ("ma", "bmuf"))
    assert said[-1] == f"$ pykaldist compare '{recipe}/tour/ma' '{recipe}/tour/bmuf'"
    views = [text for text in said if f"{recipe}/tour/ma: " in text and f"{recipe}/tour/bmuf: " in text]
    assert all(any(f"{recipe}/tour/{name}: running" in view for view in views) for name in ("ma", "bmuf"))
    (recipe / "tour/ma/config.json").write_text("{")
    with pytest.raises(UserError, match=r"the training of .*ma failed; .*ma.log says why"):
        made.train()
