"""Reports of predictions for GPUs, as Markdown: what a step has to do, frames/s, hours of an epoch, and Su et al.'s epoch beside them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pykaldist.parallel.planning.counting import Step
from pykaldist.parallel.planning.gpus import FRAMES_AN_HOUR, FROM_HOST, IN_GRAPH, LATENCY, Gpu, bound_of, predicted_epoch
from pykaldist.report.plan import duration
from pykaldist.report.text import markdown

PUBLISHED = "su2015-dnn"  # Su et al. (2015), table 2: an epoch of 300 hours on 32 K20s
PUBLISHED_MINUTES, PUBLISHED_GPUS, PUBLISHED_HOURS = 15.24, 32, 300.0
Steps = dict[tuple[str, str, str], Step]


def render(steps: Steps, gpus: Sequence[Gpu], hours: Sequence[float], ngpus: Sequence[int], average_period: int) -> str:
    """Write the tables; `steps`: (network, optimiser, arithmetic) -> counted step."""
    _, optimizer, dtype = list(steps)[-1]
    parts = ["A training step, counted: multiplications and additions of matrix products, bytes read and written, kernels. A minibatch has "
             "the frames of its column.", _steps(steps),
             "Predicted, thousands of frames a second on one GPU:", _rates(steps, gpus),
             "They rest on", _rests_on(gpus)]
    for amount in hours:
        parts += [f"Predicted, an epoch of {amount:,g} hours of speech: {optimizer}, {dtype}, model averaging every "
                  f"{average_period} minibatches, eight GPUs a node. Its time, its GPU-hours, and what bounds it, with its share of the "
                  "time: products (the peak rate), memory, launches (the least time of a kernel), or exchanges",
                  _epochs(steps, gpus, amount, ngpus, average_period)]
    if any(nnet == PUBLISHED for nnet, _, _ in steps):
        parts += [f"Minutes of an epoch of {PUBLISHED_HOURS:g} hours, {PUBLISHED}: Su et al. (2015) published {PUBLISHED_MINUTES:g} on "
                  f"{PUBLISHED_GPUS} K20s. One GPU: the limit of its products at the peak rate, and predicted", _published(steps, gpus)]
    return "\n\n".join(parts)


def as_dict(steps: Steps, gpus: Sequence[Gpu], hours: Sequence[float], ngpus: Sequence[int], average_period: int) -> dict[str, Any]:
    """The predictions for JSON: counted steps, frames a second of each on each GPU, and epochs of the last optimiser and arithmetic."""
    _, optimizer, dtype = list(steps)[-1]
    epochs = []
    for (nnet, *how), step in steps.items():
        for gpu, amount, ngpu in itertools.product(gpus, hours, ngpus) if how == [optimizer, dtype] else ():
            epoch = predicted_epoch(gpu, step, dtype, amount, ngpu, average_period)
            bound, share = bound_of(gpu, step, dtype, epoch)
            epochs.append({"nnet": nnet, "gpu": gpu.device, "hours": amount, "ngpu": ngpu, "seconds": epoch.total,
                           "gpu_hours": ngpu * epoch.total / 3600, "bound": bound, "share": share})
    return {
        "steps": [{"nnet": nnet, "optimizer": how, "dtype": one, "parameters": step.parameters, "frames": step.frames, "flops": step.flops,
                   "bytes": step.bytes, "kernels": step.num_kernels} for (nnet, how, one), step in steps.items()],
        "frames_per_second": [
            {"nnet": nnet, "optimizer": how, "dtype": one, "gpu": gpu.device, "value": step.frames / gpu.seconds(step, one)}
            for (nnet, how, one), step in steps.items() for gpu in gpus],
        "epochs": epochs,
    }


def _steps(steps: Steps) -> str:
    rows = [["network", "optimiser", "arithmetic", "parameters", "frames", "Mflop a frame", "kB a frame", "kernels"]]
    for (nnet, optimizer, dtype), step in steps.items():
        if dtype != "tf32" or (nnet, optimizer, "float32") not in steps:  # is as float32
            rows.append([nnet, optimizer, dtype, f"{step.parameters:,}", f"{step.frames:,}", f"{step.flops / step.frames / 1e6:,.1f}",
                         f"{step.bytes / step.frames / 1e3:,.0f}", f"{step.num_kernels:,.0f}"])
    return markdown(rows)


def _rates(steps: Steps, gpus: Sequence[Gpu]) -> str:
    rows = [["network", "optimiser", "arithmetic", *(gpu.device for gpu in gpus)]]
    for (nnet, optimizer, dtype), step in steps.items():
        rows.append([nnet, optimizer, dtype, *(f"{step.frames / gpu.seconds(step, dtype) / 1e3:,.0f}" for gpu in gpus)])
    return markdown(rows)


def _rests_on(gpus: Sequence[Gpu]) -> str:
    rows = [["GPU", "TFLOPS: float32, tf32, bf16", "memory, GB/s", "link within a node, between nodes, GB/s", "from"]]
    for gpu in gpus:
        rates = ", ".join(f"{gpu.rates[dtype] / 1e12:,.4g}" for dtype in ("float32", "tf32", "bf16"))
        rows.append([gpu.device, rates, f"{gpu.memory_bandwidth / 1e9:,.0f}", f"{gpu.within / 1e9:g}, {gpu.between / 1e9:g}",
                     " ".join(gpu.sources.values())])
    return markdown(rows) + (f"\n\nAssumed: a kernel of a recorded graph takes {IN_GRAPH * 1e6:g} us or more, one that the host "
                             f"launches {FROM_HOST * 1e6:g} us, a message between GPUs {LATENCY * 1e6:g} us.")


def _epochs(steps: Steps, gpus: Sequence[Gpu], hours: float, ngpus: Sequence[int], average_period: int) -> str:
    _, optimizer, dtype = list(steps)[-1]
    rows = [["network", "GPU", *(f"{ngpu} GPU{'s' * (ngpu > 1)}" for ngpu in ngpus)]]
    for nnet in dict.fromkeys(nnet for nnet, _, _ in steps):
        step = steps[nnet, optimizer, dtype]
        for gpu in gpus:
            cells = []
            for ngpu in ngpus:
                epoch = predicted_epoch(gpu, step, dtype, hours, ngpu, average_period)
                bound, share = bound_of(gpu, step, dtype, epoch)
                cells.append(f"{duration(epoch.total)}; {ngpu * epoch.total / 3600:.3g}; {bound} {100 * share:.0f} %")
            rows.append([nnet, gpu.device, *cells])
    return markdown(rows)


def _published(steps: Steps, gpus: Sequence[Gpu]) -> str:
    chosen = [key for key in steps if key[0] == PUBLISHED]
    rows = [["GPU", *(f"{optimizer}, {dtype}: limit, predicted" for _, optimizer, dtype in chosen)]]
    for gpu in gpus:
        cells = []
        for key in chosen:
            minibatches = PUBLISHED_HOURS * FRAMES_AN_HOUR / steps[key].frames
            cells.append(", ".join(f"{minibatches * seconds / 60:.2f}" for seconds in (gpu.limit(steps[key], key[2]),
                                                                                       gpu.seconds(steps[key], key[2]))))
        rows.append([gpu.device, *cells])
    return markdown(rows)
