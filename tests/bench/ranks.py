"""A benchmark of several MPI ranks: its own command is run again by mpiexec, once a rank."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def on_ranks(ranks: int, measure: Callable[[Path], None]) -> None:
    """Run `measure` in each of `ranks` processes of this very command, with a folder that they share; ends with their exit status."""
    if "PMI_RANK" in os.environ:
        measure(Path(os.environ["BENCH_FOLDER"]))
        return
    mpiexec = Path(sys.executable).with_name("mpiexec")
    with tempfile.TemporaryDirectory() as folder:
        command = [str(mpiexec), "-n", str(ranks), sys.executable, "-m", "mpi4py", *sys.argv]
        status = subprocess.call(command, env={**os.environ, "BENCH_FOLDER": folder})
    sys.exit(status)
