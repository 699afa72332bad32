"""Copies of utterances whose lengths are among a few: names, speeds, lengths in frames of features."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.allowed_lengths import LengthOptions, allowed_lengths, copies, perturb_to_allowed_lengths
from pykaldist.io.audio import read_utterances
from pykaldist.io.datadir import DataDir, write_datadir

RATE, WINDOW, SHIFT = 8000, 200, 80
SECONDS = [1.0, 1.07, 1.3, 1.52, 1.9, 2.4, 2.5]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    rng = np.random.default_rng(0)
    for number, seconds in enumerate(SECONDS):
        soundfile.write(tmp_path / f"u{number}.wav", 0.1 * rng.standard_normal(round(RATE * seconds)), RATE)
    names = [f"u{number}" for number in range(len(SECONDS))]
    return write_datadir(tmp_path / "data", {name: str(tmp_path / f"{name}.wav") for name in names}, dict.fromkeys(names, "A B"),
                         {name: "s" for name in names})


def frames(made: DataDir) -> dict[str, int]:
    return {utt: 1 + (len(audio) - WINDOW) // SHIFT for utt, audio in read_utterances(made, [*made.utt2spk], RATE)}


def test_copies_have_allowed_lengths_or_are_made_longer(data: DataDir, tmp_path: Path) -> None:
    made = perturb_to_allowed_lengths(data.path, tmp_path / "new", LengthOptions(1.12))
    lengths = [int(line) for line in (tmp_path / "new/allowed_lengths.txt").read_text().split()]
    durations = [float(line) for line in (tmp_path / "new/allowed_durs.txt").read_text().split()]
    assert len(durations) == len(lengths) and all(length % 3 == 0 for length in lengths[1:])
    assert all(1.05 < b / a < 1.15 for a, b in itertools.pairwise(lengths))
    found = frames(made)
    for utt, count in found.items():
        if utt.startswith("pv3-"):
            assert count == 1 + (round(RATE * SECONDS[int(utt[-1])]) - WINDOW) // SHIFT and count <= lengths[-1]
        else:
            assert count in lengths, utt
    for number, seconds in enumerate(SECONDS):
        marks = {mark for mark in ("pv1-", "pv2-", "pv3-") if f"{mark}u{number}" in found}
        between = durations[0] < seconds < durations[-1]
        assert not between or marks == {"pv1-", "pv2-"} | ({"pv3-"} if min(abs(seconds - one) for one in durations) > 1e-3 else set())
        if between:
            assert found[f"pv1-u{number}"] <= 1 + (round(RATE * seconds) - WINDOW) // SHIFT <= found[f"pv2-u{number}"] + 1
    assert made.utt2spk["pv1-u3"] == "pv1-s" and made.original("pv2-u3") == "u3" and made.text["pv1-u3"] == ["A", "B"]


def test_without_speeds_there_is_one_copy(data: DataDir, tmp_path: Path) -> None:
    script = ROOT / "utils/data/perturb_speed_to_allowed_lengths.py"
    words = [script, "--speed-perturb", "false", "12", data.path, tmp_path / "new"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = DataDir(tmp_path / "new")
    assert {utt[:4] for utt in made.utt2spk} == {"pv3-"} and not made.has("reco2speed")
    assert "utterances of" in done.stdout


@given(st.lists(st.floats(0.4, 20), min_size=2, max_size=30), st.floats(1.03, 1.5))
def test_speeds_are_within_the_spacing(seconds: list[float], spacing: float) -> None:
    try:
        lengths = allowed_lengths(seconds, LengthOptions(spacing))
    except UserError:
        assert max(seconds) < 1.2 * max(min(seconds), 0.3) or sum(seconds) > 100 * max(seconds)
        return
    assert list(lengths) == sorted(lengths)
    for duration in seconds:
        for mark, speed in copies(duration, [*lengths.values()], spacing, True):
            assert 0.999 / spacing <= speed <= 1.001 * spacing
            if mark != "pv3-":
                length = min(lengths, key=lambda one, wanted=duration / speed: abs(lengths[one] - wanted))
                assert lengths[length] == pytest.approx(duration / speed)


def test_what_cannot_be_copied_is_named(data: DataDir, tmp_path: Path) -> None:
    for spacing, target, message in ((1.0, "new", "0 % apart"), (1.12, "data", "cannot replace")):
        with pytest.raises(UserError, match=message):
            perturb_to_allowed_lengths(data.path, tmp_path / target, LengthOptions(spacing))
    (data.path / "segments").write_text("".join(f"{utt} {utt} 0 0.5\n" for utt in data.utt2spk))
    with pytest.raises(UserError, match="has segments"):
        perturb_to_allowed_lengths(data.path, tmp_path / "new", LengthOptions(1.12))
