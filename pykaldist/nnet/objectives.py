"""The training objectives by their names: the classes of this room's files that derive from Objective and have a `name`."""

from __future__ import annotations

from pykaldist.nnet.objective import Objective
from pykaldist.options import discover

OBJECTIVES: dict[str, type[Objective]] = discover("pykaldist.nnet", Objective)  # type: ignore[type-abstract]  # it makes no object
