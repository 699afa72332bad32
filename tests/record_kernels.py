"""`python record_kernels.py FOLDER <verb> ...`: `pykaldist <verb>`, which leaves in FOLDER the types that it called kernels with."""

import os
import sys
from pathlib import Path

from pykaldist.cli import main
from pykaldist.kernels import KERNELS

folder = Path(sys.argv.pop(1))
try:
    status = main()
finally:
    called = [f"{name}\t{types}\n" for name, one in KERNELS.items() if one._dispatcher is not None for types in one.dispatcher.overloads]
    (folder / str(os.getpid())).write_text("".join(called))
sys.exit(status)
