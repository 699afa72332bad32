"""The best paths of lattices at every language model weight and word insertion penalty, in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.mbr import mbr_decode
from pykaldist.decode.paths import best_words, pruned
from pykaldist.errors import UserError
from pykaldist.io.lang import SymbolTable
from pykaldist.options import option

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
