"""The interface of the asynchronous host, as remote calls and work requests use it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from torch import Tensor

from pykaldist.parallel.fabric.interface import Handler
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.transport import Transport


class AsynchronousHost(Protocol):
    """One process's share of a job's asynchronous workers.

    `ranks` are the workers of this process, `living` the workers of the job that have not died. `transport` sends messages to other
    processes; it is None in a job of one process. `job_processes` are all processes of the job.
    """

    ranks: range
    transport: Transport | None
    job_processes: Processes

    @property
    def living(self) -> Collection[int]: ...

    def hosting(self, rank: int) -> int:
        """The process that hosts a worker."""

    def handler(self, rank: int) -> Handler | None:
        """The function that answers calls to a worker of this process; None where the worker does not serve yet."""

    def on_device(self, buffer: Tensor | None) -> Tensor | None:
        """A buffer, copied to the device of this process's workers."""

    def wish(self) -> int:
        """What this process wants at the next rest: GO_ON (0), or a number from `engines/host.py` such as CHECKPOINT."""
