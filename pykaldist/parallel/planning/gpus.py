"""Known GPUs by their published rates, and what a training step that was counted takes on one: a prediction, and no measurement.

A kernel takes as long as the longest of
    its flops over the published peak rate of dense products in its arithmetic,
    its bytes over the published bandwidth of the memory,
    the least time of a kernel: IN_GRAPH where it is one of a recorded CUDA graph, FROM_HOST where the host launches it by itself.
No kernel reaches the peak rates, and none is slower than its memory for want of a cache: a measured step may take more, or less.

Several GPUs stand in nodes of eight, with the links of the vendor's own machines. Their exchanges are priced as those of any cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from pykaldist.nnet.kinds import KINDS, PRESETS
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.planning.counting import Step, count_step
from pykaldist.parallel.planning.plan import Prediction, predict

DEVICES = 8  # of a node
BOUNDS = "products", "memory", "launches"
LATENCY = 5e-6  # seconds of a message, over NVLink and between nodes. Assumed: it is not in the data sheets
IN_GRAPH = 2e-6  # seconds of a kernel that has next to nothing to do, in a recorded graph. Assumed
FRAMES_AN_HOUR = 360_000
FROM_HOST = 8e-6  # seconds in which the host launches a kernel of PyTorch. Assumed


@dataclass(frozen=True)
class Gpu:
    """A GPU. `rates`: peak flops/s of dense products, by `--dtype`; `memory_bandwidth`, and that of its links in one direction, in bytes/s.

    `device`: its name as PyTorch says it. `within`: of a GPU to others of its node; `between`: of a node to other nodes.
    `sources`: where the numbers are from.
    """

    name: str
    device: str
    rates: dict[str, float]
    memory_bandwidth: float
    within: float
    between: float
    sources: dict[str, str] = field(default_factory=dict)

    def seconds(self, step: Step, dtype: str) -> float:
        """Predicted seconds of a minibatch."""
        return sum(self.seconds_by(step, dtype).values())

    def seconds_by(self, step: Step, dtype: str) -> dict[str, float]:
        """The same by what the kernels are bound by: the peak rate of products, the memory's bandwidth, the least time of a kernel."""
        total, rate = dict.fromkeys(BOUNDS, 0.0), self.rates[dtype]
        for number, (kernel, times) in enumerate(step.kernels):
            least = IN_GRAPH if number >= step.loading else FROM_HOST
            seconds, bound = max(zip((kernel.flops / rate, kernel.bytes / self.memory_bandwidth, least), BOUNDS, strict=True))
            total[bound] += times * seconds
        return total

    def limit(self, step: Step, dtype: str) -> float:
        """Seconds of the products of a minibatch at the peak rate: the arithmetic limit."""
        return step.flops / self.rates[dtype]

    def cluster(self, step: Step, dtype: str, workload: Workload, ngpu: int) -> Cluster:
        """A cluster of `ngpu` of these or more, which trains a workload whose minibatches were counted as `step`."""
        compute = Compute(self.seconds(step, dtype), memory_bandwidth=self.memory_bandwidth)
        nodes = -(-ngpu // DEVICES)
        return Cluster(self.name, f"{nodes} nodes of {DEVICES} {self.device}, predicted", nodes, DEVICES, workload, compute,
                       Link(self.within, LATENCY), Link(self.between, LATENCY))


def _nvidia(name: str, device: str, sheet: str, rates: tuple[float, float, float], sparse: bool, memory: float, within: float, link: str,
            between: float, network: str) -> Gpu:
    """One of NVIDIA's; `rates` in TFLOPS as the data sheet has them, which may be `sparse` for all but float32; the others in GB/s."""
    float32, *others = rates
    dense = [rate / 2 if sparse else rate for rate in others]
    said = ", ".join(f"{rate:,g}" for rate in rates)
    sources = {"rates": f"NVIDIA {sheet} data sheet: {said} TFLOPS" + (", the latter two with sparsity: dense products have half." if sparse
                                                                        else ", without sparsity."),
               "memory": f"NVIDIA {sheet} data sheet: {memory:,g} GB/s.",
               "within": f"NVIDIA {sheet} data sheet: {link}, {2 * within:,g} GB/s in both directions together.",
               "between": network}
    return Gpu(name, device, dict(zip(("float32", "tf32", "bf16"), (rate * 1e12 for rate in (float32, *dense)), strict=True)), memory * 1e9,
               within * 1e9, between * 1e9, sources)


GPUS = {gpu.name: gpu for gpu in (
    _nvidia("l4", "NVIDIA L4", "L4", (30.3, 120, 242), True, 300, 32, "PCIe Gen4 x16", 12.5, "Assumed: 100 Gbit/s Ethernet."),
    _nvidia("a100", "NVIDIA A100-SXM4-80GB", "A100 80GB SXM", (19.5, 156, 312), False, 2039, 300, "NVLink", 200,
            "NVIDIA DGX A100 data sheet: eight ports of 200 Gbit/s a node."),
    _nvidia("h100", "NVIDIA H100 80GB HBM3", "H100 SXM", (67, 989, 1979), True, 3350, 450, "NVLink", 400,
            "NVIDIA DGX H100 data sheet: eight ports of 400 Gbit/s a node."),
    _nvidia("h200", "NVIDIA H200", "H200 SXM", (67, 989, 1979), True, 4800, 450, "NVLink", 400,
            "NVIDIA DGX H200 data sheet: eight ports of 400 Gbit/s a node."),
)}


def known_as(device: str) -> Gpu | None:
    """The GPU with this name of PyTorch (`torch.cuda.get_device_name`); None where it is not among those known."""
    return next((gpu for gpu in GPUS.values() if gpu.device == device), None)


def count_presets(nnets: Sequence[str], optimizers: Sequence[str], dtypes: Sequence[str], minibatch_size: int, feat_dim: int,
                  num_pdfs: int) -> dict[tuple[str, str, str], Step]:
    """Count the steps of published networks: (network, optimiser, `--dtype`) -> step. float32 and tf32 have the same."""
    found: dict[tuple[str, str, str], Step] = {}
    for nnet, optimizer, dtype in itertools.product(nnets, optimizers, dtypes):
        kind, changes = PRESETS[nnet]
        options = KINDS[kind].options(**changes)
        dim = feat_dim * getattr(options, "channels", 1)
        alike = found.get((nnet, optimizer, "float32")) if dtype == "tf32" else None
        found[nnet, optimizer, dtype] = alike or count_step(options, optimizer, dtype, minibatch_size, dim, num_pdfs)
    return found


def predicted_epoch(gpu: Gpu, step: Step, dtype: str, hours: float, ngpu: int, average_period: int) -> Prediction:
    """An epoch of so many hours of speech on `ngpu` GPUs that average their models (`ma`), predicted."""
    workload = Workload("counted", step.parameters, step.frames, max(1, round(hours * FRAMES_AN_HOUR)))
    cluster = gpu.cluster(step, dtype, workload, ngpu)
    return predict(workload, cluster, ngpu, "ma" if ngpu > 1 else "local", average_period if ngpu > 1 else None)


def bound_of(gpu: Gpu, step: Step, dtype: str, epoch: Prediction) -> tuple[str, float]:
    """What most of an epoch goes to, one of BOUNDS or exchanges; and its share of the epoch."""
    parts = gpu.seconds_by(step, dtype)
    spent = {bound: epoch.compute * seconds / sum(parts.values()) for bound, seconds in parts.items()}
    spent["exchanges"] = epoch.exchange + epoch.wait
    most = max(spent, key=lambda bound: spent[bound])
    return most, spent[most] / epoch.total
