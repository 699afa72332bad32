"""Starting the processes of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from pykaldist.parallel.job import JobOptions, inside


def num_processes(options: JobOptions) -> int:
    """Processes that a job has: one a device, or a CPU core, but no more than workers."""
    if options.fabric == "virtual":
        return 1
    devices = torch.cuda.device_count() if options.device != "cpu" and torch.cuda.is_available() else os.cpu_count() or 1
    return options.nproc or min(options.ngpu, devices)


def launched(options: JobOptions) -> int | None:
    """The exit status of the job of this command line, run by processes of its own; None where this process is to train by itself."""
    count = num_processes(options)
    if inside() is not None or count == 1:
        return None
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", str(count), sys.executable, "-m", "mpi4py", "-m", "pykaldist", *sys.argv[1:]]
    return subprocess.run(command, check=False).returncode
