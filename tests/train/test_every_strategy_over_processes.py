"""Every strategy over real processes, as a user runs it: virtual workers give the same, and a dead process ends the job or not."""

from __future__ import annotations

import os
import signal
import typing
from pathlib import Path

import pytest
import torch
from jobs import EPOCHS, OPTIONS, Run

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.parallel.planning.plan import has_period
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_options

WAYS = {name: [name] for name in strategies()}  # and, of those that can go in step or not, the other way
WAYS |= {f"{name}, asynchronous": [name, "--asynchronous", "true"] for name in strategies()
         if typing.get_type_hints(strategy_options(name)).get("asynchronous") is bool}

pytestmark = pytest.mark.slow


def made(way: list[str]):
    options = strategy_options(way[0])
    return make_strategy(way[0], options(asynchronous=True) if len(way) > 1 else options())


def words(way: list[str], workers: int = 2, processes: int = 2) -> list[str]:
    period = ["--average-period", "5"] if has_period(way[0]) else []
    return ["--strategy", *way, *period, "--ngpu", str(workers), "--nproc", str(processes), "--lr-scale", "none"]


@pytest.fixture
def store(make_store) -> Path:
    make_store([50] * 40, seed=1, name="train")
    return make_store([50] * 4, seed=2, name="dev").path.parent


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fabric", ["mpi", "gloo"])
def test_four_workers_on_two_processes(store, tmp_path, way, fabric):
    """To the end; in step, the model is that of virtual workers, to the bit."""
    strategy, job = made(WAYS[way]), [*words(WAYS[way], 4), "--fabric", fabric]
    fixed = [] if strategy.asynchronous else ["--deterministic", "true"]
    run = Run(store, tmp_path / "real", *fixed, job=job)
    status, out, err = run.end()
    assert (status, err) == (0, "") and out.count("\nepoch ") == EPOCHS
    if not strategy.asynchronous:
        virtual = [*OPTIONS, *words(WAYS[way], 4, 1), "--fabric", "virtual", *fixed]
        assert main(["train", *virtual, str(store), str(tmp_path / "virtual")]) == 0
        one, other = (container.load(tmp_path / name / "final.pt")["params"] for name in ("real", "virtual"))
        assert torch.equal(one, other)


@pytest.mark.parametrize("way", WAYS)
def test_a_process_dies(store, tmp_path, way):
    """Where the strategy fault_tolerant that the others finish; else the job ends, and goes on when it is run again."""
    run = Run(store, tmp_path / "exp", job=words(WAYS[way]))
    os.kill(run.wait_for(2)[1], signal.SIGKILL)
    status, _, err = run.end()
    if made(WAYS[way]).fault_tolerant:
        assert (status, err) == (0, "")
    else:
        assert status == 75 and "run the same command again to go on" in err
        status, out, err = Run(store, tmp_path / "exp", job=words(WAYS[way])).end()
        assert status == 0 and "resuming at epoch" in out
    history = (tmp_path / "exp" / "history.jsonl").read_text().splitlines()
    assert len(history) == EPOCHS and (tmp_path / "exp" / "final.pt").exists()
