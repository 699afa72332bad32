"""The command `python -m pykaldist <verb>`."""

import sys

from pykaldist.cli import main, say_what

sys.exit(main(told=say_what(sys.argv[1:])))
