"""Sums node by node (the hierarchical all-reduce): within each node, then between one process of each node, then back within the nodes.

Between nodes then goes one buffer a node in 2 (nodes - 1) messages one after the other, in place of 2 (processes - 1). What is not summed
goes as before. The order of a sum is another one than that of all processes together; it is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.parallel.fabric.processes import SplittableProcesses


class ByNode(SplittableProcesses):
    """Processes whose sums go node by node. `hosts` names the host of each process, by rank.

    Raises UserError where there is nothing to sum first: with one host, or one process on each.
    """

    def __init__(self, processes: SplittableProcesses, hosts: Sequence[str]) -> None:
        nodes = [[rank for rank, host in enumerate(hosts) if host == name] for name in dict.fromkeys(hosts)]
        if len(nodes) in (1, len(hosts)):
            raise UserError(f"--hierarchical-allreduce true: expected several hosts with several processes on some, found {len(hosts)} "
                            f"processes on {len(nodes)}; leave it out.")
        self.rank, self.size = processes.rank, processes.size
        self._processes, self._hosts = processes, hosts
        (own,) = (node for node in nodes if self.rank in node)
        firsts = [node[0] for node in nodes]
        # Each process makes two groups, those that it needs or not: torch.distributed names a group by the number of those before it.
        node = processes.group(own)
        second = processes.group([rank for rank in range(self.size) if (rank in firsts) == (self.rank in firsts)])
        self._node = node if len(own) > 1 else None
        self._firsts = second if self.rank in firsts else None

    def sum(self, buffer: Tensor, scale: float) -> None:
        if self._node is not None:
            self._node.sum(buffer, 1.0)
        if self._firsts is not None:
            self._firsts.sum(buffer, scale)
        if self._node is not None:
            self._node.broadcast(buffer)

    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        return self._processes.control(values, largest)

    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        return self._processes.scatter(parts)

    def gather(self, buffer: Tensor) -> list[Tensor]:
        return self._processes.gather(buffer)

    def broadcast(self, buffer: Tensor) -> None:
        self._processes.broadcast(buffer)

    def group(self, members: Sequence[int]) -> SplittableProcesses:
        return self._processes.group(members)

    def duplicate(self) -> ByNode:
        other = self._processes.duplicate()
        assert isinstance(other, SplittableProcesses)
        return ByNode(other, self._hosts)

    def close(self) -> None:
        self._processes.close()
