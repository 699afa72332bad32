"""What a machine has is found, and the command that follows from it is one that a recipe takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.nnet.arithmetic import DTYPES
from pykaldist.report import doctor
from pykaldist.report.doctor import GIB, Machine

LABELS = ["cores", "memory", "products", "GPUs", "MPI", "scheduler", "disk", "shared memory"]


def program(folder: Path, name: str, script: str) -> None:
    """A program that stands in for one of a scheduler's."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("machine", "expected"), [
    (Machine(8, 100.0, 0, False, "run.pl"), "./run.sh --nj 8 --ngpu 8"),
    (Machine(8, 3.5, 0, True, "run.pl"), "./run.sh --nj 3 --ngpu 8 --train-opts '--dtype bf16'"),
    (Machine(8, 0.2, 0, False, "run.pl"), "./run.sh --nj 1 --ngpu 8"),
    (Machine(16, 100.0, 4, True, "slurm.pl"), "./run.sh --nj 16 --ngpu 4 --cmd slurm.pl --train-opts '--dtype bf16'"),
])
def test_the_command(machine: Machine, expected: str) -> None:
    assert machine.command("./run.sh") == expected


def test_a_recipe_takes_its_options(root: Path) -> None:
    script = (root / "egs/prompts/s5/utils/shared/recipe.sh").read_text()
    known = set(re.findall(r"--([a-z-]+)", script))
    words = shlex.split(Machine(2, 9.0, 1, True, "slurm.pl").command("run.sh"))
    assert {word[2:] for word in words if word.startswith("--") and " " not in word} <= known and "bf16" in DTYPES


def test_the_group_of_a_process_bounds_what_it_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CGROUP", tmp_path)
    monkeypatch.setattr(doctor, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 64 kB\nMemAvailable:  8388608 kB\n")
    cores = len(os.sched_getaffinity(0))
    assert (doctor.usable_cores(), doctor.usable_memory()) == (cores, 8 * GIB)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (doctor.usable_cores(), doctor.usable_memory()) == (cores, 8 * GIB)
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    assert (doctor.usable_cores(), doctor.usable_memory()) == (1, 3 * GIB)


def test_a_scheduler_that_answers_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: str(tmp_path / name) if (tmp_path / name).is_file() else None)
    assert doctor.find_scheduler()[0] == "run.pl"
    program(tmp_path, "sbatch", "exit 0")
    program(tmp_path, "sinfo", "exit 1")
    cmd, told = doctor.find_scheduler()
    assert cmd == "run.pl" and "fails" in told
    program(tmp_path, "sinfo", "echo 'main 4 nodes 32 cores'")
    assert doctor.find_scheduler() == ("slurm.pl", "SLURM: main 4 nodes 32 cores")


def test_rates_are_those_of_products() -> None:
    seconds = doctor.repeated(lambda: subprocess.run(["sleep", "0.02"], check=True))
    assert 0.02 <= seconds < 0.2
    assert all(rate > 1e8 for rate in doctor.product_rates().values())


def test_a_disk_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "MB/s written" in doctor.disk(tmp_path).found and not list(tmp_path.iterdir())
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    assert "make room" in doctor.disk(tmp_path).means


def test_the_verb(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["doctor", str(root / "egs/an4/s5")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [next(label for label in LABELS if line.startswith(label)) for line in lines[:8]] == LABELS
    assert shlex.split(lines[-1])[0].endswith("egs/an4/s5/run.sh")
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["cores"] >= 1 and "egs/prompts/s5/run.sh --nj" in found["command"]
    with pytest.raises(UserError, match="name a recipe's folder"):
        doctor.recipe_of(tmp_path, tmp_path)
