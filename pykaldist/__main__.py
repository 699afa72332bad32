"""The command `python -m pykaldist <verb>`, and `pykaldist <verb>` where the package is installed."""

from pykaldist import interrupts

interrupts.start()

import sys  # noqa: E402  # after Ctrl-C has been seen to, as is all that follows

from pykaldist.cli import main, say_what  # noqa: E402  # likewise


def entry() -> None:
    """Run the command line, and end with its exit status."""
    sys.exit(main(told=say_what(sys.argv[1:])))


if __name__ == "__main__":
    entry()
