"""The soak (tests/bench/soak.py): its fits, its verdict, and a short run of it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parent / "bench/soak.py"


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_slopes(soak: ModuleType) -> None:
    """Outliers change them little; steps between processes only the slope over all."""
    hours, noise = np.arange(0.0, 4.0, 0.01), np.random.default_rng(0).standard_normal(400)
    values = 100.0 + 2.5 * hours + 0.1 * noise
    values[::17] *= 3.0
    slope, low, high = soak.slopes(hours, values)
    assert abs(slope - 2.5) < 0.1 and low < 2.5 < high
    lives = np.floor(hours)
    assert abs(soak.slopes(hours, 7.0 * lives + 0.1 * noise, lives)[0]) < 0.1 and soak.slopes(hours, 7.0 * lives)[0] > 6.0
    assert soak.slopes(hours[:1], values[:1]) is None and soak.slopes(hours[:2], values[:2], np.array([1, 2])) is None


def write(out: Path, leak: float, hours: float, bad: bool = False) -> None:
    """Samples of two processes, whose memory grows by `leak` MB an hour, and what happened to them."""
    rows = [f"{hour:.4f},{1 + (hour > hours / 2)},{hour % (hours / 2) * 3600:.1f},{100 + leak * hour:.4f},8,1,0,20"
            for hour in np.arange(0.0, hours, 0.01)]
    (out / "samples.csv").write_text("hours,life,age,memory,files,threads,shm,disk\n" + "\n".join(rows) + "\n")
    ends = [{"hours": 0.5, "what": "ended", "fault": "SIGKILL to the command", "good": True},
            {"hours": 0.9, "what": "ended", "fault": "", "good": not bad, "model": "another" if bad else "as the first", "said": ["x"]}]
    events = [{"hours": 0.0, "what": "start", "command": "train"}, *ends, {"hours": 0.95, "what": "the disk is full"},
              {"hours": hours, "what": "end"}]
    (out / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def test_the_verdict(soak: ModuleType, tmp_path: Path) -> None:
    for leak, hours, bad, held, said in ((0.5, 2.0, False, True, "but for that of the experiment, are within 1 % an hour"),
                                         (1.5, 2.0, False, False, "The slopes are NOT all within 1 % an hour"),
                                         (1.5, 0.9, False, True, "Shorter than 1 hour: the slopes are not judged"),
                                         (0.5, 2.0, True, False, "Ends that were not as they should be: 1")):
        write(tmp_path, leak, hours, bad)
        text, good = soak.report(tmp_path, 60.0)
        assert good == held and said in text and "SIGKILL: 1, none: 1. Jobs finished: 1" in text and "Disk full: 1 times" in text
        slope = next(line for line in text.splitlines() if line.startswith("| memory")).split("|")[5].split()[0]
        assert float(slope) == pytest.approx(leak, rel=0.02)
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_short_soak(tmp_path: Path) -> None:
    """Jobs are killed, meet a full disk, go on, and end with one model; the soak itself is run in two parts."""
    user = ["--user", "--map-root-user"] * bool(os.geteuid())
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", *user, "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no namespaces")
    words = ["--out", tmp_path, "--workers", "8", "--epochs", "10", "--kill-minutes", "0.3", "--full-minutes", "0.7",
             "--checkpoint-minutes", "0.1", "--settle", "5", "--sample-seconds", "1"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[2])}
    for hours in ("0.05", "0.1"):
        done = subprocess.run([sys.executable, SCRIPT, "--hours", hours, *map(str, words)], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "hours in 2 parts, " in done.stdout
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    ends = [event for event in events if event["what"] == "ended"]
    assert len(ends) > 3 and all(event["good"] for event in ends) and any(event["fault"].startswith("SIG") for event in ends)
    assert "the disk is full" in [event["what"] for event in events] and (tmp_path / "soak.png").is_file()
