"""What an nnet3 experiment came to, in a line and in pictures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.report.network_info import described, draw


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    exp = tmp_path / "exp/tdnn"
    exp.mkdir(parents=True)
    rest = {"updates": 1, "frames": 9, "learn_rate": 0.1, "accepted": True, "time": "measured", "disagreement": 0.0,
            "seconds": {"compute": 1.0, "exchange": 0.0, "wait": 0.0, "load": 0.0, "total": 1.0}}
    lines = [{"epoch": n, "train_loss": 1.0 / n, "train_xent": 2.0 / n, "cv_loss": 1.5 / n, "cv_xent": 3.0 / n, **rest}
             for n in range(1, 7)]
    (exp / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"format": 1, "options": {"initial_workers": 2}, "ngpu": 8, "inputs": {}, "device": "cpu", "versions": {}, "checkpoints": {},
              "store": "store", "host": "here", "commit": None, "started": "now"}
    (exp / "config.json").write_text(json.dumps(config))
    return exp


def test_an_experiment_in_a_line(exp: Path, root: Path) -> None:
    line = described(exp)
    assert line == f"{exp}: num-epochs=6 nj=2..8 logprob:train/valid[4,final]=(-0.250,-0.167/-0.375,-0.250) " \
        "xent:train/valid[4,final]=(-0.500,-0.333/-0.750,-0.500)"
    run = subprocess.run(["bash", "-c", f". {root}/path.sh; {root}/steps/info/chain_dir_info.pl {exp}"], capture_output=True, text=True,
                         check=False)
    assert run.stdout == f"{line}\n", run.stderr


def test_pictures_and_what_is_no_experiment(exp: Path, tmp_path: Path) -> None:
    made = draw([exp], tmp_path / "report")
    assert [path.name for path in made] == ["loss.png", "xent.png"] and all(path.stat().st_size > 1000 for path in made)
    with pytest.raises(UserError, match=r"has no history.jsonl"):
        described(tmp_path)
