"""The study's script on Kaldi's AN4: it trains, decodes and scores, is ended and goes on, writes its page, and finds its cells again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pykaldist.study.results import Results

CLAIM = {"title": "More epochs are better", "source": "Nobody", "published": "Nothing", "corpora": ["an4", "speechocean762"],
         "options": "--hid-layers 1 --hid-dim 32 --splice 1 --schedule exponential --learn-rate {rate} --final-learn-rate {tenth}",
         "axes": [{"one": "--num-epochs 1", "four workers": "--num-epochs 1 --ngpu 4 --strategy ma"}], "first_rates": {"": 0.03},
         "contrasts": [{"name": "four workers less one", "weights": {"four workers": 1, "one": -1}, "expected": "more", "margin": 100}]}


@pytest.fixture
def study(root: Path, tmp_path: Path) -> Path:
    """A folder like egs/study with one small claim, in a folder like the project's."""
    (tmp_path / "egs" / "study" / "claims").mkdir(parents=True)
    for name in ("path.sh", "utils", "steps", "src", "pykaldist"):
        (tmp_path / name).symlink_to(root / name)
    for name in ("run.sh", "corpora.json"):
        shutil.copy(root / "egs" / "study" / name, tmp_path / "egs" / "study")
    (tmp_path / "egs" / "study" / "claims" / "epochs.json").write_text(json.dumps(CLAIM))
    return tmp_path / "egs" / "study"


@pytest.mark.slow
def test_a_study_from_nothing_to_its_page(study: Path, golden: Path) -> None:
    command = [str(study / "run.sh"), "--an4", str(golden / "an4_kaldi"), "--nj", "2"]
    first = subprocess.Popen(command, cwd=study.parent)
    while len(Results(study / "results")) < 2:
        assert first.poll() is None
        time.sleep(1)
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(60) != 0
    some = {result.trial for result in Results(study / "results")}
    subprocess.run(command, cwd=study.parent, check=True)
    found = Results(study / "results")
    assert some <= {result.trial for result in found}
    decoded = [result for result in found if result.wer is not None]
    assert len(decoded) == 6 and {result.seed for result in decoded} == {0, 1, 2}
    assert {(result.words, len(result.errors)) for result in decoded} == {(773, 130)} and all(5 < result.wer < 60 for result in decoded)
    assert all(result.history[-1]["cv_loss"] == result.cv_loss and result.config["options"]["seed"] == result.seed for result in decoded)
    page = (study / "RESULTS.md").read_text()
    assert "**an4**: complete." in page and "resolved" in page and "**speechocean762**: 16 trainings missing, at most." in page
    assert not list((study / "exp").glob("an4.*"))
    again = subprocess.run([*command[:3], "--evidence", "true"], cwd=study.parent, check=True, capture_output=True, text=True)
    assert again.stdout.count("| yes") == 2


def test_usage_and_what_is_missing(root: Path, tmp_path: Path) -> None:
    run = root / "egs" / "study" / "run.sh"
    said = subprocess.run([str(run)], capture_output=True, text=True, check=False)
    assert said.returncode == 1 and said.stderr.startswith("Usage: egs/study/run.sh")
    dry = subprocess.run([str(run), "--dry-run", "true", "--an4", str(tmp_path / "none")], capture_output=True, text=True, check=True)
    assert "| 01-natural-gradient |" in re.sub(" +", " ", dry.stdout) and "left out" in dry.stderr
    unknown = subprocess.run([str(run), "--dry-run", "true", "--claim", "none"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 1 and "there is no claim none; choose among 01-natural-gradient" in unknown.stderr
