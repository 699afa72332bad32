"""Chooses the engine of a device: numpy on a CPU, torch on a GPU."""

from __future__ import annotations

from pykaldist import deterministic
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.engine import Engine


def make_engine(device: str = "cpu", threads: int = 1) -> Engine:
    """Make the engine for `--device`: cpu, cuda, cuda:N, or auto (cuda where there is one).

    Raises UserError for a device that is not there.
    """
    if device == "cpu" or (device == "auto" and deterministic.enabled()):
        return Engine(threads)  # without torch, whose import takes as long as a small corpus's training
    import torch

    from pykaldist.hmm.gmm.device_engine import DeviceEngine

    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return DeviceEngine(torch.device("cuda"), threads) if available else Engine(threads)
    kind, _, index = device.partition(":")
    if kind != "cuda" or not (index or "0").isdecimal():
        raise UserError(f"--device {device} is not supported; use cpu, cuda, cuda:0 or auto.")
    if int(index or 0) >= available:
        raise UserError(f"--device {device}: this machine has {available} CUDA devices; use --device cpu.")
    return DeviceEngine(torch.device(device), threads)
