"""Ctrl-C: however early or late it comes, the command line ends with status 130 and one line.

While modules are imported, and while Python ends, there is nothing to clean up: the process ends at once. An exception there would come out
of other packages' code as a traceback, or not at all. While a verb works, Ctrl-C is Python's KeyboardInterrupt, which cleans up on the way
out. It can be lost there, in a callback that C calls; then the process ends at once, too.

`start` comes before all other imports. What happens before it, in the 15 ms of the interpreter's own start, is no code of ours; so
utils/pykaldist starts Python with SIGINT blocked, which waits until `start` lets it through.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType, TracebackType


GO_ON = "run the same command again to go on"


def line(verb: str, how: str = "") -> str:
    """The line that says that Ctrl-C has ended a verb, and how to go on; none where a script says it (utils/shared/guard.sh)."""
    return "" if "PYKALDIST_STARTED_BY" in os.environ else f"pykaldist {verb}: interrupted; {how or GO_ON}.\n"


def end_at_once(signum: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Say the line, and end this process."""
    try:
        os.write(2, line(" ".join(sys.argv[1:2])).encode())
    finally:
        os._exit(128 + signal.SIGINT)


def start() -> None:
    """Let Ctrl-C end this process at once from now on, unless it is ignored, as in a background command; `Working` has it clean up.

    In a process of a job Ctrl-C is its launcher's.
    """
    if "PYKALDIST_JOB" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    elif signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, end_at_once)
        sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Working:
    """A context in which there is something to clean up: Ctrl-C is KeyboardInterrupt."""

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before == end_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception that nothing has caught, as Python does, but for Ctrl-C."""
    if issubclass(kind, KeyboardInterrupt):
        end_at_once()
    sys.__excepthook__(kind, error, trace)


def _unraisable(unraisable: UnraisableHookArgs) -> None:
    """Print an exception that Python cannot raise where it arose, as Python does, but for Ctrl-C."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        end_at_once()
    sys.__unraisablehook__(unraisable)
