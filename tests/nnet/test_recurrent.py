"""LSTM layers equal the plain equations under autograd, frame by frame, in float64; torch.nn.LSTM; and themselves however they are cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.frames.packed import Sequences, packed_grid
from pykaldist.nnet import cells
from pykaldist.nnet.cells import CellShape
from pykaldist.nnet.components import Affine
from pykaldist.nnet.model import Model
from pykaldist.nnet.recurrent import Blstm, Direction, Lstm


def slow(direction: Direction, params: list[torch.Tensor], x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None = None):
    """One sequence (T, in), one frame after another: outputs (T, out), by the equations at the head of the file."""
    s, c = direction.shape, direction.shape.cell_dim
    own = iter(params)
    weight, bias = next(own), next(own)
    projection = next(own) if s.projection_dim else None
    p_i, p_f, p_o = list(own) if s.peepholes else [torch.zeros(c, dtype=x.dtype)] * 3
    r, cell = state if state is not None else (x.new_zeros(s.output_dim), x.new_zeros(c))
    out = [None] * len(x)
    for t in reversed(range(len(x))) if direction.reverse else range(len(x)):
        a_g, a_i, a_f, a_o = (weight @ torch.cat([x[t], r]) + bias).split(c)
        cell_new = torch.tanh(a_g) * torch.sigmoid(a_i + p_i * cell) + torch.sigmoid(a_f + p_f * cell) * cell
        cell = cell_new.clamp(-s.cell_clip, s.cell_clip) if s.cell_clip else cell_new
        m = torch.sigmoid(a_o + p_o * cell) * torch.tanh(cell)
        r = m if projection is None else projection @ m
        out[t] = r
    return torch.stack(out)


def packed(lengths: list[int], dim: int) -> tuple[torch.Tensor, Sequences, torch.Tensor]:
    """(inputs (n, dim), the sequences, the number of each row's sequence)."""
    _, sequence, sizes = packed_grid(torch.tensor(lengths))
    return torch.randn(sum(lengths), dim, dtype=torch.float64), Sequences(sizes, sum(lengths)), sequence


def make(kind: str, shape: CellShape) -> Model:
    layer = {"lstm": Lstm, "blstm": Blstm}[kind](5, shape)
    model = Model([layer, Affine(layer.output_dim, 3)], dtype=torch.float64)
    model.params.normal_(0.0, 0.7)
    return model


SHAPES = [CellShape(4, 0, False, 0.0, 0.0), CellShape(4, 3, True, 0.0, 0.0), CellShape(4, 0, True, 0.4, 0.0),
          CellShape(4, 2, False, 0.4, 0.0)]


@pytest.fixture(params=["compiled", "by torch"])
def way(request, monkeypatch):
    """A step of the cells back, as on the host, or as on a GPU."""
    if request.param == "by torch":
        monkeypatch.setattr(cells, "_backward_compiled", cells.backward_by_torch)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["lstm", "blstm"])
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_outputs_and_gradients_are_those_of_the_equations(kind, shape, lengths, seed):
    torch.manual_seed(seed)
    model = make(kind, shape)
    x, sequences, sequence = packed(sorted(lengths, reverse=True), 5)
    dlogits = torch.randn(len(x), 3, dtype=torch.float64)
    logits = model.forward(x, sequences=sequences, training=True).clone()
    grads = torch.full_like(model.params, 2.0)
    model.backward(dlogits.clone(), grads, beta=0.5)

    params = model.params.clone().requires_grad_(True)
    layer, (own, (w, b)) = model.components[0], model.views(params)
    directions = [layer.direction] if kind == "lstm" else layer.directions
    with torch.enable_grad():
        expected = torch.zeros(len(x), 3, dtype=torch.float64)
        for number in range(len(lengths)):
            rows = sequence == number
            each = [slow(d, own[i * len(own) // len(directions) :][: len(own) // len(directions)], x[rows])
                    for i, d in enumerate(directions)]
            expected = expected.index_put((rows.nonzero()[:, 0],), torch.cat(each, 1) @ w.t() + b)
        (expected * dlogits).sum().backward()
    assert torch.allclose(logits, expected, atol=1e-10)
    assert torch.allclose(grads, 1.0 + params.grad, atol=1e-9)
    model.forward(x, sequences=sequences, training=True)
    model.backward(dlogits.clone(), grads.fill_(torch.nan))  # what stood there does not matter
    assert torch.allclose(grads, params.grad, atol=1e-9)


def test_gradient_of_the_inputs_reaches_the_layer_below():
    torch.manual_seed(3)
    model = Model([Affine(5, 4), Blstm(4, CellShape(3, 2, True, 0.0, 0.0)), Lstm(4, CellShape(3, 0, False, 0.0, 0.0))], dtype=torch.float64)
    model.params.normal_(0.0, 0.7)
    x, sequences, _ = packed([4, 3, 1], 5)
    dy, grads = torch.randn(len(x), 3, dtype=torch.float64), torch.zeros_like(model.params)
    model.forward(x, sequences=sequences, training=True)
    model.backward(dy.clone(), grads)
    for place in range(0, len(grads), 17):
        moved = []
        for sign in (1.0, -1.0):
            model.params[place] += sign * 1e-5
            moved.append((model.forward(x, sequences=sequences) * dy).sum().item())
            model.params[place] -= sign * 1e-5
        assert grads[place].item() == pytest.approx((moved[0] - moved[1]) / 2e-5, abs=1e-6)


@pytest.fixture(scope="module")
def torchs():
    """What torch.nn.LSTM makes, outside of any emulation: weight, bias in our order, x, dy, outputs, gradients of the weight in its order.
    """
    torch.manual_seed(0)
    theirs, weight, bias = torch.nn.LSTM(6, 8), torch.randn(32, 14) / 2, torch.randn(32)
    weight_i_f_g_o, bias_i_f_g_o = (torch.cat([part.split(8)[k] for k in (1, 2, 0, 3)]) for part in (weight, bias))
    theirs.weight_ih_l0.data, theirs.weight_hh_l0.data = weight_i_f_g_o[:, :6].clone(), weight_i_f_g_o[:, 6:].clone()
    theirs.bias_ih_l0.data, theirs.bias_hh_l0.data = bias_i_f_g_o, torch.zeros(32)
    x, dy = torch.randn(7, 3, 6), torch.randn(7, 3, 8)
    with torch.enable_grad():
        outputs = theirs(x)[0]
        (outputs * dy).sum().backward()
    return weight, bias, x, dy, outputs.detach(), torch.cat([theirs.weight_ih_l0.grad, theirs.weight_hh_l0.grad], 1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_it_is_torchs_lstm(torchs, cuda, device):
    """Gates in torch's order are i, f, g, o; two biases, of which one is ours. On a device each time step is a product and an operator."""
    weight, bias, x, dy, expected, gradient = torchs
    layer = Lstm(6, CellShape(8, 0, False, 0.0, 0.0))
    model = Model([layer], device)
    layer.direction.weight.copy_(weight)
    layer.direction.bias.copy_(bias)
    got = model.forward(x.view(21, 6).to(device), sequences=Sequences([3] * 7, 21), training=True).cpu()
    assert torch.allclose(got.view(7, 3, 8), expected, atol=1e-5)
    grads = torch.zeros_like(model.params)
    model.backward(dy.view(21, 8).clone().to(device), grads)
    g, i, f, o = model.views(grads.cpu())[0][0].split(8)
    assert torch.allclose(torch.cat([i, f, g, o]), gradient, atol=1e-5)
    assert cuda is None or cuda.kernels["lstm_cell"] == cuda.kernels["lstm_cell_backward"] == 7


def test_streams_that_carry_their_state_are_one_long_sequence():
    """Three minibatches of two streams; in the second one a stream begins anew at its second step."""
    torch.manual_seed(1)
    model = make("lstm", SHAPES[1])
    x = torch.randn(9, 2, 5, dtype=torch.float64)
    got = []
    for k in range(3):
        kept = {1: torch.tensor([[1.0], [0.0]], dtype=torch.float64)} if k == 1 else {}
        sequences = Sequences([2, 2, 2], 6, kept, k > 0, 2, (0, 0, k))
        got.append(model.forward(x[3 * k : 3 * k + 3].reshape(6, 5), sequences=sequences, training=True).clone().view(3, 2, 3))
    layer, views = model.components[0], model.views(model.params)
    parts = [x[:, 0], x[:4, 1], x[4:, 1]]
    one, first, second = (slow(layer.direction, views[0], part) @ views[1][0].t() + views[1][1] for part in parts)
    assert torch.allclose(torch.cat(got), torch.stack([one, torch.cat([first, second])], 1), atol=1e-10)


@pytest.mark.usefixtures("way")
def test_gradients_of_a_carried_state_and_of_a_stream_that_begins_anew_within_are_truncated_there():
    torch.manual_seed(1)
    model = make("lstm", SHAPES[1])
    x, dlogits = torch.randn(2, 6, 5, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    model.forward(x[0], sequences=Sequences([2, 2, 2], 6, {}, False, 2, (0, 0, 0)), training=True)
    r, cell = (part.clone() for part in model.components[0].carried()[0])
    kept = {1: torch.tensor([[1.0], [0.0]], dtype=torch.float64)}
    model.forward(x[1], sequences=Sequences([2, 2, 2], 6, kept, True, 2, (0, 0, 1)), training=True)
    grads = torch.zeros_like(model.params)
    model.backward(dlogits.clone(), grads)
    params = model.params.clone().requires_grad_(True)
    with torch.enable_grad():
        own, (w, b) = model.views(params)
        direction, streams = model.components[0].direction, x[1].view(3, 2, 5)
        one = slow(direction, own, streams[:, 0], (r[0], cell[0]))
        other = torch.cat([slow(direction, own, streams[:1, 1], (r[1], cell[1])), slow(direction, own, streams[1:, 1])])
        ((torch.stack([one, other], 1).view(6, -1) @ w.t() + b) * dlogits).sum().backward()
    assert torch.allclose(grads, params.grad, atol=1e-10)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_minibatch_of_fewer_streams_than_the_one_before_goes_on_with_those(shape):
    """As the last one of an epoch, where only some streams have a frame left."""
    torch.manual_seed(1)
    model = make("lstm", shape)
    x, dlogits = torch.randn(8, 5, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    model.forward(x[:6], sequences=Sequences([3, 3], 6, {}, False, 1, (0, 0, 0)), training=True)
    r, cell = (part.clone() for part in model.components[0].carried()[0])
    got = model.forward(x[6:], sequences=Sequences([2], 2, {}, True, -1, (0, 0, 1)), training=True).clone()
    grads = torch.zeros_like(model.params)
    model.backward(dlogits.clone(), grads)
    params = model.params.clone().requires_grad_(True)
    with torch.enable_grad():
        own, (w, b) = model.views(params)
        expected = torch.cat([slow(model.components[0].direction, own, x[6 + i : 7 + i], (r[i], cell[i])) for i in range(2)]) @ w.t() + b
        (expected * dlogits).sum().backward()
    assert torch.allclose(got, expected, atol=1e-10) and torch.allclose(grads, params.grad, atol=1e-10)


def test_a_state_left_by_another_minibatch_than_the_one_before_is_not_used():
    torch.manual_seed(1)
    model = make("lstm", SHAPES[0])
    x = torch.randn(4, 5, dtype=torch.float64)
    fresh = model.forward(x, sequences=Sequences([2, 2], 4)).clone()
    model.forward(x, sequences=Sequences([2, 2], 4, {}, False, 1, (0, 0, 0)), training=True)
    follows = model.forward(x, sequences=Sequences([2, 2], 4, {}, True, -1, (0, 0, 1))).clone()
    strays = model.forward(x, sequences=Sequences([2, 2], 4, {}, True, -1, (0, 1, 1))).clone()
    assert torch.equal(strays, fresh) and not torch.allclose(follows, fresh)


@pytest.mark.usefixtures("way")
def test_derivatives_sent_back_in_time_are_bounded():
    torch.manual_seed(0)
    plain, clipped = (make("lstm", CellShape(4, 0, True, 50.0, clip)) for clip in (0.0, 0.5))
    clipped.params.copy_(plain.params)
    x, sequences, _ = packed([6, 6], 5)
    gates = []
    for model in (plain, clipped):
        model.forward(x, sequences=sequences, training=True)
        seen = []
        model.backward(10.0 * torch.ones(12, 3, dtype=torch.float64), torch.zeros_like(model.params),
                       rule=lambda map, x, dy, *rest, seen=seen: seen.append(dy.clone()))
        gates.append(seen[-1])
    assert gates[0].abs().max() > 0.5 and gates[1].abs().max() <= 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_cells_in_bfloat16_are_near_those_in_float32(shape):
    torch.manual_seed(0)
    x, _, _ = packed([5, 3, 3], 5)
    x[0] *= 100.0  # saturates
    seen = []
    for compute in (None, torch.bfloat16):
        torch.manual_seed(1)
        model = Model([Lstm(5, shape), Affine(shape.output_dim, 3)], dtype=torch.float32, compute=compute)
        model.params.normal_(0.0, 0.3)
        outputs = []
        for k in range(2):  # the second one goes on where the first has left
            sequences = Sequences([3, 3, 3, 1, 1], 11, {}, k > 0, 2, (0, 0, k))
            outputs.append(model.forward(x.float(), sequences=sequences, training=True).clone())
        grads = torch.zeros_like(model.params)
        model.backward(torch.ones(11, 3), grads)
        seen.append((torch.stack(outputs), grads))
    for found, expected in zip(seen[1], seen[0], strict=True):
        assert not torch.equal(found, expected) and (found - expected).norm() < 0.02 * expected.norm()
    x[1] = torch.nan
    assert model.forward(x.float(), sequences=Sequences([3, 3, 3, 1, 1], 11))[[1, 4, 7]].isnan().all()
