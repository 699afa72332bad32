"""utils/shared/gmm_jobs.sh: which command runs a GMM stage, and whether it has jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def call(root: Path, jobs: str, cmd: str, programs: Path) -> subprocess.CompletedProcess[str]:
    code = (f'PATH={programs}:/usr/bin:/bin; . {root}/utils/shared/gmm_jobs.sh; jobs=$1 cmd=$2 nj=6 options=(); gmm_jobs; '
            'echo "$stage_cmd|${options[*]}"')
    return subprocess.run(["bash", "-c", code, "steps/stage.sh", jobs, cmd], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("jobs", "cmd", "said"), [
    ("auto", "run.pl --mem 2G", "run.pl --mem 2G|"), ("auto", "slurm.pl --mem 2G", "run.pl|--jobs-cmd=slurm.pl --mem 2G"),
    ("auto", "utils/ssh.pl", "run.pl|--jobs-cmd=utils/ssh.pl"), ("auto", "queue.pl", "queue.pl --num-threads 6|"),
    ("array", "run.pl", "run.pl|--jobs-cmd=run.pl"), ("threads", "slurm.pl", "slurm.pl --num-threads 6|")])
def test_who_runs_what(root: Path, tmp_path: Path, jobs: str, cmd: str, said: str) -> None:
    assert call(root, jobs, cmd, tmp_path).stdout == f"{said}\n"


def test_queue_has_jobs_where_there_is_a_grid_engine(root: Path, tmp_path: Path) -> None:
    (tmp_path / "qsub").write_text("#!/bin/sh\n")
    (tmp_path / "qsub").chmod(0o755)
    assert call(root, "auto", "queue.pl", tmp_path).stdout == "run.pl|--jobs-cmd=queue.pl\n"


def test_another_kind_is_refused(root: Path, tmp_path: Path) -> None:
    done = call(root, "processes", "run.pl", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "stage.sh: ERROR: --jobs: expected threads, array or auto, found processes.\n"
