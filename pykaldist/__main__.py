"""The command `python -m pykaldist <verb>`, and `pykaldist <verb>` where the package is installed."""

from pykaldist import interrupts

interrupts.start()

import os  # noqa: E402  # after Ctrl-C has been seen to
import sys  # noqa: E402  # after Ctrl-C has been seen to

from pykaldist.cli import main, say_what  # noqa: E402  # after Ctrl-C has been seen to


def entry() -> None:
    """Run the command line, and end with its exit status. What reads its output may have read enough before that, as `head` does."""
    status: str | int | None = 0
    try:
        try:
            status = main(told=say_what(sys.argv[1:]))
        except SystemExit as end:  # of a --help
            status = end.code
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    entry()
