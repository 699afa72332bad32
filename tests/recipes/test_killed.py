"""A whole recipe that is killed at many moments leaves no process, and afterwards goes through."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from killed import Script


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_killed_at_any_moment(make_recipe, shared, number):
    """In each of its stages; training is a job of two processes over MPI."""
    folder, run = make_recipe("yesno")
    corpus = str(shared / "data" / "yesno")
    rng = random.Random(int(number))
    for stage in range(8):
        recipe = Script(folder, folder / "run.sh", "--corpus", corpus, "--ngpu", "2", "--stage", str(stage), "--stop-stage", str(stage))
        time.sleep(rng.uniform(0.05, 4.0))
        if number == signal.SIGINT:
            os.killpg(recipe.process.pid, number)  # Ctrl-C
        else:
            recipe.process.send_signal(number)
        status, out = recipe.ended()  # which waits until all of its processes are gone
        assert status in (0, -number, 128 + number) and "Traceback" not in out, (stage, status, out)
        done = run("--corpus", corpus, "--ngpu", "2", "--stage", str(stage), "--stop-stage", str(stage))
        assert done.returncode == 0, (stage, done.stdout + done.stderr)
    assert (folder / "exp" / "dnn" / "decode" / "best_wer").is_file()
