"""Exact resume: stopped at checkpoints and run again, a run ends with the same bits and history, whatever it is made of (`resuming.py`).

The matrix has every valid combination of strategy, fabric, network, objective and optimiser. CI tries a sample that has each of them in
one process, `--all` tries all. (That a job over MPI resumes exactly, `test_failures.py` shows CI.)
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import resuming
from jobs import environment
from resuming import REAL, RESULTS, attempt, matrix, sample

from pykaldist.frames.store import FrameStore
from pykaldist.nnet.kinds import KINDS
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.parallel.strategies.base.registry import strategies

ALL = matrix()
ALONE = [case for case in ALL if case.fabric not in REAL]
SAMPLE = sample(ALONE, 21)


@pytest.fixture
def stores(make_store, make_denlats, tmp_path) -> Path:
    """A store with target features, and one with labels; lattices of the first."""
    folder = tmp_path / "stores"
    for name, extra in (("frames", "target_feats"), ("labels", "labels")):
        make_store([20, 35, 50, 44, 60, 31, 25, 40], seed=1, name="train", extras=(extra,))
        made = make_store([30, 40], seed=2, name="dev", extras=(extra,), utt="dev").path.parent  # lattices are found by utterance
        folder.mkdir(exist_ok=True)
        made.rename(folder / name)
    make_denlats(folder / "denlats", *(FrameStore(folder / "frames" / name) for name in ("train", "dev")))
    (folder / "labels" / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    return folder


def test_the_matrix_and_its_sample_have_everything():
    for cases in (ALL, SAMPLE):
        for field, values in (("nnet", KINDS), ("objective", OBJECTIVES), ("optimizer", FRAME_OPTIMIZERS), ("strategy", strategies())):
            assert {getattr(case, field) for case in cases} >= set(values)
    assert {case.fabric for case in ALL} == {"virtual", "simulated", "elastic", *REAL} and len(set(ALL)) == len(ALL)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=() if case in SAMPLE else pytest.mark.slow) for case in ALONE])
def test_in_one_process(stores, tmp_path, case):
    assert attempt(case, tmp_path / "exp", stores) == ""


def test_a_run_that_differs_is_found(stores, tmp_path, monkeypatch):
    """Of a matrix that cannot fail nothing would be learnt: here a checkpoint forgets the momentum."""
    case = next(case for case in ALONE if (case.strategy, case.fabric, case.optimizer) == ("ma", "virtual", "sgd"))
    load = resuming.container.load

    def forgetful(path):
        state = load(path)
        if "worker" in state:
            state["worker"]["optimizer"]["velocity"].zero_()
        return state

    monkeypatch.setattr("pykaldist.train.checkpoints.container.load", forgetful)
    assert "it is another run" in attempt(case, tmp_path / "exp", stores)


def over_processes(cases, folder: Path, stores: Path) -> dict[str, str]:
    """What was wrong with each of some cases, over two processes of one fabric."""
    folder.mkdir()
    (folder / "cases.json").write_text(json.dumps([dataclasses.astuple(case) for case in cases]))
    words = [str(Path(resuming.__file__)), str(folder / "cases.json"), str(folder), str(stores)]
    if cases[0].fabric == "mpi":
        mpiexec = Path(sys.executable).with_name("mpiexec")
        if not mpiexec.exists():
            pytest.skip(f"no {mpiexec}: a Python of the user's own, without the mpich of requirements.txt")
        commands = [([str(mpiexec), "-n", "2", sys.executable, "-m", "mpi4py", *words], environment())]
    else:
        meeting = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
        commands = [([sys.executable, *words], environment(**meeting, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(2)]
    running = [subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for words, env in commands]
    try:
        said = [process.communicate(timeout=3600)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(said)[-3000:]
    return json.loads((folder / RESULTS).read_text())


GROUPS = {(case.fabric, case.strategy) for case in ALL if case.fabric in REAL}


@pytest.mark.slow
@pytest.mark.parametrize(("fabric", "strategy"), sorted(GROUPS))
def test_over_processes(stores, tmp_path, fabric, strategy):
    cases = [case for case in ALL if (case.fabric, case.strategy) == (fabric, strategy)]
    wrong = over_processes(cases, tmp_path / "job", stores)
    assert len(wrong) == len(cases) and not any(wrong.values()), wrong
