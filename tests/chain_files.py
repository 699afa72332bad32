"""Readers of what Kaldi recorded about chain models: FSTs as text, gzipped archives, objectives."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np

from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive


def text_fst(lines: list[str]) -> Fst:
    """An FST of the lines that fstprint writes; the first line's state is the start."""
    rows = [line.split() for line in lines]
    arcs = [row for row in rows if len(row) >= 4]
    states = 1 + max(max(int(row[0]), int(row[1])) for row in arcs)
    final = np.full(states, np.inf)
    for row in rows:
        if len(row) < 3:
            final[int(row[0])] = float(row[1]) if len(row) > 1 else 0.0
    source, to, ilabel, olabel = (np.array([int(row[n]) for row in arcs]) for n in range(4))
    return Fst.from_arcs(int(rows[0][0]), final, source, ilabel, olabel, np.array([float((*row, 0)[4]) for row in arcs]), to)


def fsts(path: Path) -> dict[str, tuple[Fst, int]]:
    """The FSTs of a text file, by their keys, each with its number of frames (0 where it has none)."""
    found: dict[str, tuple[Fst, int]] = {}
    key, lines, frames = "", [], 0
    for line in [*gzip.decompress(path.read_bytes()).decode("latin-1").splitlines(), "end end end"]:
        if re.fullmatch(r"\d+(\s+\S+)*", line.strip()):
            lines.append(line)
            continue
        if lines:
            found[key], lines = (text_fst(lines), frames), []
        name = re.search(r"(\S+) <(?:Nnet3ChainEg|Supervision)>", line) or re.fullmatch(r"([a-z]\S*) ?", line)
        key = name.group(1) if name and not name.group(1).isdigit() else key
        count = re.search(r"<FramesPerSeq> (\d+)", line)
        frames = int(count.group(1)) if count else frames
    return found


def matrices(path: Path, tmp_path: Path) -> dict[str, np.ndarray]:
    """The matrices of a gzipped archive."""
    (tmp_path / "plain.ark").write_bytes(gzip.decompress(path.read_bytes()))
    return dict(read_archive(tmp_path / "plain.ark"))


def objectives(path: Path) -> dict[str, dict[str, float]]:
    """The numbers of a file of objectives, by minibatch and name."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0]: dict(zip(row[1::2], map(float, row[2::2]), strict=True)) for row in rows}
