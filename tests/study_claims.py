"""A small claim, and results that are made up, for tests of the study."""

from __future__ import annotations

from pykaldist.study.claims import Claim, Contrast
from pykaldist.study.results import Result, Trial

OPTIONS = "--learn-rate {rate} --final-learn-rate {tenth}"


def a_claim(name: str, corpora: tuple[str, ...] = ("toy",), own: str = "", **changes: object) -> Claim:
    """A claim of two optimisers and two numbers of workers; `own` options make its trainings its own."""
    contrast = Contrast("b less a", {"b, 1": 1.0, "a, 1": -1.0}, "more", 0.1)
    values = {"title": name, "source": "Paper", "published": "a", "corpora": corpora, "options": f"{OPTIONS} {own}".strip(),
              "axes": ({"a": "--optimizer sgd", "b": "--optimizer ngsgd"}, {"1": "", "4": "--ngpu 4"}), "first_rates": {"": 0.01},
              "contrasts": (contrast,), "name": name, **changes}
    return Claim(**values)  # type: ignore[arg-type]  # of `changes`


def a_result(trial: Trial, loss: float = 1.0, errors: tuple[int, ...] = (), words: int = 100) -> Result:
    return Result(trial.corpus, trial.options, trial.seed, loss == float("inf"), 2.0, None if loss == float("inf") else loss, 0.5,
                  0 if trial.tuning else words, [] if trial.tuning else list(errors or (1, 2, 3)))
