"""The devices that this process sees, and the one that `--device` names.

PyTorch takes two seconds to import; it is asked only where a GPU may be meant.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from pykaldist import deterministic
from pykaldist.errors import UserError

if TYPE_CHECKING:
    import torch

NAME = re.compile(r"(auto|cpu|cuda)|cuda:(\d+)")


def parse_device(name: str) -> tuple[str, int | None]:
    """Parse `--device` to (auto, cpu or cuda; the device's number, None where none is named). Raises UserError for other names."""
    match = NAME.fullmatch(name)
    if match is None:
        raise UserError(f"--device {name} is not supported; use cpu, cuda, cuda:0 or auto.")
    return (match[1], None) if match[1] else ("cuda", int(match[2]))


def num_visible() -> int:
    """The number of CUDA devices that this process sees."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_device(name: str, number: int = 0) -> str:
    """The device that `--device` names, as "cpu" or "cuda:1", for a process that shares nothing with others.

    Of a machine with several devices, jobs number 0, 1, ... take them in turn. `auto` is cuda where there is a device, but cpu in the
    deterministic mode. Raises UserError for a device that is not there.
    """
    kind, index = parse_device(name)
    if kind == "cpu" or (kind == "auto" and deterministic.enabled()):
        return "cpu"
    visible = num_visible()
    if kind == "auto" and not visible:
        return "cpu"
    if (index or 0) >= visible:
        raise UserError(f"--device {name}: this machine has {visible} CUDA devices; use --device cpu.")
    return f"cuda:{number % visible if index is None else index}"


def take_device(name: str, number: int = 0) -> str:
    """Choose a device as `choose_device` does, and make it the current one of this thread, which computes there.

    PyTorch's own kernels find the device of their tensors; others, such as Triton's, are launched on the current one.
    """
    device = choose_device(name, number)
    if device != "cpu":
        import torch

        torch.cuda.set_device(device)
    return device


def computing_on(device: torch.device | str) -> AbstractContextManager[object]:
    """Make a device the current one of this thread as long as something computes there.

    For what may be called from any thread, as the requests of a server are: each begins with the first device.
    """
    if not str(device).startswith("cuda"):
        return nullcontext()
    import torch

    return torch.cuda.device(device)


def device_name(number: int) -> str:
    """A name of CUDA device `number` of this process that is its name in every other process of the machine, too.

    It is the device's UUID, or its number with a PyTorch that does not tell it.
    """
    import torch

    return str(getattr(torch.cuda.get_device_properties(number), "uuid", number))
