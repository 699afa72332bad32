"""Runs src/bin/g2p.py; for recipes that call `python2.7 $KALDI_ROOT/tools/sequitur-g2p/g2p.py`, under whichever Python."""

import os
import sys

program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "src", "bin", "g2p.py")
os.execv(program, [program] + sys.argv[1:])  # noqa: RUF005  # a Python 2 may read this
