"""The best model so far of a training on lattices, where the objective may fall epoch after epoch if the learning rate is too large.

The held-out loss is looked at after each epoch whose model is accepted. Where it is above the one before for `patience` epochs in a row,
training ends, and the model is that of the epoch with the least loss, or the one before training.

An objective may also improve while more and more words are wrong, as the network forgets what cross-entropy has taught it. So the held-out
word error rate on lattices of the model that is kept is compared with the one before training.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

NUMBERS = ("loss", "before", "epoch", "falls", "first_wer", "last_wer", "best_wer")  # what a checkpoint has beside the model
FORGETTING = 1.1  # the word error rate over that before training from which on a network is said to forget


class BestModel:
    """The best model so far; without `patience` nothing is kept, and training does not end by it."""

    def __init__(self, params: Tensor, patience: int | None) -> None:
        self.patience = patience
        self.params = params.clone() if patience else None
        self.loss = self.before = math.inf
        self.epoch = self.falls = 0
        self.first_wer = self.last_wer = self.best_wer = math.nan  # before training; of the last model; of the best

    def start(self, loss: float, params: Tensor, wer: float | None = None) -> None:
        """Take note of the model before training."""
        self.first_wer = math.nan if wer is None else wer
        self.note(0, loss, params, wer)

    def note(self, epoch: int, loss: float, params: Tensor, wer: float | None = None) -> None:
        """Take note of the model after `epoch` epochs, and of its held-out word error rate where there is one."""
        if self.params is None:
            return
        self.last_wer = math.nan if wer is None else wer
        self.falls = self.falls + 1 if loss > self.before else 0
        self.before = loss
        if loss < self.loss:
            self.loss, self.epoch, self.best_wer = loss, epoch, self.last_wer
            self.params.copy_(params)

    @property
    def ended(self) -> bool:
        """Whether training ends here."""
        return self.patience is not None and self.falls >= self.patience

    @property
    def wer(self) -> float:
        """The held-out word error rate of the model that is kept."""
        return self.best_wer if self.ended else self.last_wer

    @property
    def forgets(self) -> bool:
        """Whether the model that is kept has many more words wrong than the one before training."""
        return self.wer > FORGETTING * self.first_wer

    def forgotten(self, rate_option: str) -> str:
        """That it forgets, in words."""
        return (f"{100 * self.wer:.2f} % of held-out words are wrong on their lattices, before training {100 * self.first_wer:.2f} %: the "
                f"network forgets what cross-entropy has taught it; lower {rate_option}, or add --xent-smoothing 0.1 or --l2-to-start")

    def described(self, rate_option: str) -> str:
        """Why it has ended, and what is kept, in words."""
        which = f"that of epoch {self.epoch}" if self.epoch else "the one before training"
        return (f"the held-out objective has fallen for {self.falls} epochs in a row; training ends, and the model kept is {which}, the "
                f"best; lower {rate_option}")

    def state_dict(self) -> dict[str, Any]:
        if self.params is None:
            return {}
        return {"params": self.params, **{name: getattr(self, name) for name in NUMBERS}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.params is not None:
            self.params.copy_(state["params"])
            for name in NUMBERS:
                setattr(self, name, state[name])
