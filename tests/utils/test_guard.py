"""However a script ends, what it has started ends with it: jobs, what these have started, and scripts that it has called.

A small recipe of the project's own scripts runs, and is killed. tests/recipes/test_killed.py does it with a whole one.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killed import Script

from pykaldist.jobs.guard import STARTED_BY

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPE = """#!/usr/bin/env bash
# A recipe.
corpus_options() { :; }
. "$(dirname "${BASH_SOURCE[0]}")/utils/shared/recipe.sh" || exit 1
if want 0 "a job"; then
  $cmd JOB=1:2 exp/log/jobs.JOB.log bash -c "$WORK"
fi
if want 1 "a step"; then
  ./step.sh --nj 2 data
fi
if want 2 "a command of its own"; then
  bash -c "$WORK"
fi
"""
STEP = """#!/usr/bin/env bash
# A step.
nj=4
[ -f path.sh ] && . ./path.sh
. parse_options.sh || exit 1
run.pl JOB=1:$nj exp/log/first.JOB.log bash -c "$WORK" || exit 1
run.pl exp/log/second.log touch gone-on
"""
#: Processes of each kind: a child, one in a session of its own, and one that nobody waits for.
PLAIN = "setsid sleep 1001 & (sleep 1002 &); echo x >> begun; sleep 1003"
#: Cleans up after SIGTERM, as a training writes its checkpoint.
CLEANS = "trap 'sleep 0.3; echo x >> cleaned; exit 1' TERM; sleep 1001 & echo x >> begun; wait"
DEAF = "trap '' TERM HUP INT; echo x >> begun; while :; do sleep 1; done"
JOBS = {"0": 2, "1": 2, "2": 1}  # of the stages


class Recipe(Script):
    """A recipe whose stages do `work`."""

    def __init__(self, folder: Path, work: str, *words: str) -> None:
        super().__init__(folder, "bash", *words, WORK=work)

    def wait_for(self, count: int) -> None:
        """Until so many jobs have begun."""
        begun = self.folder / "begun"
        self.until(lambda: begun.exists() and len(begun.read_text().split()) >= count)


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Recipe]]:
    """`start(work, *words)`: a recipe's run.sh with these arguments, or another script."""
    started: list[Recipe] = []
    for name in ("path.sh", "utils", "steps"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "cmd.sh").write_text("cmd=run.pl\n")
    (tmp_path / "run.sh").write_text(RECIPE)
    (tmp_path / "step.sh").write_text(STEP)
    (tmp_path / "step.sh").chmod(0o755)

    def make(work: str, *words: str) -> Recipe:
        started.append(Recipe(tmp_path, work, *words))
        return started[-1]

    yield make
    for one in started:
        for pid in one.pids():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("stage", "number", "work"), [
    ("0", signal.SIGKILL, CLEANS), ("1", signal.SIGKILL, PLAIN), ("1", signal.SIGTERM, CLEANS), ("2", signal.SIGHUP, PLAIN)])
def test_a_killed_recipe_leaves_nothing(start, tmp_path, stage, number, work):
    """By a signal to it alone: its jobs, what they have started, and the step that it waits for."""
    recipe = start(work, "run.sh", "--stage", stage)
    recipe.wait_for(JOBS[stage])
    assert len(recipe.pids()) > 3
    recipe.process.send_signal(number)
    assert recipe.ended()[0] == -number
    assert not (tmp_path / "gone-on").exists()
    if work == CLEANS:
        assert len((tmp_path / "cleaned").read_text().split()) == JOBS[stage]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_whole_process_group_leaves_nothing(start, number):
    """As from a terminal that is closed; and what neither handles nor gets it."""
    recipe = start(PLAIN, "run.sh", "--stage", "1")
    recipe.wait_for(2)
    os.killpg(recipe.process.pid, number)
    assert recipe.ended()[0] == -number


@pytest.mark.parametrize("stage", "012")
def test_ctrl_c_ends_a_recipe_with_one_line(start, tmp_path, stage):
    recipe = start(CLEANS if stage != "2" else "echo x >> begun; sleep 1003", "run.sh", "--stage", stage)
    recipe.wait_for(JOBS[stage])
    os.killpg(recipe.process.pid, signal.SIGINT)
    status, out = recipe.ended()
    said = [line for line in out.splitlines() if not line.startswith(("==", "compiling kernels")) and "A recipe" not in line]
    assert (status, said) == (130, ["run.sh: interrupted."]) and not (tmp_path / "gone-on").exists()
    assert stage == "2" or len((tmp_path / "cleaned").read_text().split()) == 2  # the jobs get it as SIGTERM


def test_a_step_is_ended_with_the_script_that_calls_it(start):
    """Where that is no script of ours; and a killed run.pl takes its jobs along, though what has called it goes on."""
    step = start(CLEANS, "-c", "./step.sh --nj 1 data; sleep 1004")
    step.wait_for(1)
    step.process.kill()
    assert step.ended()[0] == -signal.SIGKILL
    jobs = start(PLAIN, "-c", '. ./path.sh; run.pl x.log bash -c "$WORK"; echo $?')
    jobs.wait_for(2)
    for pid in jobs.pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"run.pl" in words and os.getsid(pid) == jobs.process.pid:  # not its guard
            os.kill(pid, signal.SIGKILL)
    status, out = jobs.ended()
    assert status == 0 and out.endswith("137\n")


def test_a_background_script_goes_on(start, tmp_path):
    """After the script that has started it; as with nohup."""
    recipe = start("echo x >> begun; sleep 2; touch done", "-c", "./step.sh --nj 1 data > /dev/null 2>&1 &")
    recipe.wait_for(1)
    assert recipe.ended()[0] == 0 and (tmp_path / "done").exists() and (tmp_path / "gone-on").exists()


@pytest.mark.slow
def test_what_is_deaf_is_killed(start):
    """After the time in which others clean up."""
    recipe = start(DEAF, "run.sh", "--stage", "1")
    recipe.wait_for(2)
    recipe.process.kill()
    assert recipe.ended()[0] == -signal.SIGKILL


def test_a_job_knows_who_has_started_it(start, tmp_path):
    """The scripts above it, the outermost first; and their `wait` does not wait for a guard."""
    script = '. ./path.sh; set -- x; nj=1; . parse_options.sh; run.pl x.log bash -c "$WORK"; wait'
    recipe = start(f"echo ${STARTED_BY} > marks", "-c", script)
    assert recipe.ended()[0] == 0
    marks = (tmp_path / "marks").read_text().strip().split(":")
    assert len(marks) == 2 and marks[0].startswith(f"{recipe.process.pid}-") and re.fullmatch(r"\d+-\d+", marks[1])
