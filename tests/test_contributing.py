"""CONTRIBUTING.md: each of its examples is a file that is all that its kind needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = re.compile(r"^`(pykaldist/\S+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
USES = {"soft": ["--strategy", "soft", "--part", "0.3", "--average-period", "3", "--ngpu", "2", "--fabric", "virtual"],
        "signsgd": ["--optimizer", "signsgd", "--momentum", "0.5"], "cosine": ["--schedule", "cosine"],
        "absolute_error": ["--objective", "mae"]}
COMMON = ["--hid-layers", "1", "--hid-dim", "8", "--activation", "tanh", "--minibatch-size", "8", "--num-epochs", "2",
          "--learn-rate", "0.001", "--device", "cpu", "--num-threads", "1"]


@pytest.fixture
def copied(root, tmp_path) -> dict[str, str]:
    """The environment of a copy of the library with the examples in it."""
    shutil.copytree(root / "pykaldist", tmp_path / "library" / "pykaldist", ignore=shutil.ignore_patterns("__pycache__"))
    examples = EXAMPLE.findall((root / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert {Path(name).stem for name, _ in examples} == set(USES)
    for name, text in examples:
        assert not (root / name).exists()
        (tmp_path / "library" / name).write_text(text, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "library"), "OMP_NUM_THREADS": "1"}


def test_every_example_trains_as_it_stands(copied, make_store, tmp_path):
    make_store([50, 60, 70], name="train", extras=("target_feats",))
    store = make_store([40], name="dev", extras=("target_feats",)).path.parent
    program = "import sys\nfrom pykaldist.cli import main\nfor words in {}:\n    assert main(words) == 0, words"
    schedule = ["--schedule", "exponential"]
    runs = [["train", *COMMON, *(schedule if name != "cosine" else []), *words, str(store), str(tmp_path / name)]
            for name, words in USES.items()]
    plan = [["plan", "--cluster", "k20-infiniband", "--ngpu", "4", "--strategy", "soft,ma"],
            ["simulate", "--strategies", "soft --part 0.3", "--ngpus", "4", "--clusters", "k20-infiniband"]]
    done = subprocess.run([sys.executable, "-c", program.format([*runs, *plan])], env=copied, cwd=tmp_path, capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 2:") == len(USES)
    assert "soft, part 0.3" in done.stdout.replace("average period 3, ", "") and "averaging period  3 minibatches" in done.stdout
    assert all((tmp_path / name / "final.pt").exists() for name in USES)
    assert re.search(r"4 +soft +10 ", done.stdout) and "| soft --part 0.3 |" in re.sub(" +", " ", done.stdout)


def test_the_general_suite_takes_the_example_up(copied, root, tmp_path):
    shutil.copytree(root / "tests", tmp_path / "library" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(root / name, tmp_path / "library")
    suite = "tests/parallel/strategies/test_every_strategy.py"
    command = [sys.executable, "-m", "pytest", "-q", suite, "-k", "soft", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=copied, cwd=tmp_path / "library", capture_output=True, text=True, timeout=240)
    assert "1 failed" in done.stdout and "no page has a table's row" in done.stdout, done.stdout[-2000:]  # which it owes
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 9
