"""Scoring a decode directory at every language model weight and word insertion penalty, from its lattices, in one pass."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pykaldist.decode.lattice import Lattice, read_decode_dir
from pykaldist.decode.paths import best_words
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.options import option
from pykaldist.progress import progress
from pykaldist.score.wer import WerStats, compute_wer, speaker_details, utterance_details


@dataclass
class SweepOptions:
    """The points of the sweep: each language model weight with each penalty."""

    min_lmwt: int = option(4, "lowest language model weight (the acoustic scale is one over it)")
    max_lmwt: int = option(20, "highest language model weight")
    word_ins_penalty: str = option("0.0,0.5,1.0", "word insertion penalties, with commas between")

    def points(self) -> list[tuple[int, str]]:
        """(lmwt, wip) pairs; the penalty as the user wrote it, for it names files."""
        if not 1 <= self.min_lmwt <= self.max_lmwt:
            raise UserError(f"expected 1 <= min-lmwt <= max-lmwt, found {self.min_lmwt} and {self.max_lmwt}.")
        penalties = [p.strip() for p in self.word_ins_penalty.split(",")]
        for p in penalties:
            if not re.fullmatch(r"-?\d+(\.\d+)?", p):
                raise UserError(f"expected numbers with commas between for --word-ins-penalty, found {self.word_ins_penalty!r}.")
        return [(lmwt, wip) for wip in penalties for lmwt in range(self.min_lmwt, self.max_lmwt + 1)]


@dataclass
class Sweep:
    """Hypotheses (utterance -> words) and counts at each point."""

    points: list[tuple[int, str]]
    hyps: list[dict[str, list[str]]]
    stats: list[WerStats]

    @property
    def best(self) -> int:
        """The point with the fewest errors, the first of equals."""
        return min(range(len(self.stats)), key=lambda i: self.stats[i].errors)


def sweep(lattices: Iterable[tuple[str, Lattice]], refs: dict[str, list[str]], words: SymbolTable, options: SweepOptions) -> Sweep:
    """Best paths at all points, scored."""
    points = options.points()
    lm_scale, acoustic_scale = [1.0] * len(points), [1 / lmwt for lmwt, _ in points]
    penalty = [float(wip) for _, wip in points]
    hyps: list[dict[str, list[str]]] = [{} for _ in points]
    for utt, lattice in lattices:
        for hyp, path in zip(hyps, best_words(lattice, lm_scale, acoustic_scale, penalty), strict=True):
            hyp[utt] = [words.symbol(w) for w in path]
    return Sweep(points, hyps, [compute_wer(refs, hyp) for hyp in hyps])


def score_dir(data: DataDir, words: SymbolTable, decode_dir: str | os.PathLike[str], options: SweepOptions) -> tuple[WerStats, Path]:
    """Score the lattices of `decode_dir`; returns the counts and the file of the best point.

    Writes `wer_<lmwt>_<wip>`, `best_wer`, and in `scoring_kaldi/` the references, the hypotheses at each point, and for the best one
    `wer_details/{lmwt,wip,per_utt,per_spk}`. Results of an earlier scoring are removed. Raises UserError where lattices or references
    are missing.
    """
    decode_dir = Path(decode_dir)
    lattices = read_decode_dir(decode_dir)
    for old in (*decode_dir.glob("wer_*_*"), decode_dir / "best_wer", decode_dir / "scoring_kaldi/best_wer"):
        old.unlink(missing_ok=True)
    refs = data.text
    result = sweep(progress(lattices, "scoring", total=len(refs), unit="utt"), refs, words, options)
    details = decode_dir / "scoring_kaldi"
    write_text(details / "test_filt.txt", _text(refs))
    for (lmwt, wip), hyps, stats in zip(result.points, result.hyps, result.stats, strict=True):
        write_text(details / f"penalty_{wip}" / f"{lmwt}.txt", _text(hyps))
        write_text(decode_dir / f"wer_{lmwt}_{wip}", str(stats))
    lmwt, wip = result.points[result.best]
    _write_details(details / "wer_details", lmwt, wip, data, result.hyps[result.best])
    best, best_file = result.stats[result.best], decode_dir / f"wer_{lmwt}_{wip}"
    for path in (details / "best_wer", decode_dir / "best_wer"):
        write_text(path, f"{best.wer_line()} {best_file}\n")
    return best, best_file


def _text(sentences: dict[str, list[str]]) -> str:
    return "".join(" ".join([utt, *words]) + "\n" for utt, words in sentences.items())


def _write_details(folder: Path, lmwt: int, wip: str, data: DataDir, hyps: dict[str, list[str]]) -> None:
    write_text(folder / "lmwt", f"{lmwt}\n")
    write_text(folder / "wip", f"{wip}\n")
    texts, counts = [], []
    for utt, hyp in hyps.items():
        text, count = utterance_details(utt, data.text[utt], hyp)
        texts.append(text)
        counts.append((data.utt2spk[utt], count))
    write_text(folder / "per_utt", "".join(texts))
    write_text(folder / "per_spk", speaker_details(counts))
