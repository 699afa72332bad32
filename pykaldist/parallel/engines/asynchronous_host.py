"""What remote calls and work requests know of the host that they belong to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from torch import Tensor

from pykaldist.parallel.fabric.interface import Handler
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.transport import Transport


class AsynchronousHost(Protocol):
    """One process's share of a job's asynchronous workers.

    `ranks`: the workers here. `living`: the workers of the job that have not died. `transport`: how messages reach other processes; None
    where this process is alone. `between`: the processes of the job.
    """

    ranks: range
    transport: Transport | None
    between: Processes

    @property
    def living(self) -> Collection[int]: ...

    def hosting(self, rank: int) -> int:
        """The process that hosts a worker."""

    def handler(self, rank: int) -> Handler | None:
        """What answers calls to a worker here; None where it does not serve yet."""

    def on_device(self, buffer: Tensor | None) -> Tensor | None:
        """A buffer on the device of the workers here."""

    def wish(self) -> int:
        """Whether this process wants a checkpoint."""
