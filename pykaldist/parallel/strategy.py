"""A strategy: what workers exchange, and when; nothing else.

One file each under `strategies/`: a class that derives from Strategy, found by the file's name.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from pykaldist.parallel.fabric import Fabric
from pykaldist.parallel.worker import Worker


class Strategy(ABC):
    """A coroutine over one worker; state that outlives an epoch is in its `state_dict()`."""

    @abstractmethod
    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        """Train the worker through its epoch."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state, f"{type(self).__name__} keeps no state, found {sorted(state)}"


def strategies() -> list[str]:
    """The names that `make_strategy` takes."""
    return sorted(p.stem for p in (Path(__file__).parent / "strategies").glob("*.py") if p.stem != "__init__")


def make_strategy(name: str) -> Strategy:
    """A strategy by its name."""
    module = importlib.import_module(f"pykaldist.parallel.strategies.{name}")
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    found = [c for c in classes if issubclass(c, Strategy)]
    assert len(found) == 1, f"{module.__name__} must define one Strategy"
    return found[0]()
