"""The runner: ended at any moment it goes on, failures are tried again and named, several trainings run at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from study_claims import a_claim, a_result

from pykaldist.errors import UserError
from pykaldist.study import runner
from pykaldist.study.order import in_order
from pykaldist.study.results import TUNING_SEED, Result, Results, Trial
from pykaldist.study.runner import carry_out, folder_of, run_missing
from pykaldist.study.verbs import VerbError, run_verbs

HERE = {"toy": None}


class Work:
    """A training that takes no time, and what was asked of it."""

    def __init__(self) -> None:
        self.done: list[Trial] = []
        self.lock = threading.Lock()

    def __call__(self, trial: Trial, corpus: object, exp: Path) -> Result:
        with self.lock:
            self.done.append(trial)
        return a_result(trial)


def missing(results: Results) -> list[Trial]:
    return list(in_order([a_claim("one")], HERE, results))


@pytest.mark.parametrize("nj", [1, 3])
def test_everything_is_done_once(tmp_path: Path, nj: int) -> None:
    work, results, seen = Work(), Results(tmp_path), []
    assert run_missing([a_claim("one")], HERE, results, tmp_path, nj, 1e9, work, lambda: seen.append(len(results))) == {}
    assert len(work.done) == len(set(work.done)) == len(results) and not missing(results)
    assert seen == list(range(1, len(results) + 1))


@pytest.mark.parametrize("last", [0, 1, 7, 20])
def test_a_study_that_was_ended_goes_on_where_it_was(tmp_path: Path, last: int) -> None:
    class Ended(Work):
        def __call__(self, trial: Trial, corpus: object, exp: Path) -> Result:
            if len(self.done) == last:
                raise KeyboardInterrupt
            return super().__call__(trial, corpus, exp)

    first, second, results = Ended(), Work(), Results(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_missing([a_claim("one")], HERE, results, tmp_path, 1, 1e9, first)
    again = Results(tmp_path)
    assert len(again) == last
    run_missing([a_claim("one")], HERE, again, tmp_path, 1, 1e9, second)
    assert not set(first.done) & set(second.done) and not missing(again)


def test_a_training_that_fails_is_tried_once_more_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(Work):
        def __call__(self, trial: Trial, corpus: object, exp: Path) -> Result:
            result = super().__call__(trial, corpus, exp)
            always, once = trial.seed == 1 and "ngsgd" in trial.options, trial.seed == 2 and "ngsgd" not in trial.options
            if always or (once and self.done.count(trial) == 1):
                raise UserError("no room on the disk")
            return result

    work, results = Failing(), Results(tmp_path)
    failed = run_missing([a_claim("one")], HERE, results, tmp_path, 1, 1e9, work)
    assert {trial.seed for trial in failed} == {1} and set(failed.values()) == {"no room on the disk"}
    assert {work.done.count(trial) for trial in failed} == {2} and "no room on the disk" in capsys.readouterr().err
    assert {trial.seed for trial in missing(results)} == {1}
    assert run_missing([a_claim("one")], HERE, results, tmp_path, 2, 1e9, Work()) == {}


def test_a_fault_that_is_not_the_trainings_own_ends_the_study(tmp_path: Path) -> None:
    class Broken(Work):
        def __call__(self, trial: Trial, corpus: object, exp: Path) -> Result:
            super().__call__(trial, corpus, exp)
            raise UserError("no module named torch")

    work = Broken()
    assert len(run_missing([a_claim("one")], HERE, Results(tmp_path), tmp_path, 1, 1e9, work)) == len(work.done) == 4


def test_no_training_begins_after_the_time_is_over(tmp_path: Path) -> None:
    assert run_missing([a_claim("one")], HERE, Results(tmp_path), tmp_path, 1, 0.0, Work()) == {} and not Results(tmp_path)


@pytest.mark.parametrize("rate", ["0.005", "100"])
def test_a_rate_is_tried_by_a_training(make_store, tmp_path: Path, rate: str) -> None:
    make_store([30, 40], seed=1, name="dev")
    corpus = SimpleNamespace(spec=SimpleNamespace(chain=""), store=make_store([60, 80, 50]).path.parent)
    trial = Trial("toy", f"--hid-dim 4 --hid-layers 1 --learn-rates {rate},{rate} --schedule fixed --splice 0", TUNING_SEED)
    result = carry_out(trial, corpus, tmp_path)  # type: ignore[arg-type]  # no more of a corpus is needed
    assert result.trial == trial and result.wer is None
    assert result.diverged if rate == "100" else 0 < result.loss < 10 and result.cpu_seconds > 0
    assert not folder_of(trial, tmp_path).exists() and list((tmp_path / "log").iterdir())


def test_the_cpu_time_of_a_training_is_that_of_all_its_calls(monkeypatch: pytest.MonkeyPatch, make_store, tmp_path: Path) -> None:
    make_store([30, 40], seed=1, name="dev")
    corpus = SimpleNamespace(spec=SimpleNamespace(chain=""), store=make_store([60, 80, 50]).path.parent)
    trial = Trial("toy", "--hid-dim 4 --hid-layers 1 --learn-rates 0.005,0.005 --schedule fixed --splice 0", TUNING_SEED)
    calls = iter([VerbError("train ended with status 143", 1000.0), VerbError("train ended with status 143", 30.0), None])
    run = runner.run_verbs

    def ended_twice(log: Path, *commands: Sequence[object]) -> float:
        log.parent.mkdir(exist_ok=True)
        log.write_text("ended")
        if error := next(calls):
            raise error
        return run(log, *commands)

    monkeypatch.setattr(runner, "run_verbs", ended_twice)
    for _ in range(2):
        with pytest.raises(VerbError):
            carry_out(trial, corpus, tmp_path)  # type: ignore[arg-type]  # no more of a corpus is needed
    result = carry_out(trial, corpus, tmp_path)  # type: ignore[arg-type]  # no more of a corpus is needed
    assert 1030 < result.cpu_seconds < 1530
    assert [path.suffix for path in (tmp_path / "log").iterdir()] == [".log"]


def test_a_verb_that_fails_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(VerbError, match=r"ls ended with status 1; see .*ls.log"):
        run_verbs(tmp_path / "ls.log", ["ls", str(tmp_path / "missing")])
    assert "missing" in (tmp_path / "ls.log").read_text()


ENDLESS = """
import signal, sys, time
from collections.abc import Sequence
from pathlib import Path
from study_claims import a_claim
from pykaldist.study import runner, verbs
from pykaldist.study.results import Results

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a suite in the background ignores
verbs.PROGRAM = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
work = lambda trial, corpus, exp: verbs.run_verbs(exp / "log", ["train"])
runner.run_missing([a_claim("one")], {"toy": None}, Results(Path("results")), Path("exp"), 1, 1e9, work)
"""


def test_what_a_study_runs_ends_with_it(tmp_path: Path, root: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"}
    study = subprocess.Popen([sys.executable, "-c", ENDLESS], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    while not (pid.is_file() and pid.read_text()):
        assert study.poll() is None
        time.sleep(0.05)
    study.send_signal(signal.SIGINT)
    assert study.wait(60) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
