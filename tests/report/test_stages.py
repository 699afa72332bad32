"""The report adds up what the logs of stages say that they took."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.report.stages import render_stages, stages
from pykaldist.usage import usage_line


def write_log(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_jobs_of_a_stage_are_added_up(tmp_path: Path) -> None:
    line = "USAGE: decode: {} h of speech in {} s, {} s of CPU, {} MB of memory, 20 MB read, 3 MB written\n# Ended (code 0)\n"
    write_log(tmp_path / "tri1/decode/log/decode.1.log", "noise\n" * 20_000 + line.format("0.25", 30, 25, 300))
    write_log(tmp_path / "tri1/decode/log/decode.2.log", line.format("1.5e-05", 40, 35, 200))
    write_log(tmp_path / "make_mfcc/make_mfcc.1.log", line.format("0.5", "0.4", 3.5, 10).replace("decode", "make-feats"))
    write_log(tmp_path / "tri1/log/train.log", "iteration 3\n" + line.format("2", 100, 90, 500).replace("decode", "train-deltas"))
    write_log(tmp_path / "tri1/log/other.log", "USAGE: what a user wrote\n")
    features, training, decoding = stages(tmp_path)
    assert (features.name, features.wall, features.cpu) == ("make_mfcc: make-feats", 0.4, 3.5)
    assert (decoding.name, decoding.processes, decoding.wall, decoding.cpu, decoding.memory) == ("tri1/decode: decode", 2, 40, 60, 300)
    assert decoding.hours == pytest.approx(0.250015) and (decoding.read, decoding.written) == (40, 6)
    last = render_stages([decoding, training]).splitlines()[4].split("|")
    assert [cell.strip() for cell in last[1:-1]] == ["all", "3", "2.25", "140", "150", "500", "60", "9"]


def test_what_a_stage_says_is_found(tmp_path: Path) -> None:
    write_log(tmp_path / "mono/log/train.log", f"USAGE: train-mono: {usage_line(3600)}\n")
    found, = stages(tmp_path)
    assert found.hours == pytest.approx(0.01) and found.memory > 0


def test_nothing_is_said_of_no_stages(tmp_path: Path) -> None:
    assert render_stages(stages(tmp_path)) == ""
