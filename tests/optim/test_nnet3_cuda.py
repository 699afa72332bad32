"""The optimiser nnet3 on a GPU: the same steps as on a CPU, and nothing waits for the device."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from nnet3_learners import Given, minibatch_of
from torch import Tensor

from pykaldist.nnet.nnet3.model import Nnet3 as Nnet3File
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

pytestmark = pytest.mark.gpu
SEQUENCES, FRAMES, STEPS = 4, 6, 14


@pytest.fixture(scope="module")
def nnet(golden: Path) -> Nnet3File:
    found = Nnet3File.read(golden / "chain/net/train.0.raw")
    found.components["tdnnf2.linear"].values["OrthonormalConstraint"] = -1.0
    found.components["tdnn1.dropout"].values["DropoutProportion"] = 0.0
    return found


def trained(nnet: Nnet3File, device: str, steps: int, dtype: torch.dtype = torch.float64) -> tuple[Nnet3, Tensor]:
    network = Nnet3Network(copy.deepcopy(nnet), device, dtype)
    generator = torch.Generator().manual_seed(0)
    count = 3 * (FRAMES - 1) + 1 + network.left_context + network.right_context
    inputs = [torch.randn(count, SEQUENCES, 40, generator=generator, dtype=dtype).to(device) for _ in range(steps)]
    derivatives = [torch.randn(FRAMES * SEQUENCES, 112, generator=generator, dtype=dtype).to(device) for _ in range(steps)]
    optimizer, totals = Nnet3(Given(network, inputs, derivatives), Nnet3Options()), torch.zeros(1, device=device, dtype=torch.float64)
    for index in range(steps):
        torch.cuda.set_sync_debug_mode("error" if device == "cuda" and index > 11 and not optimizer._kind() else "default")
        optimizer.local_step(minibatch_of(index), 0.01, totals)
        torch.cuda.set_sync_debug_mode("default")
    return optimizer, network.params.cpu()


def test_steps_are_those_of_a_cpu_while_updates_take_effect_at_once(nnet: Nnet3File) -> None:
    cpu, gpu = (trained(nnet, device, 8)[1] for device in ("cpu", "cuda"))
    torch.testing.assert_close(gpu, cpu, rtol=1e-6, atol=1e-8)


def test_no_step_waits_for_the_device_but_for_an_update_of_the_fisher_matrices(nnet: Nnet3File) -> None:
    optimizer, params = trained(nnet, "cuda", STEPS, torch.float32)
    assert params.isfinite().all() and optimizer.steps == STEPS
