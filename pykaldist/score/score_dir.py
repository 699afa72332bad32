"""Scoring of a decode directory, with the files and stages of Kaldi's score_kaldi_wer.sh and score_kaldi_cer.sh.

Stage 0 writes the hypotheses at each point of the sweep, `scoring_kaldi/penalty_<wip>/<lmwt>.txt`, and the references,
`scoring_kaldi/test_filt.txt`, both as the recipe's own filters leave them, and counts their errors. A later stage takes the hypotheses that
are there. Character error rates are those of the same texts, cut into characters.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pykaldist.decode.lattice import read_decode_dir
from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.options import option
from pykaldist.progress import notice, progress
from pykaldist.score.alignment import align
from pykaldist.score.bootstrap import bootstrap_lines, count_errors
from pykaldist.score.details import operation_details, speaker_details, utterance_details
from pykaldist.score.sweep import WIDENINGS, Point, Sentences, SweepOptions, around, beyond, extent, mbr_sweep, sweep
from pykaldist.score.wer import WerStats, compute_wer

DEV_CHOSEN = "dev_chosen_wer"
"""The file of the WER at the point that a development set has chosen."""
DATA_FILES = ("text", "utt2spk")
"""The files of the data directory that a scoring is of; `scoring_kaldi/inputs.json` says where they are."""
WHOLE = re.compile(r"\[.*\]|<.*>|!SIL")
"""Words that are one character: noises and the like."""


@dataclass
class ScoreOptions(SweepOptions):
    """How a decode directory is scored."""

    stage: int = option(0, "0: hypotheses from the lattices, and all; from 1: errors of hypotheses that are there")
    unit: str = option("word", "whose errors are counted", choices=("word", "char"))
    stats: bool = option(True, "write the details of the best point")
    widen: bool = option(True, "go on beyond an edge of the sweep where the lowest error rate stands there")
    decode_mbr: bool = option(False, "hypotheses with the least expected number of errors, in place of best paths")
    beam: float = option(6.0, "of lattices, with --decode-mbr")
    ref_filtering_cmd: str = option("", "command that the references go through: <utterance> <word>... a line, in and out")
    hyp_filtering_cmd: str = option("", "command that the hypotheses go through, likewise")
    character_tokenizer: str = option("", "command that cuts words into characters; without it, every character but of <x> and [x]")

    @property
    def rate(self) -> str:
        """How files of this unit begin."""
        return "wer" if self.unit == "word" else "cer"


def score_dir(data: DataDir, words: SymbolTable, decode_dir: str | os.PathLike[str], options: ScoreOptions,
              dev_dir: str | os.PathLike[str] | None = None) -> tuple[WerStats, Path]:
    """Score the lattices of `decode_dir`; returns the counts and the file of the best point, or of the one that `dev_dir` chose.

    Writes `wer_<lmwt>_<wip>`, `best_wer`, and in `scoring_kaldi/` the references, the hypotheses at each point, and for the returned one
    `wer_details/{lmwt,wip,per_utt,per_spk,ops,wer_bootci}`; of characters, `cer` in place of `wer`. With `dev_dir`, the scored decode
    directory of a development set by the same system, the point is the best one there, and `dev_chosen_wer` has the WER at it. Without,
    the sweep goes on beyond an edge where its lowest error rate stands, unless the options say otherwise. Results of an earlier scoring are
    removed. Raises UserError where lattices, hypotheses or references are missing, or a filter fails.
    """
    decode_dir, points = Path(decode_dir), options.points()
    chosen = best_point(dev_dir) if dev_dir is not None else None
    if chosen is not None and chosen not in points:
        if not options.widen:
            raise UserError(f"{dev_dir} was scored best at LMWT {chosen[0]} and insertion penalty {chosen[1]}, which is not in this sweep; "
                            "score both with the same --min-lmwt, --max-lmwt and --word-ins-penalty.")
        points += around(points, chosen)
    rate, details = options.rate, decode_dir / "scoring_kaldi"
    lattices = _Lattices(decode_dir, words, options, len(data.text)) if options.stage <= 0 else None
    results = (f"best_{rate}", DEV_CHOSEN, f"scoring_kaldi/best_{rate}")
    for old in (*decode_dir.glob(f"{rate}_*_*"), *(decode_dir / name for name in results)):
        old.unlink(missing_ok=True)
    refs = _filtered(dict(data.text), options.ref_filtering_cmd)
    units = _characters if options.unit == "char" else lambda sentences, _: sentences
    counted = units(refs, options)
    write_text(details / "test_filt.txt", _text(refs))
    if options.unit == "char":
        write_text(details / "test_filt.chars.txt", _text(counted))
    provenance.record(details, "steps/score_kaldi.sh", [data.path / name for name in DATA_FILES])
    hyps: dict[Point, Sentences] = {}
    stats: dict[Point, WerStats] = {}

    def score(some: list[Point]) -> None:
        """Score the hypotheses of points: those of the lattices, or those that are there."""
        if lattices is not None:
            found = lattices.hypotheses(some)
        else:
            found = [_read(details / f"penalty_{wip}" / f"{lmwt}.txt") for lmwt, wip in some]
        for point, hyp in zip(some, found, strict=True):
            lmwt, wip = point
            hyps[point] = units(hyp, options)
            stats[point] = compute_wer(counted, hyps[point])
            if lattices is not None:
                write_text(details / f"penalty_{wip}" / f"{lmwt}.txt", _text(hyp))
            if options.unit == "char":
                write_text(details / f"penalty_{wip}" / f"{lmwt}.chars.txt", _text(hyps[point]))
            write_text(decode_dir / f"{rate}_{lmwt}_{wip}", str(stats[point]))

    score(points)
    if chosen is None:
        _beyond_edges(stats, score, options.widen and lattices is not None)
    best = min(stats, key=lambda point: stats[point].errors)  # the first of equals
    reported = best if chosen is None else chosen
    lines = [f"{stats[point].wer_line()} {decode_dir / f'{rate}_{point[0]}_{point[1]}'}\n" for point in (best, reported)]
    if options.stats:
        _write_details(details / f"{rate}_details", reported, counted, hyps[reported], data.utt2spk, rate)
    for path in (details / f"best_{rate}", decode_dir / f"best_{rate}"):
        write_text(path, lines[0])
    if chosen is not None:
        write_text(decode_dir / DEV_CHOSEN, lines[1])
    return stats[reported], decode_dir / f"{rate}_{reported[0]}_{reported[1]}"


class _Lattices:
    """The lattices of a decode directory, which give hypotheses at any points; raises UserError where there are none."""

    def __init__(self, decode_dir: Path, words: SymbolTable, options: ScoreOptions, total: int) -> None:
        read_decode_dir(decode_dir)
        self._decode_dir, self._words, self._options, self._total = decode_dir, words, options, total

    def hypotheses(self, points: list[Point]) -> list[Sentences]:
        """The hypotheses at points, as the recipe's filter leaves them."""
        decode = partial(mbr_sweep, beam=self._options.beam) if self._options.decode_mbr else sweep
        lattices = progress(read_decode_dir(self._decode_dir), "scoring", total=self._total, unit="utt")
        return [_filtered(one, self._options.hyp_filtering_cmd) for one in decode(lattices, self._words, points)]


def _beyond_edges(stats: dict[Point, WerStats], score: Callable[[list[Point]], None], widen: bool) -> None:
    """Say that the lowest error rate stands at an edge of the sweep, and score points beyond it, some at a time, until it does not."""
    for _ in range(WIDENINGS if widen else 0):
        more, where = beyond({point: one.errors for point, one in stats.items()})
        if not more:
            return
        score(more)
        notice(f"the lowest error rate stands at the edge of the sweep ({where}), which goes on to {extent(stats)}")
    more, where = beyond({point: one.errors for point, one in stats.items()})
    if more:
        notice(f"WARNING: the lowest error rate stands at the edge of the sweep ({where}); score with a wider one (--min-lmwt, --max-lmwt, "
               "--word-ins-penalty).")


def best_point(decode_dir: str | os.PathLike[str]) -> Point:
    """The point (lmwt, wip) of a scored decode directory's best WER."""
    folder = Path(decode_dir) / "scoring_kaldi/wer_details"
    if not (folder / "lmwt").is_file():
        raise UserError(f"{decode_dir} has not been scored, so it cannot say which LMWT and insertion penalty to take; score it first "
                        "(steps/score_kaldi.sh).")
    return int((folder / "lmwt").read_text()), (folder / "wip").read_text().strip()


def _text(sentences: Sentences) -> str:
    return "".join(" ".join([utt, *words]) + "\n" for utt, words in sentences.items())


def _sentences(text: str) -> Sentences:
    return {fields[0]: fields[1:] for fields in map(str.split, text.splitlines()) if fields}


def _read(path: Path) -> Sentences:
    if not path.is_file():
        raise UserError(f"{path} does not exist; score from stage 0, with the same --min-lmwt, --max-lmwt and --word-ins-penalty.")
    return _sentences(path.read_text(encoding="utf-8"))


def _filtered(sentences: Sentences, command: str) -> Sentences:
    """Sentences as a command of the recipe leaves them."""
    if not command:
        return sentences
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], input=_text(sentences).encode(), capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"the filter `{command}` ended with status {done.returncode}" + (f" ({said[-1]})" if said else "")
                        + "; run it by hand on lines of <utterance> <word>...")
    return _sentences(done.stdout.decode())


def _characters(sentences: Sentences, options: ScoreOptions) -> Sentences:
    if options.character_tokenizer:
        return _filtered(sentences, options.character_tokenizer)
    return {utt: [char for word in words for char in ([word] if WHOLE.search(word) else word)] for utt, words in sentences.items()}


def _write_details(folder: Path, point: Point, refs: Sentences, hyps: Sentences, utt2spk: Mapping[str, str], rate: str) -> None:
    write_text(folder / "lmwt", f"{point[0]}\n")
    write_text(folder / "wip", f"{point[1]}\n")
    alignments = {utt: align(refs[utt], hyp) for utt, hyp in hyps.items()}
    described = {utt: utterance_details(utt, pairs) for utt, pairs in alignments.items()}
    write_text(folder / "per_utt", "".join(text for text, _ in described.values()))
    write_text(folder / "per_spk", speaker_details((utt2spk[utt], count) for utt, (_, count) in described.items()))
    write_text(folder / "ops", operation_details(alignments.values()))
    write_text(folder / f"{rate}_bootci", bootstrap_lines([count_errors(refs, hyps)], np.random.default_rng(0)))
