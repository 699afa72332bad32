"""CTM files: `utterance channel start duration label [confidence]`, labels being phones or words.

A file, or a directory of `*.ctm` or `ctm.*`, gzipped or not. Which of the two the labels are is told from the language directory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.sources.base import Interval, PlainSource, SourceOptions, Times
from pykaldist.io.entries import DAMAGE, open_archive

_LINES_LOOKED_AT = 50


def recognises(path: Path) -> bool:
    """Whether `path` is a CTM file, or a directory of such."""
    return bool(_files(path))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.is_file() and "ctm" in p.name.lower().split("."))
    return [path] if "ctm" in path.name.lower().split(".") or _looks_like_ctm(path) else []


def _looks_like_ctm(path: Path) -> bool:
    try:
        with open_archive(path) as stream:
            rows = [line.decode("utf-8").split() for line, _ in zip(stream, range(_LINES_LOOKED_AT), strict=False)]
    except DAMAGE:
        return False
    return bool(rows) and any("." in row[2] for row in rows if len(row) > 2) and all(_interval(row) is not None for row in rows)


def _interval(row: list[str]) -> Interval | None:
    """The interval of a line's fields; None where they are not those of a CTM."""
    try:
        start, duration = float(row[2]), float(row[3])
    except (ValueError, IndexError):
        return None
    if len(row) not in (5, 6) or not (0 <= start < math.inf and 0 <= duration < math.inf):
        return None
    return Interval(start, start + duration, row[4])


def read(path: Path, options: SourceOptions) -> PlainSource:
    """Open the CTM files at `path` as a source."""
    return PlainSource("CTM", _utterances(_files(path), options), in_parts=True)


def _utterances(files: list[Path], options: SourceOptions) -> Iterator[tuple[str, Times]]:
    tier = {"phone": "phones", "word": "words"}.get(options.labels, "labels")
    for utt, group in itertools.groupby(_rows(files), lambda row: row[0]):  # most files have an utterance's lines together
        times = Times()
        setattr(times, tier, sorted((interval for _, interval in group), key=lambda interval: interval.start))
        yield utt, times


def _rows(files: list[Path]) -> Iterator[tuple[str, Interval]]:
    """Iterate over the lines: (utterance, label and times)."""
    for file in files:
        try:
            with open_archive(file) as stream:
                for number, line in enumerate(stream, 1):
                    row = line.decode("utf-8").split()
                    if not row or row[0].startswith(";;"):
                        continue
                    interval = _interval(row)
                    if interval is None:
                        raise UserError(f"{file}, line {number}: expected `utterance channel start duration label [confidence]`, found "
                                        f"{' '.join(row)[:60]!r}.")
                    yield row[0], interval
        except DAMAGE as error:
            raise UserError(f"{file} is no readable CTM ({error}); make it again.") from error
