"""The best model so far of a training on lattices, where the objective may fall epoch after epoch if the learning rate is too large.

The held-out loss is looked at after each epoch whose model is accepted. Where it is above the one before for `patience` epochs in a row,
training ends, and the model is that of the epoch with the least loss, or the one before training.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor


class BestModel:
    """The best model so far; without `patience` nothing is kept, and training does not end by it."""

    def __init__(self, params: Tensor, patience: int | None) -> None:
        self.patience = patience
        self.params = params.clone() if patience else None
        self.loss = self.before = math.inf
        self.epoch = self.falls = 0

    def start(self, loss: float, params: Tensor) -> None:
        """Take note of the model before training."""
        self.note(0, loss, params)

    def note(self, epoch: int, loss: float, params: Tensor) -> None:
        """Take note of the model after `epoch` epochs."""
        if self.params is None:
            return
        self.falls = self.falls + 1 if loss > self.before else 0
        self.before = loss
        if loss < self.loss:
            self.loss, self.epoch = loss, epoch
            self.params.copy_(params)

    @property
    def ended(self) -> bool:
        """Whether training ends here."""
        return self.patience is not None and self.falls >= self.patience

    def described(self, rate_option: str) -> str:
        """Why it has ended, and what is kept, in words."""
        which = f"that of epoch {self.epoch}" if self.epoch else "the one before training"
        return (f"the held-out objective has fallen for {self.falls} epochs in a row; training ends, and the model kept is {which}, the "
                f"best; lower {rate_option}")

    def state_dict(self) -> dict[str, Any]:
        if self.params is None:
            return {}
        return {"params": self.params, "loss": self.loss, "before": self.before, "epoch": self.epoch, "falls": self.falls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.params is not None:
            self.params.copy_(state["params"])
            self.loss, self.before, self.epoch, self.falls = (state[name] for name in ("loss", "before", "epoch", "falls"))
