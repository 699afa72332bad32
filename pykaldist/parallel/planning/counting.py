"""The kernels of a training step, counted: what each multiplies, and the bytes that it reads and writes.

The step itself runs, loading included, on PyTorch's device `meta`, whose tensors have shapes and no memory. It takes the way that it takes
on a GPU. Every operation that a GPU would launch counts:

    flops       2 m n k of a product (m, k) (k, n), also of batches and vectors; other operations have none. Their time is that of memory.
    bytes       of the tensors that it reads and writes, each once. A value that is expanded counts once, an output that is only written is
                not read. What stays in a cache from one kernel to the next counts as if it did not.

NG-SGD collects statistics in every `update_period`-th minibatch, and takes over new Fisher matrices as often. These kernels count with that
share. What the host computes for them is not counted.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pykaldist.frames.device_frames import DeviceFrames
from pykaldist.frames.packed import Sequences
from pykaldist.frames.sampler import Minibatch, SpliceGather
from pykaldist.frames.sequences import SequenceOptions
from pykaldist.frames.store import FrameStore, pack
from pykaldist.nnet.kinds import default_splice, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.model import Model
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.natural_gradient import FIRST_UPDATES, FisherUpdate
from pykaldist.optim.ngsgd import NgSgd
from pykaldist.optim.optimizer import Optimizer
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer

META = torch.device("meta")
MAKE_MEMORY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "_unsafe_view",
               "_reshape_alias", "lift_fresh"}
ONLY_WRITE = {"copy_", "fill_", "zero_", "bernoulli_", "normal_", "uniform_"}  # of the operations in place
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "addmv": 1, "baddbmm": 1}  # name -> place of the first factor


@dataclass(frozen=True)
class Kernel:
    """A kernel: its operation's name, flops of products, and bytes read and written."""

    name: str
    flops: int
    bytes: int


@dataclass(frozen=True)
class Step:
    """A training step of `frames` frames: kernels, and how often each runs in a minibatch (a share, for what not every minibatch has).

    A GPU replays them as one CUDA graph, but for the first `loading`, which make the minibatch.
    """

    kernels: tuple[tuple[Kernel, float], ...]
    loading: int
    frames: int
    parameters: int

    @property
    def flops(self) -> float:
        """Flops of the products of a minibatch."""
        return sum(times * kernel.flops for kernel, times in self.kernels)

    @property
    def bytes(self) -> float:
        """Bytes that a minibatch reads and writes."""
        return sum(times * kernel.bytes for kernel, times in self.kernels)

    @property
    def num_kernels(self) -> float:
        """Kernels of a minibatch."""
        return sum(times for _, times in self.kernels)


@dataclass(frozen=True)
class _Operation:
    """What is known of an operation: its name, whether it launches anything; of each argument its name, whether it is read and written."""

    name: str
    launches: bool
    arguments: tuple[tuple[str, bool, bool], ...]


@functools.cache
def _operation(func: Any) -> _Operation:
    schema, name = func._schema, func._schema.name.partition("::")[2]
    is_view = not schema.is_mutable and any(argument.alias_info is not None for argument in schema.arguments)
    arguments = []
    for argument in schema.arguments:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        arguments.append((argument.name, not (writes and (argument.is_out or name in ONLY_WRITE)), writes))
    return _Operation(name, not is_view and name not in MAKE_MEMORY, tuple(arguments))


class KernelCounter(TorchDispatchMode):
    """Notes the kernels of what runs while the mode is on, on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        widening = func._overloadname == "dtype_out" and args[0].is_meta  # has no kernel for `meta`; its result is `out`
        result = given["out"] if widening else func(*args, **given)
        operation = _operation(func)
        if operation.launches:
            self._note(operation, args, given, _tensors(result))
        return result

    def _note(self, operation: _Operation, args: Any, kwargs: Any, results: list[Tensor]) -> None:
        if operation.name == "copy_" and _place(args[0]) == _place(args[1]):
            return
        read: dict[Any, int] = {}
        written = {_place(tensor): num_bytes(tensor) for tensor in results}
        for number, (name, reads, writes) in enumerate(operation.arguments):
            for tensor in _tensors(args[number] if number < len(args) else kwargs.get(name)):
                if reads:
                    read[_place(tensor)] = num_bytes(tensor)
                if writes:
                    written[_place(tensor)] = num_bytes(tensor)
        if not any(written.values()):
            return
        size = sum(read.values()) + sum(written.values())
        self.kernels.append(Kernel(operation.name, _flops(operation.name.rstrip("_"), args), size))


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [one for one in value if isinstance(one, Tensor)] if isinstance(value, list | tuple) else []


def _place(tensor: Tensor) -> tuple[int, ...]:
    """What tells the values of a tensor from those of others: a copy onto themselves launches nothing."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), *tensor.shape, *tensor.stride()


def num_bytes(tensor: Tensor) -> int:
    """The bytes of a tensor's values, those of an expanded dimension once."""
    return tensor.itemsize * math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0)


def _flops(name: str, args: Any) -> int:
    """Multiplications and additions of a product."""
    place = PRODUCTS.get(name)
    if place is None:
        return 0
    a, b = args[place : place + 2]
    return 2 * a.numel() * (b.shape[-1] if b.dim() > 1 and name not in ("mv", "addmv") else 1)


def count_step(nnet: Any, optimizer: str, dtype: str = "float32", minibatch_size: int = 1024, feat_dim: int = 40,
               num_pdfs: int = 8806) -> Step:
    """Count a step of a network with these options, an optimiser by its name with its defaults, and `--dtype`.

    Networks of sequences have the minibatches of their own options: `num_streams` chunks, of full length.
    """
    splice = default_splice(nnet)
    model = make_nnet(nnet, len(splice) * feat_dim, num_pdfs, len(splice), META, compute=torch.bfloat16 if dtype == "bf16" else None)
    minibatch, load = _minibatch(nnet, model, minibatch_size, splice, num_pdfs)
    learner = Supervised(model, CrossEntropy())
    learner.reserve(len(minibatch.inputs))
    own = make_optimizer(optimizer, learner, OPTIMIZERS[optimizer][0]())
    loading = kernels_of(load)
    kernels = [(kernel, 1.0) for kernel in loading] + step_kernels(own, minibatch)
    return Step(tuple(kernels), len(loading), len(minibatch), len(model.params))


def kernels_of(work: Callable[[], object]) -> list[Kernel]:
    """The kernels of some work."""
    with torch.no_grad(), KernelCounter() as counter:
        work()
    return counter.kernels


def step_kernels(optimizer: Optimizer, minibatch: Minibatch) -> list[tuple[Kernel, float]]:
    """The kernels of a step, after one that makes buffers. NG-SGD's minibatches of all kinds count with their shares."""
    totals = torch.zeros(optimizer.learner.num_totals, dtype=torch.float64, device=optimizer.model.device)

    def step() -> None:
        if minibatch.sequences is not None:
            epoch, split, index = minibatch.sequences.place
            minibatch.sequences.place = epoch, split, index + 1  # it follows the last one, whose state it takes over
        optimizer._step(minibatch, totals)

    def counted(calls: int) -> list[Kernel]:
        for side in sides:
            side.calls = calls
        return kernels_of(step)

    sides = [side for state in optimizer.states for side in (state.input, state.output)] if isinstance(optimizer, NgSgd) else []
    for side in sides:
        side.calls = FIRST_UPDATES + 1  # the first minibatches are others
    kernels_of(step)  # with a counter, as PyTorch 2.11 has no product that widens for `meta`
    if not sides:
        return [(kernel, 1.0) for kernel in counted(0)]
    period = sides[0].update_period
    found = [(kernel, 1.0 / period) for kernel in counted(FIRST_UPDATES + period)]  # which collects statistics
    if period > 1:
        found += [(kernel, 1.0 - 1.0 / period) for kernel in counted(FIRST_UPDATES + 1)]

    def take_over() -> None:
        for side in (side for side in sides if side.rank > 0):
            side.finish(FisherUpdate(np.eye(side.rank), side.spectrum, False), delivered=True)

    return found + [(kernel, 1.0 / period) for kernel in kernels_of(take_over)]


def _minibatch(nnet: Any, model: Model, minibatch_size: int, splice: list[int], num_pdfs: int) -> tuple[Minibatch, Callable[[], object]]:
    """A minibatch on `meta`, and the work that gathers it from the frames of a store."""
    rows, sequences, weights = minibatch_size, None, None
    if isinstance(nnet, SequenceOptions):
        chunk, streams = nnet.parts(), nnet.num_streams
        steps = chunk.left + chunk.size + chunk.right
        rows = streams * steps
        continues = nnet.sequences == "streams"
        sequences = Sequences([streams] * steps, streams * chunk.size, continues=continues, leaves=steps - 1 if continues else -1,
                              real=torch.empty(rows, 1, device=META))
        weights = torch.empty(rows, device=META)
    with tempfile.TemporaryDirectory(prefix="pykaldist-count-") as folder:
        gather, source = _gather(Path(folder) / "store", model.input_dim // len(splice), splice, rows, num_pdfs)
    chosen = torch.empty(rows, dtype=torch.int64, device=META)
    targets = torch.empty(rows, dtype=torch.int32, device=META)
    inputs = torch.empty(rows, model.input_dim, device=META)
    return Minibatch(inputs, targets, 0, False, weights=weights, sequences=sequences), lambda: gather(chosen, source)


def _gather(path: Path, dim: int, splice: list[int], rows: int, num_pdfs: int) -> tuple[SpliceGather, DeviceFrames]:
    """What gathers minibatches, and frames to gather them from; of these there is one, as on `meta` nothing is copied."""
    pack(["utt"], lambda _: np.zeros((1, dim), np.float32), lambda _: np.zeros(1, np.int32), num_pdfs, path)
    store = FrameStore(path)
    flat = torch.zeros(len(splice) * dim, device=META)
    return SpliceGather(store, splice, flat, flat, rows, META), DeviceFrames(store, META)
