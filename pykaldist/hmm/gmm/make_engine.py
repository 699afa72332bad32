"""Chooses the engine of a device: numpy on a CPU, torch on a GPU."""

from __future__ import annotations

from pykaldist.devices import take_device
from pykaldist.hmm.gmm.engine import Engine


def make_engine(device: str = "cpu", threads: int = 1) -> Engine:
    """Make the engine for `--device`: cpu, cuda, cuda:N, or auto (cuda where there is one).

    Raises UserError for a device that is not there.
    """
    found = take_device(device)
    if found == "cpu":
        return Engine(threads)  # without torch, whose import takes as long as a small corpus's training
    import torch

    from pykaldist.hmm.gmm.device_engine import DeviceEngine

    return DeviceEngine(torch.device(found), threads)
