"""Hierarchical asynchronous decentralised parallel SGD: groups of workers are synchronous inside, and exchange by `adpsgd` with each other.

Zhang, Cui, Finkler et al. (2019), Interspeech: the workers of a node form a super-learner. Inside a super-learner training is synchronous:
gradients are all-reduced over the node's own links, and all its workers take the same step. Super-learners run `adpsgd` with each other:
their first workers exchange models, and broadcast them to the others before each gradient. So the network between nodes carries one
exchange for each node, not one for each worker.

With s workers in a group, the group's gradient is the sum of their gradients over s. So the learning rate that is right for N workers in
`adpsgd` (by default N times that of one) is right here: the mean over the N / s groups moves by lr / N times each worker's gradient. One
group of all workers is `ssgd` with 1 / N of that rate. Groups of one worker are `adpsgd`.
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

    group_size: int = option(0, "workers in a synchronous group; 0: the workers of a node")

    def __post_init__(self) -> None:
        if self.group_size < 0:
            raise UserError(f"--group-size {self.group_size} is negative.")


class Hadpsgd(Adpsgd):
    """Hierarchical ADPSGD."""

    options: HadpsgdOptions
    keeps_mean = False  # it keeps the mean of the groups' models

    @property
    def fault_tolerant(self) -> bool:
        return False  # a group would wait for a dead worker for ever

    def group(self, fabric: Fabric) -> range:
        """The workers of this one's group. Raises UserError where the workers do not make whole groups."""
        size = self.options.group_size or fabric.node_size
        if size == 0 or fabric.size % size:
            where = f"--group-size {size}" if self.options.group_size else f"{size or 'different numbers of'} workers a node"
            raise UserError(f"{where}: {fabric.size} workers make no whole number of such groups; use --group-size with a divisor.")
        first = fabric.rank // size * size
        return range(first, first + size)
