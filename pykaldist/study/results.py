"""The results of a study: a training each, a JSON object a line, in one file a corpus that is kept with the project.

A training is known by its corpus, its options, rate included, and its seed. Claims share it, and nothing is trained twice. Lines are
sorted, so that those of two machines can be merged. A training with the seed `TUNING_SEED` finds a rate, and is not decoded.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.io.atomic import write_text
from pykaldist.io.schema import build, read_json_lines

TUNING_SEED = 100
"""The seed of trainings that find a rate; no result has it."""


@dataclass(frozen=True)
class Trial:
    """A training to do: on a corpus, with options and a seed."""

    corpus: str
    options: str
    seed: int

    @property
    def tuning(self) -> bool:
        """Whether it finds a rate, and is not decoded."""
        return self.seed == TUNING_SEED


@dataclass(frozen=True)
class Result:
    """What became of a training. Of one that diverged, or that is not decoded, there are no numbers.

    `errors` are those of each test utterance, in the order of the corpus; `words` is the number of words of the whole test set.
    `config` and `history` are those of the experiment's folder.
    """

    corpus: str
    options: str
    seed: int
    diverged: bool
    cpu_seconds: float
    cv_loss: float | None = None
    cv_acc: float | None = None
    words: int = 0
    errors: list[int] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[Any] = field(default_factory=list)

    @property
    def trial(self) -> Trial:
        """The training whose result this is."""
        return Trial(self.corpus, self.options, self.seed)

    @property
    def loss(self) -> float:
        """The held-out loss of the model; infinite where training diverged."""
        return math.inf if self.cv_loss is None else self.cv_loss

    @property
    def wer(self) -> float | None:
        """The word error rate in %; None where nothing was decoded."""
        return 100 * sum(self.errors) / self.words if self.words else None

    @property
    def error_counts(self) -> np.ndarray:
        """The errors of each test utterance."""
        return np.array(self.errors)


#: What a training is judged by.
MEASURES: dict[str, Callable[[Result], float]] = {"held-out loss": lambda result: result.loss, "WER, %": lambda result: result.wer or 0.0}


def rounded(value: Any, digits: int = 6) -> Any:
    """Numbers in parsed JSON with so many significant digits."""
    if isinstance(value, dict):
        return {key: rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


class Results:
    """The results in a folder, `<corpus>.jsonl` each; `add` writes one at once."""

    def __init__(self, folder: Path) -> None:
        """Read what is there. Raises UserError for a line that is damaged."""
        self.folder = folder
        lines = [line for path in sorted(folder.glob("*.jsonl")) for line in read_json_lines(path, Result, "restore it from the history")]
        self._found = {result.trial: result for result in (build(Result, line) for line in lines)}

    def __getitem__(self, trial: Trial) -> Result:
        return self._found[trial]

    def __contains__(self, trial: object) -> bool:
        return trial in self._found

    def __iter__(self) -> Iterator[Result]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def get(self, trial: Trial) -> Result | None:
        """The result of a training; None where it was not done."""
        return self._found.get(trial)

    def add(self, result: Result) -> None:
        """Add a result, and write its corpus's file anew: whole, sorted, or not at all."""
        self._found[result.trial] = result
        own = sorted((one for one in self if one.corpus == result.corpus), key=lambda one: (one.options, one.seed))
        lines = (json.dumps(rounded(dataclasses.asdict(one)), sort_keys=True) for one in own)
        write_text(self.folder / f"{result.corpus}.jsonl", "".join(line + "\n" for line in lines))
