"""The claims of a study: a JSON file each, with the cells that examine it and what is compared.

    {"title": "NG-SGD is crucial under averaging", "source": "Su et al. (2015), table 6", "published": "...", "corpora": ["an4"],
     "options": "--hid-layers 3 --learn-rate {rate} ...",
     "axes": [{"SGD": "--optimizer sgd", "NG-SGD": "--optimizer ngsgd"}, {"1": "", "16": "--ngpu 16 --strategy ma"}],
     "first_rates": {"": 0.032, "NG-SGD": 0.016},
     "contrasts": [{"name": "SGD over NG-SGD, 16 workers", "weights": {"SGD, 16": 1, "NG-SGD, 16": -1}, "expected": "more", ...}]}

A cell is one value of each axis; its name is theirs, its options are the claim's and theirs. `{rate}` stands for the learning rate, which
is found for each cell (`rates`), `{tenth}` for a tenth of it; with `"tries": 0` the first rate is the cell's. A contrast is a sum of cells'
means, each times its weight.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.schema import read_json, require
from pykaldist.study.rates import TRIES

EXPECTED = ("more", "less", "alike")
CURE = "correct it"


@dataclass(frozen=True)
class Contrast:
    """What a claim says of its cells: a weighted sum of them, and whether it is above zero (more errors), below it, or about zero.

    A difference smaller than `margin`, in points of WER, is of no interest.
    """

    name: str
    weights: dict[str, float]
    expected: str
    margin: float
    published: str = ""

    def __post_init__(self) -> None:
        require(self.expected in EXPECTED, "expected", self.expected, f"one of {', '.join(EXPECTED)}")
        require(self.margin > 0, "margin", self.margin, "a number above 0")
        require(len(self.weights) > 1 and abs(sum(self.weights.values())) < 1e-9, "weights", self.weights,
                "two cells or more, whose weights add up to 0")


@dataclass(frozen=True)
class Cell:
    """A way to train: its name within the claim, its options with `{rate}`, the learning rate that is tried first, and how many are."""

    name: str
    options: str
    first_rate: float
    tries: int = TRIES


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, the cells that examine it, and the contrasts that decide."""

    title: str
    source: str
    published: str
    corpora: tuple[str, ...]
    options: str
    axes: tuple[dict[str, str], ...]
    first_rates: dict[str, float]
    contrasts: tuple[Contrast, ...]
    tries: int = TRIES
    fewest_seeds: int = 3
    most_seeds: int = 8
    explanation: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        require("{rate}" in self.options, "options", self.options, "options with {rate} where the learning rate stands")
        require(all(text.startswith("--") for text in (self.options, *(text for axis in self.axes for text in axis.values() if text))),
                "options", self.options, "options that begin with --")
        require("" in self.first_rates, "first_rates", self.first_rates, 'a rate for "", which stands for every other cell')
        require(self.tries == 0 or self.tries >= 2, "tries", self.tries, "0, where rates are fixed, or 2 and more")
        require(2 <= self.fewest_seeds <= self.most_seeds, "fewest_seeds", self.fewest_seeds, f"2 to {self.most_seeds}")
        for contrast in self.contrasts:
            unknown = [name for name in contrast.weights if name not in self.cells]
            require(not unknown, f"contrast {contrast.name}", ", ".join(unknown), "names of cells: " + "; ".join(self.cells))

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Every cell by its name."""
        found = {}
        for labels in itertools.product(*self.axes):
            name = ", ".join(labels)
            options = " ".join([self.options, *(axis[label] for axis, label in zip(self.axes, labels, strict=True) if axis[label])])
            rate = next((self.first_rates[label] for label in (name, *labels) if label in self.first_rates), self.first_rates[""])
            found[name] = Cell(name, options, rate, self.tries)
        return found

    @property
    def decisive(self) -> list[str]:
        """The names of the cells that stand in contrasts; those of earlier ones first."""
        return list(dict.fromkeys(name for contrast in self.contrasts for name in contrast.weights))


def read_claims(folder: Path) -> list[Claim]:
    """Read every claim of a folder, in the order of their files' names. Raises UserError where one is damaged, and where there is none."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise UserError(f"{folder} has no claim, which is a file that ends in .json; name the folder of a study's claims.")
    return [replace(read_json(path, Claim, CURE), name=path.stem) for path in paths]


def chosen(claims: list[Claim], names: list[str]) -> list[Claim]:
    """The claims of these names, in their order; all where none is named. Raises UserError for a name that there is not."""
    known = {claim.name: claim for claim in claims}
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no claim {unknown[0]}; choose among {', '.join(known)}.")
    return [known[name] for name in names] if names else claims
