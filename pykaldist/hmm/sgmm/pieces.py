"""Sums over pieces of a corpus, made by threads: in the pieces' order, so that they do not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

PART = 8192  # frames that are worked on at a time


def sum_pieces(work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]], threads: int) -> Any:
    """The sum of `work(*piece)` over all pieces, a kind of value that has `+`; None where there is no piece."""
    total, rest = None, iter(pieces)
    with ThreadPoolExecutor(threads) as pool:
        while some := list(islice(rest, threads)):
            for found in pool.map(lambda piece: work(*piece), some):
                total = found if total is None else total + found
    return total
