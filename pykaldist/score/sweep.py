"""Scoring of a decode directory at every language model weight and word insertion penalty, from its lattices, in one pass."""

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
        """The points as (lmwt, wip) pairs; the penalty stands as the user wrote it, for it names files."""
        if not 1 <= self.min_lmwt <= self.max_lmwt:
            raise UserError(f"expected 1 <= min-lmwt <= max-lmwt, found {self.min_lmwt} and {self.max_lmwt}.")
        penalties = [p.strip() for p in self.word_ins_penalty.split(",")]
        for p in penalties:
            if not re.fullmatch(r"-?\d+(\.\d+)?", p):
                raise UserError(f"expected numbers with commas between for --word-ins-penalty, found {self.word_ins_penalty!r}.")
        return [(lmwt, wip) for wip in penalties for lmwt in range(self.min_lmwt, self.max_lmwt + 1)]


@dataclass
class Sweep:
    """The result of a sweep: hypotheses (utterance -> words) and counts at each point."""

    points: list[tuple[int, str]]
    hyps: list[dict[str, list[str]]]
    stats: list[WerStats]

    @property
    def best(self) -> int:
        """The point with the fewest errors, the first of equals."""
        return min(range(len(self.stats)), key=lambda i: self.stats[i].errors)


def sweep(lattices: Iterable[tuple[str, Lattice]], refs: dict[str, list[str]], words: SymbolTable, options: SweepOptions) -> Sweep:
    """Find the best paths at all points, and score them."""
    points = options.points()
    lm_scale, acoustic_scale = [1.0] * len(points), [1 / lmwt for lmwt, _ in points]
    penalty = [float(wip) for _, wip in points]
    hyps: list[dict[str, list[str]]] = [{} for _ in points]
    for utt, lattice in lattices:
        for hyp, path in zip(hyps, best_words(lattice, lm_scale, acoustic_scale, penalty), strict=True):
            hyp[utt] = [words.symbol(w) for w in path]
    return Sweep(points, hyps, [compute_wer(refs, hyp) for hyp in hyps])


DEV_CHOSEN = "dev_chosen_wer"
"""The file of the WER at the point that a development set has chosen."""


def score_dir(data: DataDir, words: SymbolTable, decode_dir: str | os.PathLike[str], options: SweepOptions,
              dev_dir: str | os.PathLike[str] | None = None) -> tuple[WerStats, Path]:
    """Score the lattices of `decode_dir`; returns the counts and the file of the best point, or of the one that `dev_dir` chose.

    Writes `wer_<lmwt>_<wip>`, `best_wer`, and in `scoring_kaldi/` the references, the hypotheses at each point, and for the returned one
    `wer_details/{lmwt,wip,per_utt,per_spk}`. With `dev_dir`, the scored decode directory of a development set by the same system, the
    point is the best one there, and `dev_chosen_wer` has the WER at it. Results of an earlier scoring are removed. Raises UserError where
    lattices or references are missing.
    """
    decode_dir = Path(decode_dir)
    chosen = best_point(dev_dir) if dev_dir is not None else None
    if chosen is not None and chosen not in options.points():
        raise UserError(f"{dev_dir} was scored best at LMWT {chosen[0]} and insertion penalty {chosen[1]}, which is not in this sweep; "
                        "score both with the same options.")
    lattices = read_decode_dir(decode_dir)
    for old in (*decode_dir.glob("wer_*_*"), *(decode_dir / name for name in ("best_wer", DEV_CHOSEN, "scoring_kaldi/best_wer"))):
        old.unlink(missing_ok=True)
    refs = data.text
    result = sweep(progress(lattices, "scoring", total=len(refs), unit="utt"), refs, words, options)
    details = decode_dir / "scoring_kaldi"
    write_text(details / "test_filt.txt", _text(refs))
    for (lmwt, wip), hyps, stats in zip(result.points, result.hyps, result.stats, strict=True):
        write_text(details / f"penalty_{wip}" / f"{lmwt}.txt", _text(hyps))
        write_text(decode_dir / f"wer_{lmwt}_{wip}", str(stats))
    index = result.best if chosen is None else result.points.index(chosen)
    _write_details(details / "wer_details", *result.points[index], data, result.hyps[index])
    for path in (details / "best_wer", decode_dir / "best_wer"):
        write_text(path, _line(result, result.best, decode_dir))
    if chosen is not None:
        write_text(decode_dir / DEV_CHOSEN, _line(result, index, decode_dir))
    lmwt, wip = result.points[index]
    return result.stats[index], decode_dir / f"wer_{lmwt}_{wip}"


def best_point(decode_dir: str | os.PathLike[str]) -> tuple[int, str]:
    """The point (lmwt, wip) of a scored decode directory's best WER."""
    folder = Path(decode_dir) / "scoring_kaldi/wer_details"
    if not (folder / "lmwt").is_file():
        raise UserError(f"{decode_dir} has not been scored, so it cannot say which LMWT and insertion penalty to take; score it first.")
    return int((folder / "lmwt").read_text()), (folder / "wip").read_text().strip()


def _line(result: Sweep, index: int, decode_dir: Path) -> str:
    lmwt, wip = result.points[index]
    return f"{result.stats[index].wer_line()} {decode_dir / f'wer_{lmwt}_{wip}'}\n"


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
