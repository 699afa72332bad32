"""The exceptions that the command line turns into a sentence and a non-zero exit status.

Only small modules are imported here, for the text tools (pykaldist/io/text_tools) take hardly longer than Python's own start.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

DEVICE_CURE = ("use a smaller --minibatch-size (--num-streams, --num-chunk-per-minibatch for sequences) or network, or fewer workers a "
               "process (--ngpu, --nproc)")

MOST_NAMED = 8  # processes in a sentence


MADE = "what makes it, a recipe's ./run.sh --dry-run true prints"  # of a file that a stage makes
AGAIN = f"make it again; {MADE}"
FEATURES = "steps/make_mfcc.sh, steps/make_fbank.sh"  # scripts, where several make or take something
DECODING = "steps/decode.sh, steps/decode_fmllr.sh, steps/nnet3/decode.sh"
ALIGNING = "steps/align_fmllr.sh, steps/nnet/align.sh"
IVECTORS = "steps/online/nnet2/extract_ivectors_online.sh"
LANG_AGAIN = "make the language directory again (utils/prepare_lang.sh)"


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


class NotMetError(ProcessLostError):
    """The error that the processes of a job have not met at its start. The message is a sentence, and names those that are missing."""


class Terminated(BaseException):
    """SIGTERM as an exception, so that unfinished files are cleaned up on the way out; exit status 143.

    Its text, where it has one, says how to go on; else the same command does.
    """


_OF_THE_MACHINE = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.EAGAIN}


def of_the_machine(error: BaseException) -> bool:
    """True for an error that tells nothing of the file: another try may read it (a disk that fails, too many open files)."""
    return isinstance(error, OSError) and error.errno in _OF_THE_MACHINE


class named:  # it is used as a function is
    """Give an OSError of reading `path`, in a `with` block, the file's name, which the system tells of opening only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, OSError) and error.errno is not None:  # else it is a library's, of what it has read
            error.filename = error.filename or str(self.path)


def out_of_memory_sentence(error: RuntimeError) -> str | None:
    """A sentence about memory that PyTorch asked for and did not get, on a GPU or on the host; None for another error."""
    if "torch" not in sys.modules:
        return None
    import re

    from torch.cuda import OutOfMemoryError

    text = str(error)
    if not isinstance(error, OutOfMemoryError) and "can't allocate memory" not in text:
        return None
    wanted = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", text)
    device = re.search(r"GPU \d+", text)
    where = "the device" if isinstance(error, OutOfMemoryError) else "the host"
    return (f"{device[0] if device else where} is out of memory{f', when {wanted[1]} more were asked for' if wanted else ''}; "
            f"{DEVICE_CURE}; end what else runs there.")


def quoted(path: object) -> str:
    """A path as it is pasted into a shell."""
    import shlex  # text tools start without it

    return shlex.quote(str(path))


def to_utf8(path: object) -> str:
    """How a file of text is converted to UTF-8, as a cure."""
    return f"convert it (of Latin-1: iconv -f latin1 -t utf-8 {quoted(path)} > FILE)"


def process_names(ranks: Sequence[int], known: Mapping[int, str]) -> str:
    """Processes in words: "process 2 on n2 (pid 7), process 3", as far as they are known."""
    some = [known.get(rank, f"process {rank}") for rank in ranks[:MOST_NAMED]]
    return ", ".join(some) + f" and {len(ranks) - MOST_NAMED} more" * (len(ranks) > MOST_NAMED)


def missing_sentence(size: int, missing: Sequence[int], known: Mapping[int, str], seconds: float) -> str:
    """The sentence about processes of `size` that are missing. `known`: those that have come, in words."""
    absent = [rank for rank in missing if rank not in known]
    if not absent:
        return f"{process_names(missing, known)} of {size} processes came and then said nothing for {seconds:g} s, while all were to meet"
    there = f"; there {'are' if len(known) > 1 else 'is'} {process_names(sorted(known), known)}" if known else ""
    have = "have" if len(absent) > 1 else "has"
    return f"{process_names(absent, known)} of {size} processes {have} not come to meet the others within {seconds:g} s{there}"


def missing_package_sentence(error: ModuleNotFoundError) -> str:
    """A sentence about a package that this Python lacks; a module of pykaldist that is missing is a fault, and raised."""
    package = (error.name or "pykaldist").partition(".")[0]
    if package == "pykaldist":
        raise error
    return (f"this needs the package {package}, which {sys.executable} does not have; "
            f"install it with: {sys.executable} -m pip install {package}")


def os_error_sentence(error: OSError) -> str:
    """A sentence about what the operating system has refused."""
    name = error.filename2 or error.filename  # of a copy and of a renaming what was to be written
    where = f" {name}" if name else ""
    if error.errno == errno.ENOSPC:
        return f"no space left on the device while writing{where}; free some space and run the same command again."
    if error.errno in (errno.EFBIG, errno.EDQUOT):
        return f"a limit on file size or disk quota was reached while writing{where}; raise it and run the same command again."
    if error.errno == errno.ENOENT:
        return f"{error.filename} does not exist; check the path; {MADE}."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no permission for{where}; check its owner and mode."
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"too many open files, when{where or ' one'} was to be opened; raise the limit (ulimit -n) and run the same command again."
    if error.errno == errno.EIO:
        return (f"input/output error at{where or ' its output'}; see what the system says of the disk (dmesg), "
                "and run the same command again.")
    return f"{error.strerror or error}{where}."
