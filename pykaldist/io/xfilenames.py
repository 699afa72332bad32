"""Kaldi's rxfilenames and wxfilenames: where one object, or an archive, is read from and written to.

Read: a file, `FILE:OFFSET`, `-` for standard input, `command |`. Written: a file, `-` for standard output, `| command`. Commands are run by
`sh`, with the user's rights: these names stand on the command line of a program, which the user, or a recipe of the user's, has written.
Nothing that is read comes here. A file appears under its name when it is whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import IO, cast

from pykaldist.errors import UserError, named


def is_pipe(name: str) -> bool:
    """Whether a name is a command: one that begins or ends with `|`."""
    return name.rstrip().endswith("|") or name.lstrip().startswith("|")


@contextlib.contextmanager
def open_rxfilename(name: str) -> Iterator[io.BufferedReader]:
    """Open what an rxfilename names, for reading bytes; a file whose name ends in `.gz` is read through gzip.

    Raises UserError for a command that ends with an error before or after all of its output was read, and for a name that is only written.
    """
    name = name.strip()
    if name in ("", "-"):
        yield cast(io.BufferedReader, sys.stdin.buffer)
    elif name.startswith("|"):
        raise UserError(f"{name!r} is a pipe to write to; what is read from is `command |`.")
    elif name.endswith("|"):
        with _from_command(name[:-1].strip()) as stream:
            yield stream
    else:
        path, offset = split_offset(name)
        with named(path), _open_file(path) as stream:
            if offset:
                stream.seek(offset)
            yield stream


@contextlib.contextmanager
def open_wxfilename(name: str) -> Iterator[IO[bytes]]:
    """Open what a wxfilename names, for writing bytes; a file whose name ends in `.gz` is gzipped.

    Raises UserError for a command that fails, and for a name that is only read.
    """
    name = name.strip()
    if name in ("", "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif name.endswith("|"):
        raise UserError(f"{name!r} is a pipe to read from; what is written to is `| command`.")
    elif name.startswith("|"):
        with _to_command(name[1:].strip()) as stream:
            yield stream
    elif os.path.exists(name) and not os.path.isfile(name):  # /dev/null, /dev/stdout, a named pipe
        with open(name, "wb") as stream:
            yield stream
    else:
        from pykaldist.io.atomic import atomic_open

        with atomic_open(os.path.realpath(name), "wb") as stream:
            if name.endswith(".gz"):
                import gzip

                with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as zipped:
                    yield cast("IO[bytes]", zipped)
            else:
                yield stream


def split_offset(name: str) -> tuple[str, int]:
    """The file and the byte of `FILE:OFFSET`; the byte is 0 where none is given."""
    match = re.fullmatch(r"(.+):(\d+)", name, re.DOTALL)
    return (match[1], int(match[2])) if match else (name, 0)


def _open_file(path: str) -> io.BufferedReader:
    if path.endswith(".gz"):
        import gzip

        return io.BufferedReader(cast(io.RawIOBase, gzip.open(path, "rb")))
    return open(path, "rb")


def _start(command: str, closed: int, used: int, place: int) -> int:
    """Start `sh -c command` with the descriptor `used` as its descriptor `place`; returns the process id."""
    sys.stdout.flush()
    actions = [(os.POSIX_SPAWN_CLOSE, closed), (os.POSIX_SPAWN_DUP2, used, place), (os.POSIX_SPAWN_CLOSE, used)]
    return os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ, file_actions=actions, setsigdef=[signal.SIGPIPE])


@contextlib.contextmanager
def _from_command(command: str) -> Iterator[io.BufferedReader]:
    read, write = os.pipe()
    process = _start(command, read, write, 1)
    os.close(write)
    with open(read, "rb") as stream:
        yield stream
        ended = not stream.peek(1)  # who has read enough lets the command end as it will
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status and ended:
        raise _failed(command, "read from", status)


@contextlib.contextmanager
def _to_command(command: str) -> Iterator[IO[bytes]]:
    read, write = os.pipe()
    process = _start(command, write, read, 0)
    os.close(read)
    with open(write, "wb") as stream:
        yield stream
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status:
        raise _failed(command, "written to", status)


def _failed(command: str, what: str, status: int) -> UserError:
    return UserError(f"the command `{command}`, which was {what}, ended with status {status}; see what it said above, or run it by hand.")
