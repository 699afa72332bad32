"""Results of which the next one is made while this one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Iterate over the results of tasks. A thread begins with the next task when the result of the one before is asked for."""
    with ThreadPoolExecutor(1, thread_name_prefix="frames") as pool:
        made: Future[T] | None = None
        for task in tasks:
            following = pool.submit(task)
            if made is not None:
                yield made.result()
            made = following
            del following  # what is used up is freed before the next result is waited for
        if made is not None:
            yield made.result()
