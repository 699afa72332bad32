"""Reader of network files: pykaldist's `final.pt`, or nnet1, told apart by their first bytes."""

from __future__ import annotations

import os

from pykaldist.io.magic import is_container
from pykaldist.nnet.convert import to_nnet1
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet1 import Nnet1


def load_own(path: str | os.PathLike[str], device: str = "cpu") -> Network | None:
    """Read a final.pt, whose network computes on `device`; None where the file is another."""
    return Network.load(path, device) if is_container(path) else None


def load_nnet1(path: str | os.PathLike[str]) -> tuple[Nnet1, Nnet1 | None]:
    """Read a file as (network, feature transform) of nnet1; the transform is None where the file is nnet1 itself and has none within."""
    network = load_own(path)
    return (Nnet1.read(path), None) if network is None else to_nnet1(network)
