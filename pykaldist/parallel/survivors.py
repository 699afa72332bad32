"""The processes of a job that have not died, as a group that exchanges.

Every operation goes through process 0: all send it what they have; when it has something of everyone who is still connected, it makes the
result of that and sends it round, with the list of those whose share is in it. So all agree who is of the group, whenever somebody
dies. These are the few exchanges of an epoch's end; what workers exchange in it are messages of their own (`parallel/concurrent.py`). When
process 0 dies, the job does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pykaldist.parallel.peers import RESULT, SHARE, Peers
from pykaldist.parallel.processes import Processes

Combine = Callable[[list[Tensor]], Tensor]


class Survivors(Processes):
    """`rank` of `size` among those who were in the last exchange; `members` are their numbers in the job.

    `deliver` has to be given the messages of kinds SHARE and RESULT.
    """

    def __init__(self, peers: Peers, channel: int = 0) -> None:
        self.peers, self._channel = peers, channel
        self.members = list(range(peers.size))
        self.rank, self.size = peers.rank, peers.size
        self._count = 0
        self._arrived: dict[tuple[int, int, int], tuple[list[int], Tensor]] = {}  # channel, number, sender -> what else it says, buffer
        self._twins = 0

    def deliver(self, peer: int, numbers: list[float], buffer: Tensor) -> None:
        """A message has come."""
        channel, number, *rest = (int(n) for n in numbers)
        self._arrived[channel, number, peer] = rest, buffer

    def _meet(self, own: Tensor, combine: Combine) -> tuple[Tensor, list[int]]:
        """What process 0 makes of everyone's buffers, and their lengths."""
        self._count += 1
        key, peers, own = (self._channel, self._count), self.peers, own.detach().cpu()
        if peers.rank:
            with peers.changed:
                peers.send(0, SHARE, key, own)
                peers.wait(lambda: (*key, 0) in self._arrived)
                (count, *rest), result = self._arrived.pop((*key, 0))
            members, lengths = rest[:count], rest[count:]
        else:
            with peers.changed:
                peers.wait(lambda: all((*key, p) in self._arrived or p in peers.gone for p in self.members[1:]))
                members = [p for p in self.members if p not in peers.gone]
                shares = [own, *(self._arrived.pop((*key, p))[1] for p in members[1:])]
            lengths, result = [len(share) for share in shares], combine(shares)
            with peers.changed:
                for p in members[1:]:
                    peers.send(p, RESULT, [*key, len(members), *members, *lengths], result)
        self.members, self.rank, self.size = members, members.index(peers.rank), len(members)
        return result, lengths

    def sum(self, buffer: Tensor, scale: float) -> None:
        def add(shares: list[Tensor]) -> Tensor:
            total = shares[0].clone()
            for share in shares[1:]:
                total.add_(share)
            return total if scale == 1.0 else total.mul_(scale)

        buffer.copy_(self._meet(buffer, add)[0])

    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        own = torch.from_numpy(np.array(values, dtype=np.float64))
        return self._meet(own, lambda shares: torch.stack(shares).amax(0) if largest else torch.stack(shares).sum(0))[0].numpy().copy()

    def gather(self, buffer: Tensor) -> list[Tensor]:
        result, lengths = self._meet(buffer, torch.cat)
        return list(result.to(buffer.device).split(lengths))

    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        counts = self.gather(torch.tensor([len(part) for part in parts]))
        return [sent.split(count.tolist())[self.rank] for sent, count in zip(self.gather(torch.cat(parts)), counts, strict=True)]

    def twin(self) -> Survivors:
        self._twins += 1
        other = Survivors(self.peers, self._channel + self._twins)
        other._arrived = self._arrived
        return other
