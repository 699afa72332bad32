"""The CPU and the PyTorch that a benchmark runs on, to be printed beside its numbers, and what they cannot measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from pykaldist.errors import UserError
from pykaldist.nnet import arithmetic, int8

T = TypeVar("T")
MULTIPLIERS = {*arithmetic.MULTIPLIES, *arithmetic.OTHERS, *int8.MULTIPLIES}  # by the names of /proc/cpuinfo


def machine() -> str:
    """The CPU, what it multiplies with, PyTorch's version and the threads of this process."""
    model, _, flags = arithmetic.cpu()
    threads = torch.get_num_threads()
    return f"{model} ({', '.join(sorted(MULTIPLIERS & flags))}), torch {torch.__version__}, {threads} thread{'s' * (threads > 1)}"


def possible(what: str, make: Callable[[], T]) -> T | None:
    """Return what `make` gives; where this machine lacks what that needs, print so and return None."""
    try:
        return make()
    except UserError as error:
        print(f"{what} is not measured: {error}")
        return None
