"""Hierarchical asynchronous decentralised parallel SGD: groups of workers are synchronous inside, and exchange by `adpsgd` with each other.

Zhang, Cui, Finkler et al. (2019), Interspeech: the workers of a node form a super-learner. Inside a super-learner training is synchronous:
gradients are all-reduced over the node's own links, and all its workers take the same step. Super-learners run `adpsgd` with each other:
their first workers exchange models, and broadcast them to the others before each gradient. So the network between nodes carries one
exchange for each node, not one for each worker. A group lives as long as all of its workers do: what kills one is a node's failure, as a
rule. The other groups go on, and do its minibatches.

With s workers in a group, the group's gradient is the sum of their gradients over s. So the learning rate that is right for N workers in
`adpsgd` (by default N times that of one) is right here: the mean over the N / s groups moves by lr / N times each worker's gradient. One
group of all workers is `ssgd` with 1 / N of that rate. Groups of one worker are `adpsgd`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.options import option
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

    def lost_with(self, rank: int, size: int, node_size: int) -> range:
        """The workers of a group. Raises UserError where the workers do not make whole groups."""
        own = self.options.group_size or node_size
        if own == 0 or size % own:
            where = f"--group-size {own}" if self.options.group_size else f"{own or 'different numbers of'} workers a node"
            raise UserError(f"{where}: {size} workers make no whole number of such groups; use --group-size with a divisor.")
        return range(rank // own * own, (rank // own + 1) * own)
