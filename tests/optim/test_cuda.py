"""Training on a GPU: the same steps as on a CPU, recorded or not, in every arithmetic; nothing waits for the device."""

from __future__ import annotations

import pytest
import torch

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.nnet import gemm
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.cuda_graphs import CudaGraphs
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.local import Local

pytestmark = pytest.mark.gpu


@pytest.fixture
def train(make_store):
    """`train(name, device, dtype, epochs)`: (parameters, totals) on the CPU after some epochs of a small network."""
    stores = {pdfs: make_store([400, 300, 500], dim=16, num_pdfs=pdfs, name=f"train{pdfs}") for pdfs in (12, 30)}

    def run(name, device, dtype="float32", epochs=3, dropout=0.0, pdfs=12, hid_dim=64, **options):
        kind, compute = arithmetic(dtype, torch.device(device))
        shape, store = DnnOptions(2, hid_dim, "sigmoid", dropout=dropout), stores[pdfs]
        model = make_dnn(shape, 48, pdfs, device, kind, compute)
        init_dnn(model, shape, torch.Generator().manual_seed(0))
        optimizer = make_optimizer(name, Supervised(model, CrossEntropy()), FRAME_OPTIMIZERS[name][0](**options))
        sampler = Sampler(store, Partition(store), 0, 64, [-1, 0, 1], torch.zeros(48), torch.ones(48), 0, torch.device(device))
        worker, host = Worker(optimizer, sampler), Host()
        for epoch in range(epochs):
            worker.begin_epoch(epoch, 0.01 / (1 + epoch))
            host.run([Local().epoch(worker, host.fabrics[0])])
        return model.params.cpu().double(), worker.totals.cpu()

    return run


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", ["sgd", "ngsgd"])
@pytest.mark.parametrize(("pdfs", "hid_dim", "into_bias"), [(30, 8, True), (30, 64, False)])
def test_products_of_the_output_layer_are_padded(train, name, momentum, pdfs, hid_dim, into_bias, monkeypatch):
    """30 pdfs are padded to 32. Two rows of 8 weights fit into the 30 biases, two rows of 64 do not."""
    seen = []
    found = gemm.padded_gradient
    monkeypatch.setattr(gemm, "padded_gradient", lambda *args: seen.append(found(*args)) or seen[-1])
    options = {"momentum": momentum, "pdfs": pdfs, "hid_dim": hid_dim, **({"update_period": 1000} if name == "ngsgd" else {})}
    params, totals = train(name, "cuda", "float64", 1, **options)
    expected, counted = train(name, "cpu", "float64", 1, **options)
    assert distance(params, expected) < 1e-9
    torch.testing.assert_close(totals, counted)
    assert seen and any(rows is not None for rows in seen) == (into_bias and not momentum)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "l2_penalty": 1e-3, "l1_penalty": 1e-5, "max_norm": 3.0}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sgd_equals_the_cpu(train, dtype, options):
    expected, totals = train("sgd", "cpu", "float64", **options)
    params, found = train("sgd", "cuda", dtype, **options)
    assert distance(params, expected) < (1e-5 if dtype == "float32" else 1e-12)
    assert torch.allclose(found, totals, rtol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("tf32", 1e-3), ("bf16", 1e-2)])
@pytest.mark.parametrize("name", FRAME_OPTIMIZERS)
def test_narrow_arithmetic_comes_near(train, name, dtype, tolerance):
    expected, totals = train(name, "cuda", "float64")
    params, found = train(name, "cuda", dtype)
    assert distance(params, expected) < tolerance
    assert found[0] == pytest.approx(totals[0].item(), rel=0.05)


def test_ngsgd_equals_the_cpu_while_updates_take_effect_at_once(train):
    """19 minibatches an epoch; the first eleven calls update at once on both devices."""
    options = {"update_period": 1000}
    expected, _ = train("ngsgd", "cpu", "float64", epochs=2, **options)
    params, _ = train("ngsgd", "cuda", "float64", epochs=2, **options)
    assert distance(params, expected) < 1e-9


def test_delayed_updates_train_as_well_and_the_same_way_twice(train):
    _, totals = train("ngsgd", "cpu", epochs=4)
    one, found = train("ngsgd", "cuda", epochs=4)
    again, _ = train("ngsgd", "cuda", epochs=4)
    assert torch.equal(one, again)
    assert found[0] == pytest.approx(totals[0].item(), rel=0.02)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", FRAME_OPTIMIZERS)
def test_a_recorded_step_is_the_step(train, name, dropout, monkeypatch):
    recorded, totals = train(name, "cuda", dropout=dropout)
    monkeypatch.setattr(CudaGraphs, "LIMIT", 0)
    plain, expected = train(name, "cuda", dropout=dropout)
    assert torch.allclose(recorded, plain, atol=1e-7) and torch.allclose(totals, expected)


@pytest.mark.parametrize("name", FRAME_OPTIMIZERS)
def test_no_step_waits_for_the_device(train, name, monkeypatch):
    """The update of NG-SGD's Fisher models between steps may."""
    run, recorded = CudaGraphs.run, []

    def watched(self, kind, step, generator, steps, parts):
        before = len(self._recorded)
        torch.cuda.set_sync_debug_mode("error" if kind in self._recorded else "default")
        try:
            run(self, kind, step, generator, steps, parts)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        recorded.append(len(self._recorded) > before)

    monkeypatch.setattr(CudaGraphs, "run", watched)
    train(name, "cuda")
    assert 1 <= sum(recorded) <= 4 and len(recorded) == 57
