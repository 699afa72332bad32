"""The optimisers and learning-rate schedules by their names: classes in this room that have a `name`.

The options of each stand beside it.
"""

from __future__ import annotations

from typing import Any

from pykaldist.nnet.learner import Learner
from pykaldist.nnet.model import Model
from pykaldist.optim.optimizer import Optimizer
from pykaldist.optim.schedules import Schedule
from pykaldist.options import discover, options_of

OPTIMIZERS: dict[str, tuple[type, type[Optimizer]]] = {
    name: (options_of(cls), cls) for name, cls in discover("pykaldist.optim", Optimizer).items()}
SCHEDULES: dict[str, tuple[type, type[Schedule]]] = {
    name: (options_of(cls), cls) for name, cls in discover("pykaldist.optim", Schedule).items()}

FRAME_OPTIMIZERS = {name: found for name, found in OPTIMIZERS.items() if issubclass(Model, found[1].trains)}  # those of networks of frames


def make_optimizer(name: str, learner: Learner, options: Any) -> Optimizer:
    """Make an optimiser by its name; `options` is an instance of its options class."""
    return OPTIMIZERS[name][1](learner, options)


def make_schedule(name: str, options: Any) -> Schedule:
    """Make a schedule by its name; `options` is an instance of its options class."""
    return SCHEDULES[name][1](options)
