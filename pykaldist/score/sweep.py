"""The best paths of lattices at every language model weight and word insertion penalty, in one pass."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.mbr import mbr_decode
from pykaldist.decode.paths import best_words, pruned
from pykaldist.errors import UserError
from pykaldist.io.lang import SymbolTable
from pykaldist.options import option

WIDENINGS = 4  # times that a sweep goes on beyond its edges
MORE_LMWTS, MORE_PENALTIES = 5, 2  # each time
Point = tuple[int, str]
"""A language model weight and a word insertion penalty, which stands as the user wrote it, for it names files."""
Sentences = dict[str, list[str]]
"""The words of utterances."""


@dataclass
class SweepOptions:
    """The points of the sweep: each language model weight with each penalty."""

    min_lmwt: int = option(7, "lowest language model weight (the acoustic scale is one over it)")
    max_lmwt: int = option(17, "highest language model weight")
    word_ins_penalty: str = option("0.0,0.5,1.0", "word insertion penalties, with commas between")

    def points(self) -> list[Point]:
        """The points, those of the first penalty first."""
        if not 1 <= self.min_lmwt <= self.max_lmwt:
            raise UserError(f"expected 1 <= min-lmwt <= max-lmwt, found {self.min_lmwt} and {self.max_lmwt}.")
        penalties = [p.strip() for p in self.word_ins_penalty.split(",")]
        for p in penalties:
            if not re.fullmatch(r"-?\d+(\.\d+)?", p):
                raise UserError(f"expected numbers with commas between for --word-ins-penalty, found {self.word_ins_penalty!r}.")
        return [(lmwt, wip) for wip in penalties for lmwt in range(self.min_lmwt, self.max_lmwt + 1)]


def _axes(points: Iterable[Point]) -> tuple[list[int], list[str]]:
    """The weights and the penalties of a sweep, from the lowest to the highest."""
    return sorted({lmwt for lmwt, _ in points}), sorted({wip for _, wip in points}, key=float)


def extent(points: Iterable[Point]) -> str:
    """The lowest and the highest weight and penalty of a sweep, in words."""
    lmwts, penalties = _axes(list(points))
    return f"LMWT {lmwts[0]} to {lmwts[-1]}, penalty {penalties[0]} to {penalties[-1]}"


def around(points: Sequence[Point], point: Point) -> list[Point]:
    """The points that a sweep lacks so that it has `point`: of the weights up to its own, and of its penalty."""
    lmwts, penalties = _axes(points)
    wider = range(min(lmwts[0], point[0]), max(lmwts[-1], point[0]) + 1)
    return [one for one in itertools.product(wider, dict.fromkeys([*penalties, point[1]])) if one not in points]


def beyond(errors: Mapping[Point, int]) -> tuple[list[Point], str]:
    """The points with which a sweep goes on beyond the edges where its lowest number of errors stands, and which edges these are.

    There are none where a point within has as few errors. A weight of 1 and a penalty of 0 are no edges, and a sweep of one weight or one
    penalty has none in that direction.
    """
    lmwts, penalties = _axes(errors)
    least = min(errors.values())
    at = [_edges(point, lmwts, penalties) for point, count in errors.items() if count == least]
    if not all(at):
        return [], ""
    edges = set.intersection(*at) or set.union(*at)  # those of all of them, or, where they stand at different ones, these
    wider, heavier, where = list(lmwts), list(penalties), list[str]()
    if Edge.HIGH_LMWT in edges:
        wider += range(lmwts[-1] + 1, lmwts[-1] + 1 + MORE_LMWTS)
        where.append(f"LMWT {lmwts[-1]}")
    if Edge.LOW_LMWT in edges:
        wider += range(max(1, lmwts[0] - MORE_LMWTS), lmwts[0])
        where.append(f"LMWT {lmwts[0]}")
    if Edge.HIGH_PENALTY in edges:
        heavier += _further(penalties[-1], penalties[-2])
        where.append(f"penalty {penalties[-1]}")
    if Edge.LOW_PENALTY in edges:
        heavier += [wip for wip in _further(penalties[0], penalties[1]) if float(wip) >= 0]
        where.append(f"penalty {penalties[0]}")
    return [point for point in itertools.product(wider, heavier) if point not in errors], " and ".join(where)


class Edge(enum.Enum):
    """An edge of a sweep."""

    LOW_LMWT = enum.auto()
    HIGH_LMWT = enum.auto()
    LOW_PENALTY = enum.auto()
    HIGH_PENALTY = enum.auto()


def _edges(point: Point, lmwts: Sequence[int], penalties: Sequence[str]) -> set[Edge]:
    """The edges at which a point stands."""
    there = {Edge.HIGH_LMWT: len(lmwts) > 1 and point[0] == lmwts[-1], Edge.LOW_LMWT: len(lmwts) > 1 and point[0] == lmwts[0] > 1,
             Edge.HIGH_PENALTY: len(penalties) > 1 and point[1] == penalties[-1],
             Edge.LOW_PENALTY: len(penalties) > 1 and point[1] == penalties[0] and float(point[1]) > 0}
    return {edge for edge, stands in there.items() if stands}


def _further(edge: str, before: str) -> list[str]:
    """The next penalties behind an edge, in the steps in which it was reached, and with as many decimals."""
    step, digits = float(edge) - float(before), max(len(text.partition(".")[2]) for text in (edge, before))
    return [f"{float(edge) + step * n:.{digits}f}" for n in range(1, 1 + MORE_PENALTIES)]


def sweep(lattices: Iterable[tuple[str, Lattice]], words: SymbolTable, points: list[Point]) -> list[Sentences]:
    """The best paths' words at each of the points."""
    lm_scale, acoustic_scale = [1.0] * len(points), [1 / lmwt for lmwt, _ in points]
    penalty = [float(wip) for _, wip in points]
    hyps: list[Sentences] = [{} for _ in points]
    for utt, lattice in lattices:
        for hyp, path in zip(hyps, best_words(lattice, lm_scale, acoustic_scale, penalty), strict=True):
            hyp[utt] = [words.symbol(w) for w in path]
    return hyps


def mbr_sweep(lattices: Iterable[tuple[str, Lattice]], words: SymbolTable, points: list[Point], beam: float = 6.0) -> list[Sentences]:
    """The words with the least expected number of errors at each of the points, of lattices pruned to `beam`."""
    hyps: list[Sentences] = [{} for _ in points]
    for utt, lattice in lattices:
        for hyp, (lmwt, wip) in zip(hyps, points, strict=True):
            own = replace(lattice, graph=(lattice.graph + float(wip) * (lattice.word != 0)).astype(np.float32))
            hyp[utt] = [words.symbol(w) for w in mbr_decode(pruned(own, beam, 1 / lmwt), 1 / lmwt).words]
    return hyps
