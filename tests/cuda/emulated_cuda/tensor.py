"""Tensors of an emulated device: wrappers of the CPU's, which compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Access(NamedTuple):
    """That a stream's kernel number `time` reads or writes the bytes from `low` to `high`."""

    low: int
    high: int
    stream: int
    time: int
    writes: bool


class Allocation:
    """A device's memory of one storage; `freed` is called when no tensor uses it any more. `accesses`: the last ones, for `streams.py`."""

    __slots__ = ("__weakref__", "accesses", "bytes", "device", "freed")

    def __init__(self, device: int, size: int, freed: Callable[[Allocation], None]) -> None:
        self.device, self.bytes, self.freed = device, size, freed
        self.accesses: list[Access] = []

    def __del__(self) -> None:
        self.freed(self)


class CudaTensor(torch.Tensor):
    """A tensor on an emulated device: `host` holds its values, `allocation` is shared with its views."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    host: Tensor
    allocation: Allocation

    @staticmethod
    def __new__(cls, host: Tensor, allocation: Allocation) -> CudaTensor:
        made = torch.Tensor._make_wrapper_subclass(cls, host.size(), strides=host.stride(), storage_offset=host.storage_offset(),
                                                   dtype=host.dtype, layout=host.layout, device=torch.device("cuda", allocation.device))
        made.host, made.allocation = host, allocation
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        from emulated_cuda.device import EmulatedCuda

        return EmulatedCuda.running().dispatch(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def pin_memory(self, device: Any = None) -> Tensor:
        raise RuntimeError(f"cannot pin '{self.dtype}' of {self.device}: only dense CPU tensors can be pinned")

    def record_stream(self, stream: Any) -> None:
        """Nothing: memory is not taken from a tensor that is used."""

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"CudaTensor({self.host!r}, device='{self.device}')"
