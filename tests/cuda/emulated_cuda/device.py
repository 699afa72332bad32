"""The emulation itself: what stands in the place of `torch.cuda`, and what becomes of each operation."""

from __future__ import annotations

import collections
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from emulated_cuda import autograd, graphs, guard, streams
from emulated_cuda.rules import LAUNCHES_NOTHING, arithmetic, needs_the_host
from emulated_cuda.signature import changed, leaves, signature
from emulated_cuda.tensor import Allocation, CudaTensor, Memory, Pool

GIB = 1 << 30


class _Mode(TorchDispatchMode):
    """Shows the emulation all operations, those of the host too."""

    def __init__(self, cuda: EmulatedCuda) -> None:
        super().__init__()
        self._cuda = cuda

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and a look at each call whether it is takes its time."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return self._cuda.dispatch(func, args, kwargs or {})


class _Generator(torch.Generator):
    """Random numbers of the host, which say that they are the device's."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        made.place = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:
        return self.place

    def manual_seed(self, seed: int) -> torch.Generator:
        if self.place.type == "cuda" and EmulatedCuda.running().recording is not None:
            raise RuntimeError("a generator of the device cannot be seeded while a graph is recorded")
        return super().manual_seed(seed)


class _ThreadState(threading.local):
    """What each thread has of its own: its current device, its current streams, and the graph that it records."""

    device = 0
    recording: graphs.CUDAGraph | None = None

    def __init__(self) -> None:
        self.streams: dict[int, streams.Stream] = {}


class EmulatedCuda:
    """An emulated CUDA device, or several; a context manager, one at a time. `memory`: bytes of each device.

    `launches`: kernels, copies and replays since the last `reset`; `kernels`: the same by name; `synchronisations`: of the thread that
    began the emulation, by what asked for them. `pools`: the memory pool of each graph that was recorded.
    """

    _running: ClassVar[EmulatedCuda | None] = None

    def __init__(self, devices: int = 1, memory: int = 80 * GIB) -> None:
        self.devices, self.memory = devices, memory
        self.streams = streams.Streams()
        self.pools: list[tuple[int, int]] = []
        self._default_streams = [self.streams.new() for _ in range(devices)]
        self._thread, self._lock, self._owner = _ThreadState(), threading.RLock(), threading.get_ident()
        self._sync_debug_mode = 0
        self._pinned: dict[int, StorageWeakRef] = {}
        self._pools: weakref.WeakValueDictionary[tuple[int, ...], Pool] = weakref.WeakValueDictionary()
        self._allocated, self._most_allocated = [0] * devices, [0] * devices
        self.reset()

    @classmethod
    def running(cls) -> EmulatedCuda:
        if cls._running is None:
            raise RuntimeError("a tensor of an emulated device is used after the emulation has ended")
        return cls._running

    def reset(self) -> None:
        """Begin to count anew."""
        self.launches = 0
        self.kernels: collections.Counter[str] = collections.Counter()
        self.synchronisations: collections.Counter[str] = collections.Counter()

    # What stands in the place of torch.cuda

    def __enter__(self) -> EmulatedCuda:
        assert EmulatedCuda._running is None, "one emulation at a time"
        EmulatedCuda._running = self
        if guard.missing:
            raise RuntimeError(guard.missing)
        only_lift = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        tf32 = torch.backends.cuda.matmul.allow_tf32
        self._stack = ExitStack()
        self._stack.callback(setattr, torch.backends.cuda.matmul, "allow_tf32", tf32)
        self._stack.callback(torch._C._set_only_lift_cpu_tensors, only_lift)
        self._stack.enter_context(mock.patch.multiple(torch.cuda, create=True, **self._torch_cuda()))
        self._stack.enter_context(mock.patch.object(torch.backends.cuda, "is_built", lambda: True))
        self._stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        self._stack.enter_context(mock.patch.object(torch.autograd, "grad", autograd.emulated(torch.autograd.grad)))
        self._stack.enter_context(mock.patch.object(torch.Tensor, "pin_memory", lambda tensor, device=None: self._pin(tensor.clone())))
        self._stack.enter_context(mock.patch.object(torch.Tensor, "is_pinned", lambda tensor, device=None: self._is_pinned(tensor)))
        self._stack.enter_context(mock.patch.object(torch.Tensor, "numpy", self._checked_numpy(torch.Tensor.numpy)))
        self._stack.enter_context(mock.patch.object(threading.Thread, "run", self._seeing(threading.Thread.run)))
        self._mode = _Mode(self)
        self._mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._mode.__exit__(*exception)
        self._stack.close()
        EmulatedCuda._running = None

    def _torch_cuda(self) -> dict[str, Any]:
        return {
            "is_available": lambda: True, "is_initialized": lambda: True, "init": lambda: None, "_lazy_init": lambda: None,
            "device_count": lambda: self.devices, "current_device": self.current_device, "set_device": self.set_device,
            "device": self._on_device, "get_device_name": lambda device=None: "emulated",
            "get_device_capability": lambda device=None: (9, 0), "is_bf16_supported": lambda including_emulation=True: True,
            "get_device_properties": lambda device=None: SimpleNamespace(name="emulated", total_memory=self.memory, major=9, minor=0),
            "CUDAGraph": graphs.CUDAGraph, "graph": graphs.graph, "graph_pool_handle": graphs.graph_pool_handle,
            "is_current_stream_capturing": lambda: self.recording is not None,
            "Event": streams.Event, "Stream": streams.Stream, "stream": self._on_stream, "current_stream": self.current_stream,
            "default_stream": self._default_stream, "synchronize": self._synchronize,
            "set_sync_debug_mode": self._set_sync_debug_mode, "get_sync_debug_mode": lambda: self._sync_debug_mode,
            "manual_seed": torch.manual_seed, "manual_seed_all": torch.manual_seed, "empty_cache": lambda: None,
            "memory_allocated": lambda device=None: self._allocated[self.index_of(device)],
            "memory_reserved": lambda device=None: self._allocated[self.index_of(device)],
            "max_memory_allocated": lambda device=None: self._most_allocated[self.index_of(device)],
            "reset_peak_memory_stats": self._reset_peak,
            "mem_get_info": lambda device=None: (self.memory - self._allocated[self.index_of(device)], self.memory),
        }

    def index_of(self, device: Any = None) -> int:
        """The number of a device; the current one where none is named."""
        if isinstance(device, int):
            return device
        named = None if device is None else torch.device(device).index
        return self._thread.device if named is None else named

    def current_device(self) -> int:
        return self._thread.device

    def set_device(self, device: Any) -> None:
        index = self.index_of(device)
        if not 0 <= index < self.devices:
            raise RuntimeError(f"CUDA error: invalid device ordinal (device {index} of {self.devices})")
        self._thread.device = index

    @contextmanager
    def _on_device(self, device: Any) -> Any:
        before = self._thread.device
        self.set_device(device)
        try:
            yield
        finally:
            self._thread.device = before

    def _default_stream(self, device: Any = None) -> streams.Stream:
        index = self.index_of(device)
        return streams.Stream(index, number=self._default_streams[index])

    def current_stream(self, device: Any = None) -> streams.Stream:
        index = self.index_of(device)
        return self._thread.streams.get(index) or self._default_stream(index)

    @contextmanager
    def _on_stream(self, stream: streams.Stream | None) -> Any:
        if stream is None:
            yield
            return
        with self._on_device(stream.device_index):
            before = self._thread.streams.get(stream.device_index)
            self._thread.streams[stream.device_index] = stream
            try:
                yield
            finally:
                if before is None:
                    del self._thread.streams[stream.device_index]
                else:
                    self._thread.streams[stream.device_index] = before

    def _set_sync_debug_mode(self, mode: int | str) -> None:
        self._sync_debug_mode = {"default": 0, "warn": 1, "error": 2}[mode] if isinstance(mode, str) else mode

    def _synchronize(self, device: Any = None) -> None:
        self.waits("synchronize", self.streams.everything(), flagged=False)

    def _reset_peak(self, device: Any = None) -> None:
        index = self.index_of(device)
        self._most_allocated[index] = self._allocated[index]

    def _seeing(self, run: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
        """`Thread.run`, in whose threads the emulation sees all operations."""

        def seen(thread: threading.Thread) -> None:
            with _Mode(self):
                run(thread)

        return seen

    def _checked_numpy(self, numpy: Callable[..., Any]) -> Callable[..., Any]:

        def checked(tensor: Tensor, *, force: bool = False) -> Any:
            if isinstance(tensor, CudaTensor):
                raise TypeError(f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                                "memory first.")
            self.streams.check_read(tensor)
            return numpy(tensor, force=force)

        return checked

    # What the host does

    @property
    def recording(self) -> graphs.CUDAGraph | None:
        """The graph that this thread records."""
        return self._thread.recording

    @recording.setter
    def recording(self, graph: graphs.CUDAGraph | None) -> None:
        self._thread.recording = graph

    def waits(self, what: str, known: streams.Known, flagged: bool = True) -> None:
        """Let the host wait for the device. `flagged`: `set_sync_debug_mode` warns of it."""
        if self.recording is not None:
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({what} of {place()})")
        if flagged and self._sync_debug_mode == 2:
            raise RuntimeError(f"called a synchronizing CUDA operation: {what} of {place()}")
        with self._lock:
            if threading.get_ident() == self._owner:
                self.synchronisations[f"{what} of {place()}"] += 1
            self.streams.waited(known)

    def _pin(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._pinned[storage.data_ptr()] = StorageWeakRef(storage)
        return tensor

    def _is_pinned(self, tensor: Tensor) -> bool:
        address = 0 if isinstance(tensor, CudaTensor) else tensor.untyped_storage().data_ptr()
        if address in self._pinned and self._pinned[address].expired():
            del self._pinned[address]
        return address in self._pinned

    # What the device does

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out an operation, of the host or of the device."""
        tensors = [leaf for leaf in leaves((*args, *kwargs.values())) if isinstance(leaf, Tensor)]
        device = kwargs.get("device")
        makes_on_device = device is not None and torch.device(device).type == "cuda"
        if not makes_on_device and not any(isinstance(tensor, CudaTensor) for tensor in tensors):
            return self._of_host(func, args, kwargs, tensors)
        name = signature(func).name
        if device is not None and not makes_on_device and _is_example(name):
            return self._of_host(func, changed(args, self._on_host), kwargs, [])
        with self._lock:
            if name in ("_to_copy", "copy_"):
                return self._copied(func, name, args, kwargs)
            if name == "_local_scalar_dense":
                self._launch(args[0].allocation.device, "item", [(args[0].host, args[0].allocation, False)])
                self.waits("item", self.current_stream(args[0].device).known)
                return func(args[0].host)
            return self._kernel(func, name, args, kwargs, tensors)

    def _of_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        for tensor in tensors:
            self.streams.check_read(tensor)
        if kwargs.get("pin_memory"):
            return self._pin(func(*args, **{**kwargs, "pin_memory": False}))
        return func(*args, **kwargs)

    def _copied(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a copy between devices, or within one: `_to_copy` makes its target, `copy_` has one."""
        source: Tensor = args[0] if name == "_to_copy" else args[1]
        blocks = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
        where = args[0].device if name == "copy_" else torch.device(kwargs.get("device") or source.device)
        if source.is_cuda and where.type == "cuda" and where.index in (None, source.device.index):
            if name == "copy_" and _same_values(args[0].host, args[1].host):
                return args[0]
            return self._kernel(func, name, args, kwargs, [one for one in args if isinstance(one, Tensor)])
        if self.recording is not None:
            raise RuntimeError(f"a copy between host and device, or two devices, is recorded at {place()}")
        index = source.allocation.device if isinstance(source, CudaTensor) else self.index_of(where)
        values = source.host if isinstance(source, CudaTensor) else source
        if not source.is_cuda:
            self.streams.check_read(source)
        target = args[0]
        if name == "_to_copy":
            values = into = func(values, **{key: kwargs[key] for key in ("dtype", "layout", "memory_format") if key in kwargs})
            target = self._wrapped(into, self.index_of(where)) if where.type == "cuda" else into if blocks else self._pin(into)
        into = target.host if isinstance(target, CudaTensor) else target
        if not into.numel():
            return target
        touched = [(t.host, t.allocation, t is target) for t in (target, source) if isinstance(t, CudaTensor)]
        stream, time = self.current_stream(index), self._launch(index, "copy", touched)
        if not target.is_cuda and not blocks and self._is_pinned(target):
            self.streams.to_host(stream.number, time, values.expand_as(into).to(into.dtype), into)
            return target
        if values is not into:
            into.copy_(values)
        if source.is_cuda and target.is_cuda:
            return target
        if not source.is_cuda and not blocks:  # from memory that is not pinned the driver takes the values at once
            if self._is_pinned(source):
                self.streams.to_device(stream.number, time, source, place())
            return target
        self.waits("copy to the host" if source.is_cuda else "copy to the device", stream.known)
        return target

    def _kernel(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Carry out an operation whose tensors are on one device, and record it or run it."""
        operation = signature(func)
        on_device = [tensor for tensor in tensors if isinstance(tensor, CudaTensor)]
        self._check_devices(func, name, args, kwargs, tensors)
        index = on_device[0].allocation.device if on_device else self.index_of(kwargs.get("device"))
        if kwargs.get("device") is not None:
            index = self.index_of(kwargs["device"])
            kwargs = {**kwargs, "device": torch.device("cpu")}
        kwargs.pop("pin_memory", None)
        if operation.reshapes:
            raise NotImplementedError(f"the emulated device does not change the shape of a tensor in place ({func})")
        written = operation.outputs(args, kwargs)
        writes = {id(tensor) for tensor in leaves(written) if isinstance(tensor, CudaTensor)}
        host_args = changed(args, self._on_host)
        host_kwargs = {key: changed(value, self._on_host) for key, value in kwargs.items()}
        run = arithmetic(func, name)
        if operation.is_view or name in LAUNCHES_NOTHING:
            return self._wrap_all(run(*host_args, **host_kwargs), on_device, index)
        if needs_the_host(name, args):
            self.waits(name, self.current_stream(index).known)
        graph = self.recording
        if graph is None or not writes:
            wrapped = self._wrap_all(run(*host_args, **host_kwargs), on_device, index)
        else:
            wrapped = (None, written[0])[operation.returns] if operation.returns < 2 else tuple(written[: operation.returns])
        made = [leaf for leaf in leaves([wrapped]) if isinstance(leaf, CudaTensor) and id(leaf) not in {id(t) for t in on_device}]
        touched = [(tensor.host, tensor.allocation, id(tensor) in writes) for tensor in on_device]
        touched += [(tensor.host, tensor.allocation, True) for tensor in made]
        if not any(host.numel() for host, _, _ in touched):
            return wrapped
        if graph is None:
            self._launch(index, name, touched)
            return wrapped
        if index != graph.device:
            raise RuntimeError(f"{name} runs on cuda:{index} while a graph of cuda:{graph.device} is recorded, at {place()}")
        assert graph.kernels is not None
        results = [tensor.host for tensor in made]
        graph.kernels.append(graphs.Recorded(run, host_args, host_kwargs, results, [(h, weakref.ref(a), w) for h, a, w in touched], name))
        for host in results:
            streams.poison(host)
        return wrapped

    def replay(self, graph: graphs.CUDAGraph) -> None:
        """Run what a graph has recorded."""
        assert graph.kernels is not None
        with self._lock:
            if graph.device != self._thread.device:
                raise RuntimeError(f"a graph of cuda:{graph.device} is replayed while the current device is cuda:{self._thread.device}")
            stream, everything = self.current_stream().number, []
            for kernel in graph.kernels:
                for host, reference, writes in kernel.touched:
                    allocation = reference()
                    if allocation is None:
                        raise RuntimeError(f"a graph is replayed whose {kernel.name} uses memory that has been freed, at {place()}")
                    everything.append((host, allocation, writes))
            self._launch(graph.device, "graph", everything if self.streams.side_streams else [], stream)
            for kernel in graph.kernels:
                result = kernel.run(*kernel.args, **kernel.kwargs)
                if kernel.made:
                    for kept, new in zip(kernel.made, [leaf for leaf in leaves([result]) if isinstance(leaf, Tensor)], strict=True):
                        kept.copy_(new)

    def _launch(self, index: int, name: str, touched: list[tuple[Tensor, Allocation, bool]], stream: int | None = None) -> int:
        """Count a launch. Returns its number in its stream."""
        if index != self._thread.device:
            raise RuntimeError(f"{name} runs on cuda:{index}, and the current device is cuda:{self._thread.device}, at {place()}")
        self.launches += 1
        self.kernels[name] += 1
        return self.streams.launch(self.current_stream(index).number if stream is None else stream, touched, name, place)

    def _check_devices(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
        """Raise an error where an operation's tensors are on several devices."""
        found = {tensor.allocation.device for tensor in tensors if isinstance(tensor, CudaTensor)}
        if len(found) > 1:
            raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:{', cuda:'.join(map(str, sorted(found)))} "
                               f"({func}, {place()})")
        if _is_example(name):
            return
        indices = [one for one in args[1] if isinstance(one, Tensor)] if name in ("index", "index_put", "index_put_") else []
        for tensor in tensors:
            of_one_number = tensor.dim() == 0 and name not in ("index_select", "gather")
            if isinstance(tensor, CudaTensor) or of_one_number or "ctc_loss" in name:  # lengths of sequences
                continue
            if any(tensor is one for one in indices):
                self.waits("index by a tensor of the host", {})
                continue
            raise RuntimeError(f"Expected all tensors to be on the same device, but found one of the host, {tuple(tensor.shape)} ({func}, "
                               f"{place()})")
        for value in signature(func).outputs(args, kwargs):
            if isinstance(value, Tensor) and found:
                assert isinstance(value, CudaTensor), f"{func} writes what it computes on the device to the host, at {place()}"

    def _on_host(self, leaf: Any) -> Any:
        """What stands for an argument on the host. A number of the host is read when its kernel is launched."""
        if isinstance(leaf, CudaTensor):
            return leaf.host
        return leaf.clone() if isinstance(leaf, Tensor) and self.recording is not None else leaf

    def _wrapped(self, host: Tensor, index: int) -> CudaTensor:
        graph, size, made = self.recording, host.untyped_storage().nbytes(), Allocation(index)
        if graph is None:
            self._take(index, size)
            return CudaTensor(host, made, Memory(index, size, self._given_back))
        pool = graph.memory
        assert pool is not None
        graph.own.append(made)
        if pool.live + size > pool.bytes:
            self._take(index, pool.live + size - pool.bytes)
            pool.bytes = pool.live + size
        pool.live += size
        return CudaTensor(host, made, Memory(index, size, pool.free))

    def pool(self, handle: tuple[int, int]) -> Pool:
        """The memory of graphs of a pool on the current device; it lives as long as one of them, or a tensor that one has made."""
        key = *handle, self.current_device()
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool(self.current_device(), self._given_back)
        return found

    def _take(self, index: int, size: int) -> None:
        if self._allocated[index] + size > self.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / GIB:.2f} GiB of cuda:{index}, of whose "
                                         f"{self.memory / GIB:.2f} GiB {self._allocated[index] / GIB:.2f} GiB are taken.")
        self._allocated[index] += size
        self._most_allocated[index] = max(self._most_allocated[index], self._allocated[index])

    def _given_back(self, memory: Memory) -> None:
        self._allocated[memory.device] -= memory.bytes

    def _wrap_all(self, result: Any, on_device: list[CudaTensor], index: int) -> Any:
        """The results on the device: arguments themselves, views of them, or new memory."""
        arguments = {id(tensor.host): tensor for tensor in on_device}
        owners = {tensor.host.untyped_storage().data_ptr(): tensor for tensor in on_device if tensor.host.untyped_storage().nbytes()}

        def wrap(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) in arguments:
                argument = arguments[id(leaf)]
                if argument.shape != leaf.shape:
                    raise NotImplementedError(f"an operation has resized its output from {tuple(argument.shape)} to {tuple(leaf.shape)}")
                return argument
            owner = owners.get(leaf.untyped_storage().data_ptr())
            return self._wrapped(leaf, index) if owner is None else CudaTensor(leaf, owner.allocation, owner.memory)

        return changed(result, wrap)


def _is_example(name: str) -> bool:
    """Whether an operation takes a tensor only as an example of shape and type."""
    return name.startswith("new_") or name.endswith("_like")


def _same_values(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same part of memory: a copy between them does nothing."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride() and one.dtype == other.dtype


def place() -> str:
    """The line of the library that runs, and the one that called it."""
    found, frame = [], sys._getframe(1)
    while frame is not None and len(found) < 2:
        if "/pykaldist/" in frame.f_code.co_filename and "/tests/" not in frame.f_code.co_filename:
            found.append(f"{frame.f_code.co_filename.rsplit('/pykaldist/', 1)[1]}:{frame.f_lineno}")
        frame = frame.f_back
    return ", called from ".join(found) or "a test"
