"""The process supervisor: a process between mpiexec or srun and one process of a job that goes on when one of its processes dies.

    python -m pykaldist.parallel.launch.supervisor EXP command...

mpiexec and srun end the whole job when one of their processes ends by a signal, or without telling MPI. hydra's -disable-auto-cleanup does
not help: it kills the others, too (mpich 5.0). So mpiexec or srun starts this supervisor, which starts the command. When the command is
killed, the supervisor stays until process 0 says that all is done (<exp>/.ranks/finished). Any other exit status is passed on, and then
mpiexec or srun ends the rest. The death of process 0 is passed on too, and so is that of a process that has not yet met the others. SIGTERM
is passed to the command. SIGINT, by which gforker begins to end a job, is ignored: gforker sends SIGQUIT after it.

In an elastic job the supervisor starts the command again, as a replacement, up to PYKALDIST_REPLACEMENTS times.
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
FINISHED = "finished"  # file by which process 0 says that all is done, though processes may have died
DONE = 76  # exit status of a process that is done, and has not called MPI's finalize
LOOK_S = 0.3
PR_SET_PDEATHSIG = 1
RANKS = ("PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK")
REPLACEMENTS = "PYKALDIST_REPLACEMENTS"  # variable of the environment: how often a process that was killed is started again
REPLACES = "PYKALDIST_REPLACES"  # that of a replacement: the rank of the process that it replaces


def die_with_parent() -> None:
    """Make the system kill this process when the process that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Run the command `argv[1:]` of a job in experiment folder `argv[0]`. Returns its exit status."""
    finished = Path(argv[0]) / FOLDER / FINISHED
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    rank, tries = next((os.environ[name] for name in RANKS if name in os.environ), "0"), int(os.environ.get(REPLACEMENTS, "0"))
    while True:
        child = subprocess.Popen(argv[1:], close_fds=False, start_new_session=True, preexec_fn=die_with_parent)
        status = child.wait()
        lost = rank != "0" and finished.with_name(rank).exists() and (status < 0 or REPLACES in os.environ)
        if not lost or status >= 0 or not tries or finished.exists():
            break
        tries -= 1
        os.environ[REPLACES] = rank
    if status == DONE or lost:
        while not finished.exists():
            time.sleep(LOOK_S)
        return 0
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
