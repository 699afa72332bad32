"""Running of a training verb as a job of several processes: it starts them, or is one of them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

from pykaldist.errors import NotMetError, ProcessLostError, Terminated, UserError, os_error_sentence, out_of_memory_sentence
from pykaldist.parallel.launch.commands import needs_launcher
from pykaldist.parallel.launch.job import Job, JobOptions, started_by
from pykaldist.parallel.launch.launcher import GO_ON, LOST, Launcher, join_launched, process_name
from pykaldist.parallel.launch.supervisor import DONE, FINISHED, FOLDER, REPLACES
from pykaldist.parallel.launch.watch import DIED, Watch, end_now, write_last_words


class Experiment(Protocol):
    job: Job

    def run(self) -> None: ...


def run_job(args: argparse.Namespace, options: JobOptions, fault_tolerant: bool, make: Callable[[], Experiment]) -> int:
    """Run what `make` makes in every process of the job; the exit status, 75 where another try may mend what went wrong.

    `fault_tolerant`: where a process dies, the others are to go on.
    """
    replaces = REPLACES in os.environ
    if needs_launcher(options) and not replaces:
        return Launcher(options, args.argv, args.exp, fault_tolerant).run()
    if started_by() is None and not replaces:
        alone = make()
        with Watch(alone.job.host.processes, args.exp, options.timeout, print):
            alone.run()
        return 0
    join_launched(args.exp / FOLDER)
    status, prefix, trace = 1, f"pykaldist {args.argv[0]}: ", ""
    experiment: Experiment | None = None
    try:
        experiment = make()
        processes = experiment.job.host.processes
        with Watch(processes, args.exp, options.timeout,
                   lambda sentence: end_now(f"{prefix}ERROR: {sentence}; {GO_ON}\n", args.exp / FOLDER)):
            experiment.run()
            if fault_tolerant and processes.size > 1 and "PYKALDIST_JOB" in os.environ:
                _leave(experiment.job, args.exp)
        return 0
    except Terminated:
        return _end(128 + signal.SIGTERM, f"{prefix}terminated; run the same command again to go on.", args.exp)
    except UserError as error:
        message = str(error)
    except OSError as error:
        message = os_error_sentence(error)
    except MemoryError:
        message = "out of memory; use fewer processes (--nproc) or a machine with more."
    except Exception as error:  # whatever it is, the other processes wait for this one and have to be ended
        memory = out_of_memory_sentence(error) if isinstance(error, RuntimeError) else None
        if memory is not None:
            message = memory
        elif isinstance(error, NotMetError):
            message, status = f"{error}; {GO_ON}", DIED
        elif isinstance(error, ProcessLostError):
            message, status = f"{LOST} ({str(error).splitlines()[0]}); {GO_ON}", DIED
        else:
            trace = traceback.format_exc()
            message = f"{type(error).__name__}: {error}; this is a fault in the program, and its traceback stands above."
    if replaces and (experiment is None or experiment.job.host.guest):  # the others go on as they are
        print(f"{trace}WARNING: {process_name()}, which was to replace one that has died, could not join: {message}", file=sys.stderr,
              flush=True)
        return DIED
    return _end(status, f"{trace}{prefix}ERROR: {process_name()}: {message}", args.exp)


def _leave(job: Job, exp: Path) -> NoReturn:
    """End this process of a job without waiting for others.

    Others may have died, and MPI and torch.distributed would wait for them.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if job.first:
        (exp / FOLDER / FINISHED).touch()
    os._exit(DONE)


def _end(status: int, message: str, exp: Path) -> int:
    """Say why, and end all processes of an MPI job, which would wait for this one; elsewhere it is enough to go."""
    write_last_words(f"{message}\n", exp / FOLDER)
    print(message, file=sys.stderr, flush=True)
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized():
            MPI.COMM_WORLD.Abort(status)
    return status
