"""The comparison of stores with their checksums: beside training where they are large, and not again where nothing has touched them.

A store of a size that is read in a moment is compared at every start. A larger one is compared by a thread while training goes on. What it
finds ends the run, at the latest before the result is written. When all of it was compared, the sizes and times of its files are noted in
the experiment's folder: a run that goes on there does not read them again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text

FILE = "verified.json"
AT_ONCE = 1 << 28  # bytes of stores that are compared before training


class Store(Protocol):
    """A folder of arrays with checksums."""

    path: Path

    def verify(self) -> None:
        """Compare every file with its checksum."""

    def files(self) -> list[Path]:
        """All files that are compared."""


class Verification:
    """The comparison of stores with their checksums; `note` is the file that says which were compared. Without stores it does nothing."""

    def __init__(self, stores: Sequence[Store] = (), note: Path | None = None) -> None:
        self._stores, self._note = stores, note
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Compare small stores, and begin with large ones. Raises UserError where a small one is damaged."""
        if not self._stores:
            return
        stamps = self._stamps()
        if sum(size for size, _ in stamps.values()) <= AT_ONCE:
            self._compare()
        elif self._noted() != stamps:
            self._thread = threading.Thread(target=self._run, args=(stamps,), name="checksums", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise what has been found up to now."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Wait until all is compared; raises what was found."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def _compare(self) -> None:
        for store in self._stores:
            store.verify()

    def _run(self, stamps: dict[str, tuple[int, int]]) -> None:
        try:
            self._compare()
        except Exception as error:  # whatever it is, the thread of training raises it
            self._error = error
            return
        if self._note is not None and self._stamps() == stamps:
            write_text(self._note, json.dumps(stamps, indent=1) + "\n")

    def _stamps(self) -> dict[str, tuple[int, int]]:
        """The size and the time of the last change, in ns, of each file."""
        stamps = {}
        for path in (path for store in self._stores for path in store.files()):
            try:
                state = path.stat()
            except OSError as error:
                raise UserError(f"{path} does not exist or cannot be read ({error.strerror}); pack the store again "
                                "(steps/nnet/pack.sh).") from error
            stamps[os.path.abspath(path)] = state.st_size, state.st_mtime_ns
        return stamps

    def _noted(self) -> dict[str, tuple[int, int]] | None:
        """The sizes and times of the files that were compared; None where the note is missing or damaged."""
        if self._note is None:
            return None
        with suppress(OSError, ValueError, AttributeError, TypeError):
            found = json.loads(self._note.read_text(encoding="utf-8"))
            return {path: (int(size), int(changed)) for path, (size, changed) in found.items()}
        return None
