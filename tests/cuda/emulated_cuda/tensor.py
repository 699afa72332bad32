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


class Memory:
    """Bytes of a device that are taken; `given_back` is called when nothing holds them any more."""

    __slots__ = ("__weakref__", "bytes", "device", "given_back")

    def __init__(self, device: int, size: int, given_back: Callable[[Memory], None]) -> None:
        self.device, self.bytes, self.given_back = device, size, given_back

    def __del__(self) -> None:
        self.given_back(self)


class Pool(Memory):
    """The memory of graphs that share it: as much as the tensors that they made took at once, at most."""

    __slots__ = ("live",)

    def __init__(self, device: int, given_back: Callable[[Memory], None]) -> None:
        super().__init__(device, 0, given_back)
        self.live = 0

    def free(self, part: Memory) -> None:
        """A tensor that a graph has made is no longer used: the next one may lie there."""
        self.live -= part.bytes


class Allocation:
    """What the tensors of one storage share, and the graph that makes its values. `accesses`: the last ones, for `streams.py`."""

    __slots__ = ("__weakref__", "accesses", "device")

    def __init__(self, device: int) -> None:
        self.device = device
        self.accesses: list[Access] = []


class CudaTensor(torch.Tensor):
    """A tensor on an emulated device: `host` holds its values, `allocation` and `memory` are shared with its views."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    host: Tensor
    allocation: Allocation
    memory: Memory

    @staticmethod
    def __new__(cls, host: Tensor, allocation: Allocation, memory: Memory) -> CudaTensor:
        made = torch.Tensor._make_wrapper_subclass(cls, host.size(), strides=host.stride(), storage_offset=host.storage_offset(),
                                                   dtype=host.dtype, layout=host.layout, device=torch.device("cuda", allocation.device))
        made.host, made.allocation, made.memory = host, allocation, memory
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
