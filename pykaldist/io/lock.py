"""A lock on an experiment's folder: one process at a time works in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from pykaldist.errors import UserError


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str], wait: bool = False) -> Iterator[None]:
    """Hold the lock of `folder` for the block; where another process holds it, raise UserError, or wait for its end with `wait`.

    The folder is made if need be.

    The lock goes with its process, however that ends.
    """
    path = Path(folder) / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            stream.seek(0)
            holder = stream.read().strip() or "another process"
            raise UserError(f"{folder} is in use by {holder}; wait for it, or end it, and run the same command again.") from error
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        stream.flush()
        yield
