"""The strategies by name. They are found by their files in `parallel/strategies`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pykaldist.parallel.strategies.base.strategy import Strategy

# Published ways of training, by name: (the strategy, its options where the user does not say).
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {"kaldi": ("ma", {"initial_workers": 1, "average_frames": 800_000})}


def strategies() -> list[str]:
    """The names of all strategies."""
    return sorted(p.stem for p in Path(__file__).parents[1].glob("*.py") if p.stem != "__init__")


def strategy_class(name: str) -> type[Strategy]:
    """The class of a strategy, by its name."""
    module = importlib.import_module(f"pykaldist.parallel.strategies.{name}")
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    found = [c for c in classes if issubclass(c, Strategy)]
    assert len(found) == 1, f"{module.__name__} must define one Strategy"
    return found[0]


def strategy_options(name: str) -> type:
    """The options dataclass of a strategy, by its name."""
    cls = strategy_class(name)
    return getattr(importlib.import_module(cls.__module__), f"{cls.__name__}Options")


def make_strategy(name: str, options: Any = None) -> Strategy:
    """Make a strategy, by its name; without `options`, with its default options."""
    return strategy_class(name)(strategy_options(name)() if options is None else options)


def take_preset(chosen: dict[str, Any]) -> None:
    """Put a strategy and its options in the place of a preset's name, in options by their names; those that are given stay."""
    chosen["strategy"], own = PRESETS.get(chosen["strategy"], (chosen["strategy"], {}))
    for name, value in own.items():
        chosen.setdefault(name, value)
