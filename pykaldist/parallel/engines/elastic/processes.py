"""The host of a synchronous job that is elastic: over as many processes as there are, in real time.

What workers exchange goes through process 0 (`live_group.py`), over the transport of asynchronous jobs (`parallel/transport`). So an
exchange is over all processes that are there, and all know whose data is in it; MPI, gloo and NCCL, by which the processes have met, would
wait for the dead ones. Process 0 takes the mean in the order of ranks, so that without deaths the result is, bit for bit, that of the plain
job with `--deterministic true`. When process 0 dies, the job ends; run again, it goes on from its last checkpoint with all its workers.

A replacement is a process with the rank of one that has died. It finds process 0 by a file (`transport/door.py`), and waits there. When the
next round begins, process 0 sends it the state of worker 0 and of the trainer, and takes it into that round.
"""

from __future__ import annotations

import io
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import Abandoned, ProcessLostError, Terminated
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.live_group import LiveGroup
from pykaldist.parallel.fabric.interface import Average, Begin, Finish, Mean, NextRound
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.door import Door, Guest
from pykaldist.parallel.transport.transport import FAILED, JOIN, RESULT, SHARE, Transport


class ElasticHost(Host):
    """Runs the workers of an elastic job. `names`: the machine of each process; `folder`: where replacements find process 0.

    A `Guest` in place of processes is one that replaces a process; it takes part when it has been let in (`enter`).
    """

    def __init__(self, size: int, processes: Processes, names: list[str], folder: Path, interface: str = "",
                 facts: dict[str, Any] | None = None) -> None:
        super().__init__(size, processes)
        self._names = names
        self._welcome: tuple[int, Tensor] | None = None
        self.guest = isinstance(processes, Guest)
        self.transport = Transport(processes, self._handle_message, self._handle_death, interface)
        self._door = Door(folder, {**(facts or {}), **self.transport.card, "size": processes.size}) if processes.rank == 0 else None
        self._live = LiveGroup(self.transport)
        if not self.guest:
            self.processes = self._live
        self.be_elastic()
        assert self.elastic is not None
        self.agreed = self.elastic
        self._results: dict[int, Any] = {}  # of exchanges that are begun and not finished, by ticket
        self._serve[NextRound] = self._next_round
        self.transport.start()

    def enter(self) -> dict[str, Any]:
        """Wait to be let in. Returns the states of the trainer, of worker 0 and of its strategy."""
        with self.transport.changed:
            self.transport.wait(lambda: self._welcome is not None)
            assert self._welcome is not None
            count, content = self._welcome
        state: dict[str, Any] = torch.load(io.BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True)
        self._live.enter(count)
        self.processes, self.guest = self._live, False
        return state

    def begin_epoch(self) -> None:
        super().begin_epoch()
        self._results.clear()
        self.agreed.begin_epoch()

    def abandon(self) -> None:
        super().abandon()
        self._results.clear()
        self.agreed.abandon()

    def notes(self) -> dict[str, Any]:
        dead = [rank for rank in range(self.size) if rank not in self.living]
        return {**self.agreed.notes(), **({"dead": dead} if dead else {})}

    def state_dict(self) -> dict[str, Any]:
        return {"elastic": self.agreed.state_dict(list(self._results.values()))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agreed.load_state_dict(state["elastic"])

    def run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        try:
            results = super().run(work)
            self.agreed.end_epoch()
            return results
        except (Abandoned, Terminated):
            raise
        except BaseException:
            self.transport.close(FAILED)
            raise

    def close(self) -> None:
        """Leave the job. The processes are not left by MPI or gloo, which would wait for those that have died."""
        self.processes.barrier()
        if self._door is not None:
            self._door.close()
        self.transport.close()

    # Exchanges.

    def _hosted(self) -> list[int]:
        """The workers of the processes whose data was in the last exchange."""
        return [rank for p in self._live.members for rank in range(self.bounds[p], self.bounds[p + 1])]

    def _average(self, requests: list[Average]) -> list[None]:
        before = self.clock.mark()
        mean = self._live.mean([r.buffer for r in requests], [r.weight for r in requests])
        self.agreed.settle(self._hosted())
        if len(mean) and requests[0].measure:
            norm = torch.linalg.vector_norm(mean)
            far = [float(torch.linalg.vector_norm(r.buffer - mean) / norm) for r in requests]
            sums = self._control([sum(far), len(far)])
            self.disagreement = float(sums[0]) / float(sums[1])
        for r in requests if len(mean) else ():
            r.buffer.copy_(mean)
        self._timed("exchange", before)
        return [None] * len(requests)

    def _mean(self, requests: list[Mean]) -> list[Tensor]:
        before = self.clock.mark()
        buffers, weights = [r.buffer for r in requests], [r.weight for r in requests]
        mean = self._live.mean(buffers, weights)
        self.agreed.settle(self._hosted())
        if not len(mean):  # nobody has trained
            mean = self._live.mean(buffers, [1.0] * len(requests))
        self._timed("exchange", before)
        return [mean.clone()] * len(requests)

    def _begin(self, requests: list[Begin]) -> list[int]:
        """Carry out an exchange at once, or take its result from before the run was stopped, or the worker came."""
        self._last_ticket += 1
        if self.agreed.inherited:
            for r in requests:
                r.exchange.close()
            self._results[self._last_ticket] = self.agreed.inherited.popleft()
        else:
            self._results[self._last_ticket] = self._run([r.exchange for r in requests])[0]
        return [self._last_ticket] * len(requests)

    def _finish(self, requests: list[Finish]) -> list[Any]:
        return [self._results.pop(requests[0].ticket)] * len(requests)

    # Who lives.

    def _next_round(self, requests: list[NextRound]) -> list[Any]:
        came = [0.0] * (len(self.bounds) - 1)
        if self._door is not None and len(self._live.members) < len(came):
            for process in self._let_in(self._door):
                came[process] = 1.0
        flags = self._control(came)
        self.living[:] = self._hosted()
        joined = [rank for p in self._live.members if flags[p] for rank in range(self.bounds[p], self.bounds[p + 1])]
        workers = dict(zip(self.ranks, self.workers, strict=True))
        return list(self.agreed.next_round(workers, list(self.living), joined, requests[0].period).values())

    def _let_in(self, door: Door) -> list[int]:
        """On process 0: let in the processes that wait at the door; returns them."""
        found = [process for process in door.waiting() if process not in self._live.members]
        if found:
            state = {**self.state_of(0), **self.job_state()}
            stream = io.BytesIO()
            torch.save(state, stream)
            content = torch.frombuffer(bytearray(stream.getvalue()), dtype=torch.uint8)
        for process in found:
            door.admit(process, self.transport.admit)
            self.transport.send(process, JOIN, [self._live.admit(process)], content)
        return found

    # Messages that arrive: on the thread that reads, with the lock held.

    def _handle_message(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> None:
        assert buffer is not None
        if kind in (SHARE, RESULT):
            self._live.deliver(peer, numbers, buffer)
        elif kind == JOIN:
            self._welcome = int(numbers[0]), buffer

    def _handle_death(self, peer: int) -> None:
        """Note that process `peer` has ended. Raises ProcessLostError where the job cannot go on without it."""
        where = f"process {peer} on {self._names[peer]}"
        if peer == 0:
            raise ProcessLostError(f"{where}, which leads the elastic job, has died")
        if self.job_processes.rank == 0:
            self.log(f"{where} has died")
