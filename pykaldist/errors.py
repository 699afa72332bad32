"""The exceptions that the command line turns into a sentence and a non-zero exit status."""

from __future__ import annotations


class UserError(Exception):
    """An error that the user can mend: bad input, a bad option, a missing file.

    The message is one sentence that names the file (and utterance), what was expected and found, and the likely cure.
    `pykaldist <verb>` prints it without a traceback and exits with status 1.
    """


class Abandoned(Exception):
    """The signal that the epoch under way is given up, by all workers of a job at one safe point.

    What they had under way is to be forgotten.
    """


class ProcessLostError(Exception):
    """The error that another process of the job has ended, or cannot be reached any more.

    The same command goes on from the last checkpoint.
    """


class Terminated(BaseException):
    """SIGTERM as an exception, so that unfinished files are cleaned up on the way out; exit status 143."""
