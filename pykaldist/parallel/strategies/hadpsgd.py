"""Hierarchical asynchronous decentralised parallel SGD.

Zhang, Cui, Finkler et al. (2019), Interspeech: the workers of a node form a super-learner. Inside, it is synchronous: gradients are
all-reduced over the node's own links, and all of it take the same step. Among each other, super-learners run `adpsgd`, with the model of
their first workers, who hand it down to the others before each gradient. So there is one exchange a node on the network between nodes,
not one a worker.

With s workers in a group, a group's gradient is the sum of theirs over s, so that the learning rate that fits all N workers in `adpsgd`
(by default N times that of one) fits here: the mean over the N / s groups moves by lr / N times each worker's gradient. One group of all
is `ssgd` at 1 / N of that rate; groups of one are `adpsgd`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.strategies.adpsgd import Adpsgd, AdpsgdOptions


@dataclass
class HadpsgdOptions(AdpsgdOptions):
    """hadpsgd."""

    group_size: int = option(0, "workers in a group that goes in step; 0: the workers of a node")

    def __post_init__(self) -> None:
        if self.group_size < 0:
            raise UserError(f"--group-size {self.group_size} is negative.")


class Hadpsgd(Adpsgd):
    options: HadpsgdOptions
    keeps_mean = False  # but that of the groups' models

    @property
    def fault_tolerant(self) -> bool:
        return False  # a group of which one is missing waits for it

    def group(self, fabric: Fabric) -> range:
        size = self.options.group_size or fabric.node_size
        if size == 0 or fabric.size % size:
            where = f"--group-size {size}" if self.options.group_size else f"{size or 'different numbers of'} workers a node"
            raise UserError(f"{where}: {fabric.size} workers make no whole number of such groups; use --group-size with a divisor.")
        first = fabric.rank // size * size
        return range(first, first + size)
