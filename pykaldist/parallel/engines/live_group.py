"""The live group: the processes of a job that have not died. They can still exchange sums and other results when others have died.

Every operation goes through process 0. All processes send it their data. When process 0 has received the data of every process that is
still connected, it computes the result and sends it to all of these, with the list of processes whose data is in it. So all agree who is in
the group, whenever a process dies. Only the few exchanges at an epoch's end are made in this way. What workers exchange during an epoch are
messages of their own (`parallel/engines/concurrent.py`). When process 0 dies, the job ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.transport import RESULT, SHARE, Transport

Combine = Callable[[list[Tensor]], Tensor]


class LiveGroup(Processes):
    """The operations of process `rank` of `size` among the processes that took part in the last exchange.

    `members` are their numbers in the job.

    All messages of the kinds SHARE and RESULT have to be passed to `deliver`.
    """

    def __init__(self, transport: Transport, channel: int = 0) -> None:
        self.transport, self._channel = transport, channel
        self.members = list(range(transport.size))
        self.rank, self.size = transport.rank, transport.size
        self._count = 0
        # (channel, number of the exchange, sender) -> the message's other numbers and its buffer
        self._arrived: dict[tuple[int, int, int], tuple[list[int], Tensor]] = {}
        self._duplicates = 0

    def deliver(self, peer: int, numbers: list[float], buffer: Tensor) -> None:
        """Store a message that has arrived."""
        channel, number, *rest = (int(n) for n in numbers)
        self._arrived[channel, number, peer] = rest, buffer

    def _meet(self, own: Tensor, combine: Combine) -> tuple[Tensor, list[int]]:
        """Return (what `combine` makes of the buffers of all members on process 0, the lengths of these buffers).

        `combine` must not change them.
        """
        self._count += 1
        key, transport, own = (self._channel, self._count), self.transport, own.detach().cpu()
        if transport.rank:
            with transport.changed:
                transport.send(0, SHARE, key, own)
                transport.wait(lambda: (*key, 0) in self._arrived)
                (count, *rest), result = self._arrived.pop((*key, 0))
            members, lengths = rest[:count], rest[count:]
        else:
            with transport.changed:
                transport.wait(lambda: all((*key, p) in self._arrived or p in transport.dead for p in self.members[1:]))
                members = [p for p in self.members if p not in transport.dead]
                shares = [own, *(self._arrived.pop((*key, p))[1] for p in members[1:])]
            lengths, result = [len(share) for share in shares], combine(shares)
            del shares  # they are borrowed from other processes: give them back
            if len(result):  # one copy in shared memory serves all
                result = transport.lend(result).copy_(result)
            with transport.changed:
                for p in members[1:]:
                    transport.send(p, RESULT, [*key, len(members), *members, *lengths], result)
        self.members, self.rank, self.size = members, members.index(transport.rank), len(members)
        return result, lengths

    def sum(self, buffer: Tensor, scale: float) -> None:
        def add(shares: list[Tensor]) -> Tensor:
            total = shares[0].clone()
            for share in shares[1:]:
                total.add_(share)
            return total if scale == 1.0 else total.mul_(scale)

        buffer.copy_(self._meet(buffer, add)[0])

    def mean(self, buffers: list[Tensor], weights: list[float]) -> Tensor:
        """The weighted mean of all buffers of all members, on their device, of no values where all weights are 0.

        Process 0 takes it in the order of ranks, as `Host` does in the deterministic mode.
        """
        length, dtype = len(buffers[0]), buffers[0].dtype
        numbers = torch.tensor(weights, dtype=torch.float64).view(dtype)  # their bits
        width = len(numbers) // len(weights)

        def combine(shares: list[Tensor]) -> Tensor:
            rows: list[Tensor] = []
            every: list[Tensor] = []
            for share in shares:
                count = len(share) // (length + width)
                rows += share[: count * length].split(length)
                every.append(share[count * length :].clone().view(torch.float64))
            weight = torch.cat(every).numpy()
            if not weight.any():
                return rows[0][:0]
            same = bool((weight == weight[0]).all())
            factors = [1.0] * len(rows) if same else (weight / weight.sum()).tolist()
            total = rows[0] * factors[0]
            for row, factor in zip(rows[1:], factors[1:], strict=True):
                total.add_(row if same else row * factor)
            return total.mul_(1.0 / len(rows)) if same else total

        own = torch.cat([*(buffer.detach().cpu() for buffer in buffers), numbers])
        return self._meet(own, combine)[0].to(buffers[0].device)

    def enter(self, count: int) -> None:
        """Take part from the exchange after number `count` on, as a process that replaces one which has died."""
        self._count = count

    def admit(self, process: int) -> int:
        """On process 0: take in a process that enters. Returns the number of exchanges so far."""
        self.members = sorted({*self.members, process})
        return self._count

    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        own = torch.from_numpy(np.array(values, dtype=np.float64))
        result, _ = self._meet(own, lambda shares: torch.stack(shares).amax(0) if largest else torch.stack(shares).sum(0))
        return result.numpy().copy()

    def gather(self, buffer: Tensor) -> list[Tensor]:
        result, lengths = self._meet(buffer, torch.cat)
        return list(result.to(buffer.device, copy=True).split(lengths))

    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        counts = self.gather(torch.tensor([len(part) for part in parts]))
        return [sent.split(count.tolist())[self.rank] for sent, count in zip(self.gather(torch.cat(parts)), counts, strict=True)]

    def duplicate(self) -> LiveGroup:
        self._duplicates += 1
        other = LiveGroup(self.transport, self._channel + self._duplicates)
        other._arrived = self._arrived
        return other
