"""SGD against torch's own, and the two ways to make a step against each other."""

from __future__ import annotations

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.dnn import DnnOptions, init_dnn, make_dnn
from pykaldist.nnet.objective import cross_entropy
from pykaldist.optim.sgd import Sgd, SgdOptions


def run(options, steps, shipped):
    shape = DnnOptions(1, 6, "tanh")
    model = make_dnn(shape, 5, 4, dtype=torch.float64)
    init_dnn(model, shape, torch.Generator().manual_seed(1))
    optimizer, totals = Sgd(model, options), torch.zeros(2, dtype=torch.float64)
    reference = model.params.clone().requires_grad_()
    torch_sgd = torch.optim.SGD([reference], lr=0.01, momentum=options.momentum)
    weights = torch.cat([torch.full((v.numel(),), float(v.dim() > 1), dtype=torch.float64) for c in model.views(model.params) for v in c])
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        inputs = torch.randn(8, 5, generator=generator, dtype=torch.float64)
        targets = torch.randint(0, 4, (8,), generator=generator).int()
        gradient = torch.empty_like(model.params)
        model.backward(cross_entropy(model.forward(inputs), targets, totals), gradient)
        reference.grad = gradient.clone()
        if shipped:
            optimizer.apply(gradient, 0.01, 8)
        else:
            optimizer.local_step(cross_entropy(model.forward(inputs), targets, totals), 0.01, 8)
        with torch.no_grad():
            reference.mul_(1 - weights * 0.01 * options.l2_penalty * 8)
        torch_sgd.step()
    return model.params, reference.detach()


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("options", [SgdOptions(), SgdOptions(momentum=0.9), SgdOptions(momentum=0.5, l2_penalty=0.03)])
def test_equals_torch_sgd(options, shipped):
    ours, theirs = run(options, 20, shipped)
    assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("bad", [{"momentum": 1.0}, {"momentum": -0.1}, {"l2_penalty": -1.0}])
def test_nonsense_is_refused(bad):
    with pytest.raises(UserError):
        SgdOptions(**bad)
