"""The optimisers by their names."""

from __future__ import annotations

from typing import Any

from pykaldist.nnet.learner import Learner
from pykaldist.optim.ngsgd import NgSgd, NgSgdOptions
from pykaldist.optim.optimizer import Optimizer
from pykaldist.optim.sgd import Sgd, SgdOptions

OPTIMIZERS: dict[str, tuple[type, type]] = {"sgd": (SgdOptions, Sgd), "ngsgd": (NgSgdOptions, NgSgd)}


def make_optimizer(name: str, learner: Learner, options: Any) -> Optimizer:
    """An optimiser by its name; `options` is an instance of its options class."""
    return OPTIMIZERS[name][1](learner, options)
