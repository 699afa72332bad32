"""Factors mean the same on the host and as tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.factor import add_multiple, factor, least, quotient, root, taken_in
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim import natural_gradient, ngsgd, optimizer
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer

NUMBERS = st.floats(-8.0, 8.0, width=32)


@given(a=NUMBERS, b=NUMBERS)
def test_a_float_and_a_tensor_mean_the_same(a: float, b: float) -> None:
    x = torch.arange(6.0).view(2, 3)
    assert factor(torch.tensor(a)) == a
    assert least(a, b) == least(torch.tensor(a), torch.tensor(b)).item()
    single = torch.tensor(quotient(abs(a), abs(b)), dtype=torch.float32).item()  # infinite where a tensor's is
    assert single == pytest.approx(quotient(abs(a), torch.tensor(abs(b))).item(), nan_ok=True) or a == b == 0.0
    assert root(abs(a)) == pytest.approx(root(torch.tensor(abs(a))).item())
    for by in (a, torch.tensor(a)):
        taken, alpha = taken_in(x.clone(), by)
        assert torch.allclose(taken * alpha, x * a)
        assert torch.allclose(add_multiple(torch.ones(2, 3), x, by), 1.0 + a * x, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "ngsgd"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_step_is_the_same_with_either(name: str, momentum: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device computes with tensors, and the host with floats."""
    generator = torch.Generator().manual_seed(0)
    minibatches = [Minibatch(torch.randn(16, 12, generator=generator), torch.randint(0, 7, (16,), generator=generator).int(), i, False)
                   for i in range(6)]

    def trained() -> torch.Tensor:
        options = DnnOptions(2, 9)
        model = make_dnn(options, 12, 7, dtype=torch.float64)
        init_dnn(model, options, torch.Generator().manual_seed(1))
        own = make_optimizer(name, Supervised(model, CrossEntropy()), OPTIMIZERS[name][0](momentum=momentum))
        totals = torch.zeros(3, dtype=torch.float64)
        for i, minibatch in enumerate(minibatches):
            own.local_step(minibatch, 0.02 / (1 + i // 3), totals)
        assert isinstance(own.rate, torch.Tensor) == (natural_gradient.factor is not factor)
        return model.params

    with torch.no_grad():
        floats = trained()
        for module in (natural_gradient, ngsgd, optimizer):
            monkeypatch.setattr(module, "factor", lambda value: value)
        assert torch.allclose(trained(), floats, rtol=1e-12, atol=1e-14)
