"""Stands between mpiexec or srun and a process of a job that goes on when one of its processes dies.

    python -m pykaldist.parallel.launch.supervisor EXP command...

Both end all of a job when a process of theirs ends by a signal, or without a word to MPI; hydra's -disable-auto-cleanup does not help, it
kills them too (mpich 5.0). So their process is this one. When the command is killed, it stays, until process 0 says that all is done
(<exp>/.ranks/finished). Whatever else the command ends with, it passes on, and they end the rest; so it does with the death of process 0,
or of one that has not met the others yet. SIGTERM is for the command. SIGINT, by which gforker begins to end a job, is heeded by nobody: it
sends SIGQUIT after it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = ".ranks"  # in an experiment's folder
FINISHED = "finished"  # process 0's word that all is done, though processes may have died
DONE = 76  # exit status of a process that is done, and has not told MPI
LOOK_S = 0.3
PR_SET_PDEATHSIG = 1
RANKS = ("PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def die_with_parent() -> None:
    """This process is not to outlive the one that started it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Keep `argv[1:]`, of a job in experiment folder `argv[0]`; its exit status."""
    finished = Path(argv[0]) / FOLDER / FINISHED
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(argv[1:], close_fds=False, start_new_session=True, preexec_fn=die_with_parent)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status = child.wait()
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    if status == DONE or (status < 0 and rank != "0" and finished.with_name(rank).exists()):
        while not finished.exists():
            time.sleep(LOOK_S)
        return 0
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
