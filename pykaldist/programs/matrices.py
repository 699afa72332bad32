"""Programs on the numbers of matrices and vectors: copies that change them, sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.archive import read_value
from pykaldist.io.table_streams import (
    RandomAccess,
    TableWriter,
    Write,
    is_table,
    read_object,
    read_table,
    write_value,
)
from pykaldist.io.xfilenames import open_wxfilename
from pykaldist.programs.command import say
from pykaldist.programs.number_lists import read_integer


def _copy(source: str, target: str, what: str, write: Write[np.ndarray], binary: bool,
          change: Callable[[np.ndarray], np.ndarray] = lambda value: value) -> int:
    if is_table(source) != is_table(target):
        raise UserError(f"{source!r} and {target!r}: expected two tables (ark:, scp:) or two files.")
    if not is_table(source):
        with open_wxfilename(target) as stream:
            write(stream, change(read_object(source, read_value)), binary)
        return 0
    with TableWriter(target, write) as out:
        for key, value in read_table(source, read_value):
            out.write(key, change(value))
    say(f"{out.count} {what} copied")
    return 0 if out.count else 1


def _scaled(value: np.ndarray, scale: float) -> np.ndarray:
    return value if scale == 1 else value * value.dtype.type(scale)


def copy_matrix(source: str, target: str, *, binary: bool = True, scale: float = 1.0, apply_log: bool = False,
                apply_exp: bool = False, apply_power: float = 1.0) -> int:
    """Copy matrices, from a table to a table or from a file to a file.

    Usage: copy-matrix [options] <rspecifier> <wspecifier> or copy-matrix [options] <file> <file>
    e.g.: copy-matrix --binary=false 1.mat -

    Options:
      --apply-log: write logarithms (default: false)
      --apply-exp: write exponentials (default: false)
      --apply-power: write powers (default: 1)
      --binary: write a file in binary form; a table says so itself (default: true)
      --scale: factor of all values, before the others (default: 1)
    """
    if apply_log + apply_exp + (apply_power != 1) > 1:
        raise UserError("--apply-log, --apply-exp and --apply-power exclude each other; choose one.")

    def changed(value: np.ndarray) -> np.ndarray:
        value = _scaled(value, scale)
        if apply_log and not (value > 0).all():
            raise UserError(f"{source}: --apply-log of values that are not above 0.")
        return np.log(value) if apply_log else np.exp(value) if apply_exp else value if apply_power == 1 else value**apply_power

    return _copy(source, target, "matrices", write_value, binary, changed)


def copy_vector(source: str, target: str, *, binary: bool = True, scale: float = 1.0, change_dim: int = -1) -> int:
    """Copy vectors, from a table to a table or from a file to a file.

    Usage: copy-vector [options] <rspecifier> <wspecifier> or copy-vector [options] <file> <file>
    e.g.: copy-vector --binary=false 1.vec -

    Options:
      --binary: write a file in binary form; a table says so itself (default: true)
      --change-dim: cut vectors to this length, or fill them with zeros (default: -1: as they are)
      --scale: factor of all values (default: 1)
    """
    def changed(value: np.ndarray) -> np.ndarray:
        value = _scaled(value, scale).reshape(-1)  # `[ ]` is read as an empty matrix
        return value if change_dim < 0 else np.pad(value[:change_dim], (0, max(change_dim - len(value), 0)))

    return _copy(source, target, "vectors", write_value, binary, changed)


def matrix_sum(first: str, *others: str, binary: bool = True, average: bool = False, scale1: float = 1.0, scale2: float = 1.0) -> int:
    """Sum matrices: of two or more tables key by key, of one table into one file, or of several files into one.

    Usage: matrix-sum [options] <rspecifier> <rspecifier> ... <wspecifier>, or <rspecifier> <file>, or <file> <file> ... <file>
    e.g.: matrix-sum scp:data/train/cmvn.scp global.cmvn

    Options:
      --average: divide by the number of matrices; not for tables key by key (default: false)
      --binary: write a file in binary form (default: true)
      --scale1: factor of the first table's matrices (default: 1)
      --scale2: factor of the second table's matrices (default: 1)
    """
    if not others:
        raise UserError("expected sources and a target.")
    *more, target = others
    if is_table(target):
        return _sum_tables([first, *more], target, [scale1, scale2])
    total: np.ndarray | None = None
    count = 0
    sources = (value for _, value in read_table(first, read_value)) if is_table(first) else (
        read_object(name, read_value) for name in (first, *more))
    for value in sources:
        wide = value.astype(np.float64)
        if total is not None and total.shape != wide.shape:
            raise UserError(f"{first}: matrices of {total.shape} and {wide.shape} cannot be summed; check that they are of one kind.")
        total = wide if total is None else total + wide
        count += 1
    if total is None:
        raise UserError(f"{first} has no matrices.")
    with open_wxfilename(target) as stream:
        write_value(stream, (total / count if average else total).astype(np.float32), binary)
    say(f"{count} matrices {'averaged' if average else 'summed'}")
    return 0


def _sum_tables(sources: list[str], target: str, scales: list[float]) -> int:
    others = [RandomAccess(source, read_value) for source in sources[1:]]
    factors = [*scales, *[1.0] * len(sources)]
    missing = 0
    with TableWriter(target, write_value) as out:
        for key, value in read_table(sources[0], read_value):
            parts = [other.get(key) for other in others]
            if any(part is None or part.shape != value.shape for part in parts):
                missing += 1
                continue
            out.write(key, sum((_scaled(part, factor) for part, factor in zip(parts, factors[1:], strict=False) if part is not None),
                               _scaled(value, factors[0])))
    say(f"{out.count} sums written, {missing} keys without a matrix of the same shape in every table")
    return 0 if out.count else 1


def matrix_sum_rows(source: str, target: str, *, do_average: bool = False) -> int:
    """Sum the rows of each matrix of a table to a vector.

    Usage: matrix-sum-rows [options] <matrix-rspecifier> <vector-wspecifier>
    e.g.: matrix-sum-rows ark:post.ark ark:- | vector-sum ark:- sum.vec

    Options:
      --do-average: divide by the number of rows (default: false)
    """
    with TableWriter(target, write_value) as out:
        for key, value in read_table(source, read_value):
            row = value.sum(axis=0, dtype=np.float64) / (max(len(value), 1) if do_average else 1)
            out.write(key, row.astype(np.float32))
    return 0 if out.count else 1


def vector_scale(source: str, target: str, *, scale: float = 1.0, binary: bool = True) -> int:
    """Multiply vectors by a number.

    Usage: vector-scale --scale=<number> <rspecifier>|<file> <wspecifier>|<file>
    e.g.: vector-scale --scale=-1.0 1.vec scaled.vec

    Options:
      --binary: write a file in binary form (default: true)
      --scale: the number (default: 1)
    """
    return _copy(source, target, "vectors", write_value, binary, lambda value: _scaled(value, scale))


def vector_sum(first: str, *others: str, binary: bool = True, average: bool = False) -> int:
    """Sum vectors: of two or more tables key by key, of one table into one file, or of several files into one.

    Usage: vector-sum [options] <rspecifier> <rspecifier> ... <wspecifier>, or <rspecifier> <file>, or <file> <file> ... <file>
    e.g.: vector-sum --binary=false ark:counts.ark -

    Options:
      --average: divide by the number of vectors; not for tables key by key (default: false)
      --binary: write a file in binary form (default: true)
    """
    return matrix_sum(first, *others, binary=binary, average=average)


def read_lengths(rspecifier: str) -> dict[str, int]:
    """Read a table of one integer for each key."""
    return dict(read_table(rspecifier, read_integer))
