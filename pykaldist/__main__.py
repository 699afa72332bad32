"""`python -m pykaldist <verb>`."""

import sys

from pykaldist.cli import main

sys.exit(main())
