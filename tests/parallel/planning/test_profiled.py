"""Bytes and flops of counted steps: those that PyTorch's profiler sees on the CPU, kernel by kernel.

The emulated device carries out a GPU's steps on the CPU, where the profiler sees each kernel's arguments and what it allocates.
"""

from __future__ import annotations

import pytest
import torch
from counted_steps import NETWORKS, CountedStep
from profiled import profiled
from torch.profiler import ProfilerActivity, profile

from pykaldist.optim.natural_gradient import FIRST_UPDATES
from pykaldist.optim.ngsgd import RARE_PERIOD
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.parallel.planning.counting import kernels_of, step_kernels

# What launches nothing: views, memory that is made, copies of values onto themselves.
NOTHING = {"alias", "copy_", "empty", "expand", "lift_fresh", "new_empty", "permute", "select", "slice", "t", "transpose", "unbind",
           "unfold", "unsqueeze", "view"}
QUICK = {("dnn", "sgd"), ("lstm", "sgd")}
ALL = [pytest.param(network, optimizer, marks=[pytest.mark.slow] * ((network, optimizer) not in QUICK))
       for network in NETWORKS for optimizer in FRAME_OPTIMIZERS]


@pytest.mark.gpu
@pytest.mark.parametrize(("network", "optimizer"), ALL)
def test_bytes_of_a_step_are_those_of_the_profiler(cuda, tmp_path, network, optimizer):
    """Of the step that is counted on the device `meta`, each kernel, in the same order; and nothing else is launched."""
    if cuda is None:
        pytest.skip("looks at the kernels of the emulated device, which are the CPU's")
    device, meta = (CountedStep.make(network, optimizer, on) for on in ("cuda", "meta"))
    counted = [kernel for kernel, share in step_kernels(meta.optimizer, meta.minibatch)
               if share in (1.0, 1.0 - 1.0 / RARE_PERIOD)]  # those of minibatches without statistics
    with torch.no_grad():
        sides = getattr(device.optimizer, "_sides", [])
        for _ in range(2 if sides else 1):  # as before the step that is counted: the first ones make buffers
            device.step()
        for side in sides:
            side.calls = FIRST_UPDATES + 1
        seen = [one for one in profiled(device.step, tmp_path) if one.most]
    place = 0
    for kernel in counted:
        while seen[place].name != kernel.name:
            assert seen[place].name in NOTHING, (seen[place], kernel)
            place += 1
        assert seen[place].least <= kernel.bytes <= seen[place].most, (kernel, seen[place])
        place += 1
    assert {one.name for one in seen[place:]} <= NOTHING


@pytest.mark.parametrize("network", NETWORKS)
def test_flops_of_products_are_those_of_the_profiler(network):
    """Of a step on the CPU, whose products the profiler knows but for those in place."""
    step = CountedStep.make(network, "sgd", "cpu")
    with torch.no_grad():
        step.step()
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
            step.step()
        counted = kernels_of(step.step)
    known = {event.key.partition("::")[2]: event.flops for event in profiler.key_averages()}
    products = {name: sum(kernel.flops for kernel in counted if kernel.name == name) for name in ("mm", "addmm")}
    assert products == {name: known[name] for name in products} and min(products.values()) > 0
