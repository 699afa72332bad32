"""Learning-rate schedules: the rate of each epoch, and whether an epoch's model is kept.

newbob (nnet1): the rate stays until the relative drop of the cross-validation loss falls below `start_halving_impr`, is halved each epoch
from then on, and training ends when the drop falls below `end_halving_impr`. An epoch after which the loss did not drop is rejected: the
model goes back to the last accepted one. `keep_lr_iters` epochs are accepted and unhalved in any case.

exponential (Senior et al., 2013; Su et al., 2015): lr_i = lr_0 (lr_final / lr_0)^((i - 1) / (n - 1)), i = 1..n; always accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykaldist.errors import UserError
from pykaldist.options import option


class Schedule:
    """Epochs count from 0."""

    num_epochs: int

    def learn_rate(self, epoch: int) -> float:
        """The rate of epoch `epoch`, to be asked after `end_epoch` of the one before."""
        raise NotImplementedError  # each schedule's own

    def end_epoch(self, epoch: int, cv: dict[str, float]) -> bool:
        """Take note of an epoch's metrics on held-out data; True where its model is accepted."""
        return True

    def finished(self, epoch: int) -> bool:
        """True when no epoch `epoch` is to be trained."""
        return epoch >= self.num_epochs

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state, f"{type(self).__name__} keeps no state, found {sorted(state)}"

    def start(self, cv: dict[str, float]) -> None:
        """Take note of the metrics before the first epoch."""


@dataclass
class NewbobOptions:
    """newbob."""

    num_epochs: int = option(20, "epochs at most")
    halving_factor: float = option(0.5, "factor on the learning rate while halving")
    start_halving_impr: float = option(0.01, "relative drop of the cross-validation loss below which halving starts")
    end_halving_impr: float = option(0.001, "relative drop below which training ends, while halving")
    keep_lr_iters: int = option(0, "epochs that are accepted at the full rate in any case")


class Newbob(Schedule):
    def __init__(self, options: NewbobOptions, initial: float) -> None:
        self.options, self.num_epochs = options, options.num_epochs
        self.rate, self.halving, self.ended, self.best = initial, False, False, float("inf")

    def learn_rate(self, epoch: int) -> float:
        return self.rate

    def start(self, cv: dict[str, float]) -> None:
        """The loss before the first epoch, which that epoch has to beat."""
        self.best = cv["loss"]

    def end_epoch(self, epoch: int, cv: dict[str, float]) -> bool:
        o, cv_loss = self.options, cv["loss"]
        improvement = (self.best - cv_loss) / abs(self.best) if self.best != float("inf") else float("inf")
        accepted = cv_loss < self.best or epoch < o.keep_lr_iters
        if accepted:
            self.best = cv_loss
        if epoch < o.keep_lr_iters:
            return accepted
        if self.halving and improvement < o.end_halving_impr:
            self.ended = True
        if improvement < o.start_halving_impr:
            self.halving = True
        if self.halving:
            self.rate *= o.halving_factor
        return accepted

    def finished(self, epoch: int) -> bool:
        return self.ended or epoch >= self.num_epochs

    def state_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "halving": self.halving, "ended": self.ended, "best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])


@dataclass
class ExponentialOptions:
    """exponential."""

    num_epochs: int = option(15, "epochs")
    final_learn_rate: float | None = option(None, "rate of the last epoch (0.01 of the first where not given)")


class Exponential(Schedule):
    def __init__(self, options: ExponentialOptions, initial: float) -> None:
        self.num_epochs, self.initial = options.num_epochs, initial
        self.final = 0.01 * initial if options.final_learn_rate is None else options.final_learn_rate
        if self.final <= 0:
            raise UserError(f"--final-learn-rate {self.final} is not positive.")

    def learn_rate(self, epoch: int) -> float:
        return self.initial * (self.final / self.initial) ** (epoch / max(self.num_epochs - 1, 1))


SCHEDULES: dict[str, tuple[type, type]] = {"newbob": (NewbobOptions, Newbob), "exponential": (ExponentialOptions, Exponential)}


def make_schedule(name: str, options: Any, learn_rate: float) -> Schedule:
    """A schedule by its name; `options` is an instance of its options class."""
    if learn_rate <= 0:
        raise UserError(f"--learn-rate {learn_rate} is not positive.")
    if options.num_epochs < 1:
        raise UserError(f"--num-epochs {options.num_epochs} is not positive.")
    return SCHEDULES[name][1](options, learn_rate)
