"""The objectives by their names."""

from __future__ import annotations

from pykaldist.nnet.ctc import Ctc
from pykaldist.nnet.objective import CrossEntropy, MeanSquareError, Objective

OBJECTIVES: dict[str, type[Objective]] = {"xent": CrossEntropy, "mse": MeanSquareError, "ctc": Ctc}
