"""Counted kernels: against PyTorch's own counter and profiler on the CPU, formulas written out, and the launches of an emulated device."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from counted_steps import DIM, NETWORKS, ROWS, CountedStep
from torch.utils.flop_counter import FlopCounterMode, addmm_flop

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.natural_gradient import FIRST_UPDATES
from pykaldist.optim.ngsgd import RARE_PERIOD
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer
from pykaldist.parallel.planning import counting
from pykaldist.parallel.planning.counting import Kernel, KernelCounter, count_step, kernels_of, num_bytes, step_kernels

PDFS = 12
in_place: Any = functools.partial(addmm_flop)
in_place._get_raw = True  # it takes tensors, and not their shapes
FORMULAS = {torch.ops.aten.addmm_: in_place}  # PyTorch's counter leaves products in place out


@dataclass
class Trial:
    """A small DNN that trains, on a device."""

    optimizer: Any
    minibatch: Minibatch

    @classmethod
    def make(cls, name: str, device: str) -> Trial:
        generator = torch.Generator().manual_seed(0)
        model = make_nnet(NETWORKS["dnn"], 20, PDFS, 1, device)
        model.params.copy_(torch.randn(len(model.params), generator=generator))
        learner = Supervised(model, CrossEntropy())
        inputs, targets = torch.randn(10, 20, generator=generator), torch.randint(PDFS, (10,), generator=generator)
        learner.reserve(10)
        return cls(make_optimizer(name, learner, FRAME_OPTIMIZERS[name][0]()), Minibatch(inputs.to(device), targets.to(device), 0, False))

    def step(self) -> None:
        self.optimizer.local_step(self.minibatch, 0.01, torch.zeros(3, dtype=torch.float64, device=self.optimizer.model.device))


def products(kernels: list[Kernel]) -> int:
    return sum(kernel.flops for kernel in kernels if kernel.name.rstrip("_") in ("mm", "addmm", "bmm", "baddbmm"))


@pytest.mark.parametrize("optimizer", FRAME_OPTIMIZERS)
def test_flops_are_those_of_torchs_counter_and_profiler(optimizer):
    """On the CPU, whose steps are real: NG-SGD's later ones, with statistics and without, but for what compiled kernels multiply there."""
    trial = Trial.make(optimizer, "cpu")
    with torch.no_grad():
        for number in range(FIRST_UPDATES + 6):
            with FlopCounterMode(display=False, custom_mapping=FORMULAS) as torchs, KernelCounter() as ours:
                trial.step()
            assert products(ours.kernels) == torchs.get_total_flops() > 0, number
        with KernelCounter() as ours:
            trial.step()
        trial.optimizer.model.forward(trial.minibatch.inputs)
        forward = kernels_of(lambda: trial.optimizer.model.forward(trial.minibatch.inputs))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as profiler:
            trial.optimizer.model.forward(trial.minibatch.inputs)
    profiled = sum(event.flops for event in profiler.key_averages() if event.key in ("aten::mm", "aten::addmm"))
    assert products(forward) == profiled == 2 * 10 * (20 * 16 + 2 * 16 * 16 + 16 * PDFS)


@pytest.mark.parametrize("network", NETWORKS)
def test_flops_of_a_step_are_those_of_torchs_counter_on_a_cpu(network):
    """Forwards and backwards, of real steps with SGD, the second of which takes over the states of the first."""
    step = CountedStep.make(network, "sgd", "cpu")
    for _ in range(2):
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=FORMULAS) as torchs:
            step.step()
    counted = count_step(NETWORKS[network], "sgd", minibatch_size=ROWS, feat_dim=DIM, num_pdfs=step.optimizer.model.output_dim)
    assert counted.flops == torchs.get_total_flops() > 0


@pytest.mark.parametrize("optimizer", FRAME_OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_flops_of_a_step_are_those_of_torchs_counter_without_a_device(monkeypatch, network, optimizer):
    """Of the very steps that are counted: NG-SGD's with statistics and without, on the way that they take on a GPU."""
    seen = []

    def both(work):
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=FORMULAS) as torchs, KernelCounter() as ours:
            work()
        assert products(ours.kernels) == torchs.get_total_flops()
        seen.append(torchs.get_total_flops())
        return ours.kernels

    monkeypatch.setattr(counting, "kernels_of", both)
    step = count_step(NETWORKS[network], optimizer, minibatch_size=10, feat_dim=8, num_pdfs=16)
    with_vectors = step.flops - sum(products([kernel]) * times for kernel, times in step.kernels)  # which torch's counter leaves out
    assert len(seen) >= 3 and min(seen[1:3]) > 0 and 0 <= with_vectors < 0.05 * step.flops


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_without_natural_gradients_is_three_products_a_layer(network):
    """Forward, the derivatives of the inputs, of which the first layer makes none, and the gradient; 16 pdfs need no room behind a row."""
    options, pdfs = NETWORKS[network], 16
    step = count_step(options, "sgd", minibatch_size=10, feat_dim=8, num_pdfs=pdfs)
    rows = 10
    if network in ("lstm", "blstm"):
        chunk = options.parts()
        rows = options.num_streams * (chunk.left + chunk.size + chunk.right)
    model = make_nnet(options, 88 if network in ("dnn", "cnn") else 8, pdfs, 11 if network in ("dnn", "cnn") else 1, "meta")
    whole = 3 * rows * sum(component.flops for component in model.components)
    first = model.components[0]
    if network in ("dnn", "cnn"):
        assert step.flops == whole - rows * first.flops
    else:  # the first step of a chunk has no state before it; the gradient has rows of zeros in its place
        assert 0.75 * whole < step.flops < whole
    assert step.parameters == len(model.params) and step.frames == (10 if network in ("dnn", "cnn") else options.num_streams * chunk.size)


def test_natural_gradients_cost_what_their_formulas_say():
    """For each side of dimension D and rank r: X W^T and its product with W in every minibatch, three more when it is updated."""
    sgd, ngsgd = (count_step(DnnOptions(hid_layers=1, hid_dim=64), name, minibatch_size=100, feat_dim=8, num_pdfs=96)
                  for name in ("sgd", "ngsgd"))
    more = 0.0
    for inputs, outputs in ((88, 64), (64, 96)):
        width = -(-(inputs + 1) // 8) * 8
        for columns, padded, rank in ((width, width, 20), (outputs, outputs, min(80, (outputs + 1) // 2))):
            more += 4 * 100 * columns * rank + (2 * 100 * columns * rank + 2 * 2 * padded * rank * rank) / RARE_PERIOD
        more += 2 * 100 * (width - inputs) * outputs * 0  # the bias' gradient is a vector's product
    vectors = 2 * 100 * (64 + 96) + sum(2 * 100 * (88 + 1 + 64 + 64 + 1 + 96) * 0 for _ in range(1))
    assert ngsgd.flops - sgd.flops == pytest.approx(more + vectors, rel=0.02)


def test_bytes_of_a_layer():
    x, w, b, y = torch.zeros(10, 4), torch.zeros(3, 4), torch.zeros(3), torch.zeros(10, 3)
    kernels = kernels_of(lambda: torch.addmm(b, x, w.t(), out=y))
    assert kernels == [Kernel("addmm", 2 * 10 * 4 * 3, 4 * (10 * 4 + 3 * 4 + 3 + 10 * 3))]
    assert kernels_of(lambda: y.add_(1.0)) == [Kernel("add_", 0, 4 * 2 * 10 * 3)]
    assert kernels_of(lambda: y.copy_(b)) == [Kernel("copy_", 0, 4 * (10 * 3 + 3))]
    assert kernels_of(lambda: (torch.empty(5), y.view(3, 10), y[2:], y.t())) == []
    assert num_bytes(b.expand(10, 3)) == 12


def test_bfloat16_moves_half_the_activations():
    wide, narrow = (count_step(DnnOptions(hid_layers=6, hid_dim=1024), "sgd", dtype, 4096, 4, 16) for dtype in ("float32", "bf16"))
    assert narrow.flops == wide.flops
    assert 0.4 * wide.bytes < narrow.bytes < 0.9 * wide.bytes


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", FRAME_OPTIMIZERS)
def test_kernels_are_those_that_a_device_launches(cuda, optimizer):
    """The plain steps of the emulated device, by its own count."""
    if cuda is None:
        pytest.skip("counts the launches of the emulated device")
    trial = Trial.make(optimizer, "cuda")
    trial.optimizer._graphs = None
    sides = getattr(trial.optimizer, "_sides", [])
    meta = Trial.make(optimizer, "cpu")  # its minibatch has the shapes
    meta.optimizer = make_optimizer(optimizer, Supervised(make_nnet(NETWORKS["dnn"], 20, PDFS, 1, "meta"), CrossEntropy()),
                                    FRAME_OPTIMIZERS[optimizer][0]())
    meta.optimizer.learner.reserve(10)
    meta.minibatch.inputs, meta.minibatch.targets = meta.minibatch.inputs.to("meta"), meta.minibatch.targets.to("meta")
    with torch.no_grad():
        for _ in range(FIRST_UPDATES + 3):
            trial.step()
        for side in sides:
            side.calls = FIRST_UPDATES + 1
        totals = torch.zeros(3, dtype=torch.float64, device="cuda")
        before = cuda.kernels.copy()
        trial.optimizer._step(trial.minibatch, totals)
    launched = dict(cuda.kernels - before)
    counted: dict[str, int] = {}
    for kernel, share in step_kernels(meta.optimizer, meta.minibatch):
        if share in (1.0, 1.0 - 1.0 / RARE_PERIOD):  # those of minibatches without statistics
            counted[kernel.name] = counted.get(kernel.name, 0) + 1
    assert counted == launched
