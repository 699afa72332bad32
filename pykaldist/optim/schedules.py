"""Learning-rate schedules: they set the rate of each minibatch, and accept or reject an epoch's model.

newbob (nnet1): the rate stays until the gain of an epoch on the cross-validation set falls below `start_halving_impr`, is halved each epoch
from then on, and training ends when the gain falls below `end_halving_impr`. An epoch without gain is rejected: the model goes back to the
last accepted one. `keep_lr_iters` epochs are accepted and unhalved in any case, and training does not end within `min_iters`. The gain is
the relative drop of the loss, or the rise of the frame accuracy (Su et al., 2015: halving below 0.5 %, the end below 0.1 %, absolute).

exponential (Senior et al., 2013; Su et al., 2015): lr_i = lr_0 (lr_final / lr_0)^((i - 1) / (n - 1)), i = 1..n; always accepts. With
`decay_within` the rate falls from minibatch to minibatch (Povey et al., 2015, lower it between short iterations): lr(t) =
lr_0 (lr_final / lr_0)^(t / n), where t are the epochs done, the part of the present one included.

fixed: a list, one rate an epoch; always accepts.

warmup (Goyal et al., 2017; Zhang et al., 2019, for large global minibatches): with t the epochs done, fractions of one included,
    lr(t) = lr (f + (1 - f) min(t / w, 1)),    f = warmup_start_factor, w = warmup_epochs,
and from epoch number a = anneal_from on (from 0) constant within an epoch, lr c^(epoch - a + 1), c = anneal_factor; always accepts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pykaldist.errors import UserError
from pykaldist.options import numbers, option


class Schedule:
    """A learning-rate schedule; epochs count from 0.

    `name`: what --schedule calls it; its options are the dataclass named as the class with `Options` behind.
    """

    num_epochs: int

    def __init__(self, options: Any) -> None:
        raise NotImplementedError  # each schedule's own

    def learn_rate(self, epoch: int, fraction: float = 0.0) -> float:
        """The learning rate when `fraction`, in [0, 1), of epoch `epoch` is done; to be asked after `end_epoch` of the one before."""
        raise NotImplementedError  # each schedule's own

    def moves_within(self, epoch: int) -> bool:
        """True where the rate of epoch `epoch` depends on the fraction."""
        return False

    def end_epoch(self, epoch: int, cv: dict[str, float]) -> bool:
        """Take note of an epoch's metrics on held-out data; returns True where its model is accepted."""
        return True

    def finished(self, epoch: int) -> bool:
        """True where training ends before epoch `epoch`."""
        return epoch >= self.num_epochs

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state, f"{type(self).__name__} keeps no state, found {sorted(state)}"

    def start(self, cv: dict[str, float]) -> None:
        """Take note of the metrics before the first epoch."""


def _learn_rate() -> Any:
    return option(0.008, "initial learning rate, for gradients summed over a minibatch")


def _positive(options: Any, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not 0 < value < math.inf:
            raise UserError(f"--{name.replace('_', '-')} {value:g} is not positive.")


NEWBOB_THRESHOLDS = {"loss": (0.01, 0.001), "accuracy": (0.005, 0.001)}  # start_halving_impr, end_halving_impr


@dataclass
class NewbobOptions:
    """The options of newbob."""

    learn_rate: float = _learn_rate()
    num_epochs: int = option(20, "epochs at most")
    newbob_on: str = option("loss", "what an epoch has to gain on the cross-validation set", tuple(NEWBOB_THRESHOLDS))
    halving_factor: float = option(0.5, "factor on the learning rate while halving")
    start_halving_impr: float | None = option(None, "gain below which halving starts (loss: 0.01, of the loss; accuracy: 0.005, absolute)")
    end_halving_impr: float | None = option(None, "gain below which training ends, while halving (0.001 of the loss; accuracy: 0.001)")
    keep_lr_iters: int = option(0, "epochs that are accepted at the full rate in any case")
    min_iters: int = option(0, "epochs within which training does not end")

    def __post_init__(self) -> None:
        _positive(self, "learn_rate", "num_epochs", "halving_factor")
        start, end = NEWBOB_THRESHOLDS[self.newbob_on]
        self.start_halving_impr = start if self.start_halving_impr is None else self.start_halving_impr
        self.end_halving_impr = end if self.end_halving_impr is None else self.end_halving_impr


class Newbob(Schedule):
    """The schedule newbob.

    `best` is the last accepted model's loss, or minus its accuracy: less is better.
    """

    name = "newbob"

    def __init__(self, options: NewbobOptions) -> None:
        self.options, self.num_epochs = options, options.num_epochs
        self.rate, self.halving, self.ended, self.best = options.learn_rate, False, False, math.inf

    def learn_rate(self, epoch: int, fraction: float = 0.0) -> float:
        return self.rate

    def start(self, cv: dict[str, float]) -> None:
        """Take note of the metrics before the first epoch, which that epoch has to beat."""
        self.best = self._cost(cv)

    def end_epoch(self, epoch: int, cv: dict[str, float]) -> bool:
        o, cost = self.options, self._cost(cv)
        assert o.start_halving_impr is not None and o.end_halving_impr is not None  # the options' __post_init__ sets them
        gain = self.best - cost
        if o.newbob_on == "loss" and math.isfinite(self.best):
            gain /= max(abs(self.best), math.ulp(0.0))
        accepted = cost < self.best or epoch < o.keep_lr_iters
        if accepted:
            self.best = cost
        if epoch < o.keep_lr_iters:
            return accepted
        if self.halving and gain < o.end_halving_impr and epoch >= o.min_iters:
            self.ended = True
        if gain < o.start_halving_impr:
            self.halving = True
        if self.halving:
            self.rate *= o.halving_factor
        return accepted

    def _cost(self, cv: dict[str, float]) -> float:
        if self.options.newbob_on == "loss":
            return cv["loss"]
        if "acc" not in cv:
            raise UserError("--newbob-on accuracy: the objective has no frame accuracy; use --newbob-on loss.")
        return -cv["acc"]

    def finished(self, epoch: int) -> bool:
        return self.ended or epoch >= self.num_epochs

    def state_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "halving": self.halving, "ended": self.ended, "best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])


@dataclass
class ExponentialOptions:
    """The options of the exponential schedule."""

    learn_rate: float = _learn_rate()
    num_epochs: int = option(15, "epochs")
    final_learn_rate: float | None = option(None, "rate of the last epoch (0.01 of the first where not given)")
    decay_within: bool = option(False, "lower the rate from minibatch to minibatch, to the final one at the end")

    def __post_init__(self) -> None:
        self.final_learn_rate = 0.01 * self.learn_rate if self.final_learn_rate is None else self.final_learn_rate
        _positive(self, "learn_rate", "num_epochs", "final_learn_rate")


class Exponential(Schedule):
    """The exponential schedule: the rate falls by one factor from epoch to epoch."""

    name = "exponential"

    def __init__(self, options: ExponentialOptions) -> None:
        assert options.final_learn_rate is not None  # the options' __post_init__ sets it
        self.num_epochs, self.initial, self.final = options.num_epochs, options.learn_rate, options.final_learn_rate
        self.within = options.decay_within

    def learn_rate(self, epoch: int, fraction: float = 0.0) -> float:
        done = (epoch + fraction) / self.num_epochs if self.within else epoch / max(self.num_epochs - 1, 1)
        return self.initial * (self.final / self.initial) ** done

    def moves_within(self, epoch: int) -> bool:
        return self.within


@dataclass
class FixedOptions:
    """The options of the fixed schedule."""

    learn_rates: str = option("", "learning rates, one an epoch, as 0.008,0.008,0.004")

    def __post_init__(self) -> None:
        if not self.learn_rates:
            raise UserError("--schedule fixed needs --learn-rates, one rate an epoch, such as --learn-rates 0.008,0.008,0.004.")
        if not all(0 < rate < math.inf for rate in numbers("learn-rates", self.learn_rates)):
            raise UserError(f"--learn-rates {self.learn_rates}: a rate is not positive.")


class Fixed(Schedule):
    """The fixed schedule: a list of rates, one an epoch."""

    name = "fixed"

    def __init__(self, options: FixedOptions) -> None:
        self.rates = numbers("learn-rates", options.learn_rates)
        self.num_epochs = len(self.rates)

    def learn_rate(self, epoch: int, fraction: float = 0.0) -> float:
        return self.rates[epoch]


@dataclass
class WarmupOptions:
    """The options of the warmup schedule."""

    learn_rate: float = _learn_rate()
    num_epochs: int = option(16, "epochs")
    warmup_epochs: float = option(10.0, "epochs over which the rate rises, fractions too; 0: none")
    warmup_start_factor: float = option(0.1, "the first minibatch's rate over --learn-rate")
    anneal_from: int | None = option(None, "epochs before annealing begins (--warmup-epochs, rounded up, where not given)")
    anneal_factor: float = option(math.sqrt(0.5), "factor on the rate, an epoch, from then on")

    def __post_init__(self) -> None:
        _positive(self, "learn_rate", "num_epochs", "anneal_factor")
        if not 0 <= self.warmup_epochs < math.inf or not 0 <= self.warmup_start_factor <= 1:
            raise UserError(f"--warmup-epochs {self.warmup_epochs:g} --warmup-start-factor {self.warmup_start_factor:g}: expected no fewer "
                            "than 0 epochs, and a factor in [0, 1].")
        self.anneal_from = math.ceil(self.warmup_epochs) if self.anneal_from is None else self.anneal_from
        if self.anneal_from < self.warmup_epochs:
            raise UserError(f"--anneal-from {self.anneal_from} is within the warm-up of {self.warmup_epochs:g} epochs.")


class Warmup(Schedule):
    """The warmup schedule: the rate rises over the first epochs, and falls after them."""

    name = "warmup"

    def __init__(self, options: WarmupOptions) -> None:
        self.options, self.num_epochs = options, options.num_epochs

    def learn_rate(self, epoch: int, fraction: float = 0.0) -> float:
        o, done = self.options, epoch + fraction
        if done < o.warmup_epochs:
            return o.learn_rate * (o.warmup_start_factor + (1.0 - o.warmup_start_factor) * done / o.warmup_epochs)
        assert o.anneal_from is not None  # the options' __post_init__ sets it
        return o.learn_rate * o.anneal_factor ** max(epoch - o.anneal_from + 1, 0)

    def moves_within(self, epoch: int) -> bool:
        return epoch < self.options.warmup_epochs
