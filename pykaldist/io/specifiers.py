"""Rspecifiers and wspecifiers of verbs that are no program of Kaldi's: `ark:FILE`, `ark,t:FILE`, `-` for standard input or output.

Matrices can also be read by `scp:FILE`. A plain path is an archive too. FILE may have wildcards where it is read
(`ark:exp/mono/ali.*.gz`), and is gzipped if its name ends in `.gz`. Options that say how a table is sorted (`s`, `cs`, `o`, `p`, `bg`)
change nothing here and are accepted. Pipes are refused; Kaldi's programs run them (table_streams.py).
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.sums import SUFFIX
from pykaldist.io.tables import MatrixReader, read_archive

_FORM = re.compile(r"ark((?:,(?:t|b|s|ns|cs|ncs|o|no|p|np|f|nf|bg))*):(.*)", re.DOTALL)


def read_paths(rspecifier: str) -> list[str]:
    """The files that an rspecifier names, in the order of the numbers in their names; raises UserError where there is none."""
    _, path = _split(rspecifier, "gzipped archives and wildcards can be given directly")
    if path == "-":
        return [path]
    found = [name for name in glob.glob(path) if not name.endswith(SUFFIX) or name == path]
    if not found:
        raise UserError(f"{path} does not exist (in {rspecifier!r}); check the path.")
    return sorted(found, key=lambda p: [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", p)])


def read_matrices(rspecifier: str) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over (key, matrix or vector) of an archive or of an scp file."""
    match = re.fullmatch(r"scp(?:,\w+)*:(.*)", rspecifier)
    if match and "|" not in rspecifier:
        yield from MatrixReader(match[1]).items()
    else:
        for path in read_paths(rspecifier):
            yield from read_archive(path)


def write_path(wspecifier: str) -> tuple[str, bool]:
    """The file that a wspecifier names, and whether it is to be binary."""
    options, path = _split(wspecifier, "end the name in .gz for a gzipped archive")
    return path, "t" not in options


def _split(specifier: str, instead: str) -> tuple[list[str], str]:
    if "|" in specifier:
        raise UserError(f"{specifier!r} is a pipe, which is not run here; {instead}.")
    if re.match(r"(ark,)?scp\b.*:", specifier):
        raise UserError(f"{specifier!r}: expected an archive (ark:FILE); an scp is not read or written here.")
    match = _FORM.fullmatch(specifier)
    options, path = (match[1].split(","), match[2]) if match else ([], specifier)
    if not path or re.match(r"ark[^/.]*:", path):
        raise UserError(f"{specifier!r}: expected ark:FILE, ark,t:FILE or FILE.")
    return options, path
