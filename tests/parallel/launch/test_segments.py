"""MPICH's shared memory does not outlive a job, and leftovers of killed ones are removed by the next."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pykaldist.parallel.launch import segments

RANK = """
import os, signal, sys
from pathlib import Path
from pykaldist.parallel.launch.job import open_processes
names = lambda: {path for path in Path("/dev/shm").glob("mpich_*") if path.stat().st_ino in inodes}
from mpi4py import MPI
from pykaldist.parallel.launch import segments
inodes = {inode for _, inode in segments._mapped(os.getpid())}
MPI.COMM_WORLD.Barrier()
before = names()
processes, _ = open_processes("cpu", "mpi")
processes.barrier()
if processes.rank == 0:
    print(len(inodes), len(before), len(names()), processes.control([1.0])[0], flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
else:
    processes.control([1.0])
processes.barrier()
"""


@pytest.mark.parametrize("end", ["killed", "whole"])
def test_a_job_leaves_no_segment(root, end):
    """Its segments have no name while it works, so that even SIGKILL leaves none; MPI goes on as before."""
    mpiexec = Path(sys.executable).with_name("mpiexec.gforker")
    if not mpiexec.exists():
        pytest.skip(f"no {mpiexec}: a Python of the user's own, without the mpich of requirements.txt")
    done = subprocess.run([mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-c", RANK, end], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})
    assert end == "killed" or done.returncode == 0, done.stderr
    mapped, before, after, total = map(float, done.stdout.split())
    assert mapped == before >= 1 and after == 0 and total == 2


def test_only_what_nobody_has_is_removed(tmp_path):
    """Not what a process has mapped, what is young, or what is not MPICH's."""
    old = time.time() - 2 * segments.MEETING_S
    for name in ("mpich_shm_1a2b_0", "mpich_vci_1a2b_0", "mpich_shm_77_0", "mpich_shm_78_0", "psm_1234", "mpich_shm_x"):
        (tmp_path / name).write_bytes(bytes(4096))
        if name != "mpich_shm_78_0":
            os.utime(tmp_path / name, (old, old))
    with open(tmp_path / "mpich_shm_77_0", "r+b") as stream, mmap.mmap(stream.fileno(), 0):
        segments.clear(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mpich_shm_77_0", "mpich_shm_78_0", "psm_1234", "mpich_shm_x"}
    segments.clear(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mpich_shm_78_0", "psm_1234", "mpich_shm_x"}
