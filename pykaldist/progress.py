"""The progress bar that all commands use.

A bar on a terminal, a plain line every ten seconds elsewhere, both with rate and time left. Under `$cmd`, whose stderr is a log file,
the job that may draw is told so by PYKALDIST_PROGRESS_FD, the number of an inherited descriptor that leads to the user's terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

PLAIN_INTERVAL_S = 10.0


def _stream() -> TextIO:
    fd = os.environ.get("PYKALDIST_PROGRESS_FD", "")
    if fd.isdigit():
        try:
            return os.fdopen(os.dup(int(fd)), "w", buffering=1)
        except OSError:
            pass
    return sys.stderr


def notice(text: str) -> None:
    """Print on the user's terminal, or in the log, why something takes its time."""
    stream = _stream()
    clear = "\r\x1b[K" if stream.isatty() else ""  # a bar may stand there
    print(f"{clear}{text}", file=stream, flush=True)
    if stream is not sys.stderr:
        stream.close()


class Progress:
    """A counter with a bar: `with Progress("aligning", total=948, unit="utt") as bar: ... bar.update(1)`."""

    def __init__(self, desc: str, total: int | None = None, unit: str = "it") -> None:
        self.desc, self.total, self.unit, self.count = desc, total, unit, 0
        self.note = ""
        self._stream = _stream()
        self._own = self._stream is not sys.stderr  # now: where a bar is left, sys.stderr may be another when it is closed
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        if self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=desc, unit=unit, file=self._stream, leave=False, dynamic_ncols=True,
                             delay=0.5)

    def update(self, n: int = 1, note: str = "") -> None:
        """Count `n` more units; `note` (a loss, say) stands behind the bar."""
        self.count += n
        self.note = note or self.note
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(n)
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_INTERVAL_S:
            self._last = now
            print(f"{self.desc}: {self._plain(now - self._start)} {self.note}".rstrip(), file=self._stream, flush=True)

    def _plain(self, seconds: float) -> str:
        """The progress as text, such as `120/483 (25 %) utt, 31 s, 3.9 utt/s, 94 s left`."""
        rate = self.count / seconds
        of = f"/{self.total} ({100 * self.count / self.total:.0f} %)" if self.total else ""
        left = f", {(self.total - self.count) / rate:.0f} s left" if self.total and rate > 0 else ""
        return f"{self.count}{of} {self.unit}, {seconds:.0f} s, {rate:.{max(0, 2 - len(str(int(rate))))}f} {self.unit}/s{left}"

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._own:
            self._stream.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def progress(items: Iterable[T], desc: str, total: int | None = None, unit: str = "it") -> Iterator[T]:
    """Iterate over `items`, and draw a bar meanwhile."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # type: ignore[arg-type]  # has __len__
    with Progress(desc, total, unit) as bar:
        for item in items:
            yield item
            bar.update()
