"""The ledger of a process's device memory: what a run takes, forecast before anything is loaded.

The forecast makes the run's own objects on PyTorch's device `meta`, whose tensors have shapes and no memory, and adds up their storages,
each once. Beside these stand the copies that a strategy makes, counted in a dry run, and the temporaries of a step: the most that lives at
once in a step that is made on `meta`; of RBMs, and of other networks where that is more, room for two more of its widest layer. CUDA graphs
have as much again to themselves: their memory goes to no step that runs as it is. So have those of an objective that is not recorded with
the steps, and it keeps what it computes from and to for each kind of minibatch.

On a GPU the forecast is compared with the memory that is free. Where the training frames do not fit beside the rest, they come in pieces.
Where not even the rest fits, the run is refused before it begins.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.cuda_graphs import CudaGraphs, ObjectiveGraphs
from pykaldist.nnet.learner import Supervised
from pykaldist.optim.natural_gradient import FIRST_UPDATES, orthonormalise_in_place
from pykaldist.optim.ngsgd import NaturalGradient
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.planning.counting import KernelCounter
from pykaldist.parallel.planning.footprint import LiveBytes, model_copies
from pykaldist.train.evaluate import ROWS
from pykaldist.train.trainer import Trainer

META = torch.device("meta")
LIBRARIES = 0.05  # of the free memory, which is left to libraries and to what lies between the tensors
WORKSPACES = 3  # of cuBLAS: of the stream that trains, that on which steps are recorded, and that of exchanges
LEAST_PIECES = 1 / 50  # of the training frames, for which there has to be room where they come in pieces
CURE = "use a smaller network or --minibatch-size, or more GPUs, so that a process has fewer workers"
FRAMES, GRAPHS = "training frames", "CUDA graphs"


def tensors(*roots: Any) -> Iterator[Tensor]:
    """The tensors that objects of this library hold, directly or through others, in containers and functions too."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, Tensor):
            yield found
        elif isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, (list, tuple, set)):
            waiting += found
        elif isinstance(found, functools.partial):
            waiting += [*found.args, *found.keywords.values()]
        elif any(kind.__module__.startswith("pykaldist.") for kind in type(found).__mro__) and hasattr(found, "__dict__"):
            waiting += vars(found).values()


class Storages:
    """Counts the storages of tensors on a device, each once."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._seen = device, set[int]()

    def bytes(self, *roots: Any) -> int:
        """The bytes of the storages that objects hold and that have not been counted before."""
        total = 0
        for tensor in tensors(*roots):
            storage = tensor.untyped_storage()
            if tensor.device.type == self._device.type and storage._cdata not in self._seen:
                self._seen.add(storage._cdata)
                total += storage.nbytes()
        return total


@dataclass
class Ledger:
    """The bytes that a process takes on its device, by what takes them."""

    entries: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.entries.values())

    def described(self) -> str:
        """The entries in words, the largest first."""
        kept = sorted(((size, name) for name, size in self.entries.items() if size), reverse=True)
        return f"{gigabytes(self.total)}: " + ", ".join(f"{name} {gigabytes(size)}" for size, name in kept)


def gigabytes(size: float) -> str:
    """A number of bytes in words."""
    return f"{size / 1e9:.3g} GB" if size >= 1e6 else f"{size / 1e6:.2g} MB"


def count(trainers: Sequence[Trainer], shared: dict[str, SharedFrames], others: Sequence[Any] = ()) -> Ledger:
    """Count what trainers hold on their device, one of which trains at a time, on frames that they share; and `others` beside them."""
    workers = [worker for trainer in trainers for worker in trainer.workers]
    models = [worker.learner.model for worker in workers]
    storages = Storages(models[0].params.device)
    entries = {FRAMES: storages.bytes(shared["train"]), "held-out frames": storages.bytes(shared["dev"]),
               "minibatches": storages.bytes([worker.sampler for worker in workers], [trainer.cv for trainer in trainers])}
    entries["parameters"] = storages.bytes([model.params for model in models])
    entries["activations"] = storages.bytes(models)
    entries["learners"] = storages.bytes([worker.learner for worker in workers])  # of RBMs: what is sampled, and the layers below
    entries["gradients and the optimiser's state"] = storages.bytes([worker.optimizer for worker in workers])
    entries["accepted models"] = storages.bytes([trainer.accepted for trainer in trainers])
    entries["strategy"] = storages.bytes([trainer.strategies for trainer in trainers])
    entries["other"] = storages.bytes(list(trainers), list(others))
    return Ledger(entries)


def most_alive(work: Callable[[], object]) -> int:
    """The peak of memory, in bytes, of what `work` makes on the device `meta`."""
    with torch.no_grad(), KernelCounter(), LiveBytes() as made:  # the counter, as PyTorch has no product that widens for `meta`
        kept = work()
    del kept
    return made.peak


def rehearsed(optimizer: Optimizer, minibatch: Callable[[], Minibatch]) -> int:
    """The peak of memory, in bytes, of a training step on the device `meta`, without what stays between steps.

    It is one in which natural gradients collect statistics, and the largest basis of theirs is made orthonormal, as at the start. What
    stays, the buffers that the first step makes, is left with the model.
    """
    totals = torch.zeros(optimizer.learner.num_totals, dtype=torch.float64, device=META)
    sides = [side for state in optimizer.states for side in (state.input, state.output)] if isinstance(optimizer, NaturalGradient) else []
    for side in sides:
        side.calls = FIRST_UPDATES + side.update_period  # the first minibatches wait for the host

    def step() -> None:
        optimizer._step(minibatch(), totals)

    most_alive(step)
    bases = [side.w for side in sides if side.rank > 0]
    largest = max(bases, key=Tensor.numel, default=None)
    return most_alive(step) + (0 if largest is None else most_alive(lambda: orthonormalise_in_place(largest, largest[:, 0])))


def forecast(trainers: Sequence[Trainer], shared: dict[str, SharedFrames], step: int, others: Sequence[Any] = (),
             making: int = 0) -> Ledger:
    """Forecast what a run takes whose trainers were made on `meta`, the first of them for the job's workers.

    To what they hold it adds the copies of the model that the strategies and exchanges of this process make, the order of the frames of an
    epoch, the totals of cross-validation, and what a step and its graphs take, `step` bytes each. `making`: the bytes that
    the trainers took at most while they were made.
    """
    by_objective = [objective_bytes(trainer) for trainer in trainers]
    ledger = count(trainers, shared, others)
    workers, host, strategy = trainers[0].workers, trainers[0].host, trainers[0].strategies[0]
    copies = model_copies(functools.partial(type(strategy), strategy.options), len(host.ranks), host.size, host.fabrics[0].node_size,
                          workers[0].sampler.minibatch_size)
    partition = workers[0].sampler.partition
    order = sum(max(partition.size(worker.sampler.split, block) for block in range(partition.blocks)) for worker in workers)
    params = workers[0].params
    ledger.entries[FRAMES] += shared["train"].group_bytes()
    ledger.entries["order of frames"] = order * torch.long.itemsize
    ledger.entries["strategy"] += round(copies * params.numel() * params.itemsize)
    ledger.entries["totals of held-out frames"] = ROWS * workers[0].learner.num_totals * torch.double.itemsize
    ledger.entries["a step"] = step
    ledger.entries[GRAPHS] = (step if workers[0].optimizer.records else 0) + max(graphs for graphs, _ in by_objective)
    ledger.entries["the objective's minibatches"] = max(kept for _, kept in by_objective)
    ledger.entries["more at the start"] = max(0, making - ledger.total)
    return ledger


def objective_bytes(trainer: Trainer) -> tuple[int, int]:
    """What an objective takes that is not recorded together with a step: the bytes (of its CUDA graphs, that it keeps)."""
    worker = trainer.workers[0]
    learner = worker.learner
    if not isinstance(learner, Supervised) or learner.objective.recordable:
        return 0, 0
    objective, minibatch = learner.objective, worker.sampler.largest()
    totals = torch.zeros(learner.num_totals, dtype=torch.float64, device=META)
    learner.forward_alone(minibatch)
    objective.graphs = ObjectiveGraphs()  # of any minibatch that was rehearsed before
    learner.objective_alone(minibatch, totals)
    kept = Storages(META).bytes(objective.graphs)
    at_once = most_alive(lambda: learner.objective_alone(minibatch, totals))
    learner.end_of_step()
    objective.graphs = ObjectiveGraphs()
    return at_once, kept * min(CudaGraphs.LIMIT, worker.sampler.minibatches)


def step_bytes(trainer: Trainer) -> int:
    """The bytes that a step of a trainer on `meta` takes at most, with its largest minibatch; two more of its widest layer at least."""
    worker = trainer.workers[0]
    largest = worker.sampler.largest()
    return max(2 * worker.learner.step_values * worker.params.itemsize, rehearsed(worker.optimizer, lambda: largest))


def free_bytes(device: torch.device) -> int:
    """The bytes that this process can still take on a GPU; what its allocator holds and does not use counts as free."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def room_for_frames(ledger: Ledger, free: int, where: str, cure: str = CURE) -> int | None:
    """The bytes that training frames may take, where not all of them fit; None where all do.

    Raises UserError where not even pieces of them fit; `cure` says what helps.
    """
    usable = round((1 - LIBRARIES) * free)
    if ledger.total <= usable:
        return None
    room = usable - (ledger.total - ledger.entries[FRAMES])
    if room < LEAST_PIECES * ledger.entries[FRAMES]:
        raise UserError(f"{where} has {gigabytes(free)} free, of which training can have {gigabytes(usable)}, and takes "
                        f"{ledger.described()}; {cure}.")
    return room


def settled(ledger: Ledger, device: torch.device, processes: Processes, cure: str = CURE) -> tuple[int | None, str]:
    """Compare a forecast with what is free: (`room_for_frames` of this process, words for the table at the start of a run).

    Every process of the job calls it. Where one has to be refused, it raises UserError, which ends them all. `cure`: as there.
    """
    sharing = _sharing(device, processes)
    ledger.entries["cuBLAS"] = WORKSPACES * _workspace(device)
    free = free_bytes(device) // sharing
    processes.barrier()  # before one that shares the device takes any of it
    room = room_for_frames(ledger, free, f"{device}{f', of which {sharing} processes have equal parts,' * (sharing > 1)}", cure)
    words = f"{ledger.described()}; {gigabytes(free)} are free on {device}"
    return room, words if room is None else f"{words}: the training frames come in pieces, in {gigabytes(room)}"


def _workspace(device: torch.device) -> int:
    """The bytes that PyTorch gives cuBLAS to work in, for a stream: 32 MiB since Hopper, before it 8 MiB and an eighth."""
    return 32 << 20 if torch.cuda.get_device_capability(device)[0] >= 9 else (8 << 20) + (1 << 17)


def _sharing(device: torch.device, processes: Processes) -> int:
    """How many processes of the job compute on this device."""
    known = torch.cuda.get_device_properties(device)
    name = f"{socket.gethostname()} {getattr(known, 'uuid', device.index)}".encode()
    own = torch.frombuffer(bytearray(name), dtype=torch.uint8)
    return sum(bytes(part.tolist()) == name for part in processes.gather(own))
