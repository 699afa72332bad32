"""The exceptions that the command line turns into a sentence and a non-zero exit status."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend: bad input, a bad option, a missing file.

    The message is one sentence that names the file (and utterance), what was expected and found, and the likely cure.
    `pykaldist <verb>` prints it without a traceback and exits with status 1.
    """


class Abandoned(Exception):
    """The epoch under way is given up, by all workers of a job at one safe point; what they had under way is to be forgotten."""


class ProcessLostError(Exception):
    """Another process of the job has ended, or cannot be reached any more; the same command goes on from the last checkpoint."""


class Terminated(BaseException):
    """SIGTERM, as an exception, so that files in the making are cleaned up on the way out; exit status 143."""
