"""A time step of LSTM cells as one operator: by PyTorch's operations it is autograd's derivative; Triton's kernels agree."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pykaldist.nnet.cells import BY_TORCH

ROWS, DIM = 4, 3
# (rows that follow one of the step before, masks, peepholes, products apart, bound on cells); None: a sequence's first step.
CASES = [case for case in itertools.product((None, 0, 2, ROWS), (False, True), (False, True), (False, True), (0.0, 0.4))
         if case[0] is not None or not (case[1] or case[3])]


def operands(linked, masked, peepholes, apart, dtype, dim=DIM):
    """What a step has to do with; `linked` rows both ways."""

    def some(*shape):
        return torch.randn(*shape, dtype=dtype)

    n = linked or 0
    mask = torch.tensor([[1.0], [0.0], [1.0], [1.0]], dtype=dtype)[:n] if masked else None
    return {"a": some(ROWS, 4 * dim), "recurrent": some(n, 4 * dim) if apart else None, "before": None if linked is None else some(n, dim),
            "kept": mask, "peepholes": [some(dim) for _ in range(3)] if peepholes else [], "d": some(ROWS, dim), "carry": some(ROWS, dim),
            "follow": n, "sent": some(n, dim) if apart else None}


def by_operators(ops, x, clip, diff_clip=0.0, narrow=None):
    """(gates, cells, tanh, outputs, cells before, derivatives, what is sent back)."""
    a, carry = x["a"].clone(), x["carry"].clone()
    cells, tanh, outputs = (torch.full_like(carry, torch.nan) for _ in range(3))
    seen = torch.full_like(carry, torch.nan) if x["peepholes"] else None
    ops["lstm_cell"](a, x["recurrent"], x["before"], x["kept"], x["peepholes"], clip, cells=cells, tanh=tanh, outputs=outputs, seen=seen)
    gates = a.clone()
    ops["lstm_cell_backward"](a, carry, cells, tanh, x["d"], x["follow"], x["sent"], x["kept"], x["before"], x["kept"], x["peepholes"],
                              clip, diff_clip, narrow=narrow)
    return gates, cells, tanh, outputs, x["carry"] if seen is None else seen, a, carry


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_operators_are_the_equations_and_their_derivatives(case):
    *_, clip = case
    torch.manual_seed(0)
    x = operands(*case[:4], torch.float64)
    operators = {name: getattr(torch.ops.pykaldist, name) for name in BY_TORCH}
    gates, cells, tanh, outputs, seen, derivatives, back = by_operators(operators, x, clip)

    n, full = x["follow"], torch.zeros(ROWS, 4 * DIM, dtype=torch.float64)
    mask = torch.ones(n, 1, dtype=torch.float64) if x["kept"] is None else x["kept"]
    p_i, p_f, p_o = x["peepholes"] or [torch.zeros(DIM, dtype=torch.float64)] * 3
    into = full.clone() + x["a"]
    into[:n] += 0.0 if x["recurrent"] is None else x["recurrent"] * mask
    last = torch.zeros(ROWS, DIM, dtype=torch.float64)
    last[:n] = 0.0 if x["before"] is None else x["before"] * mask
    with torch.enable_grad():
        into, last = into.requires_grad_(True), last.requires_grad_(True)
        g, i, f, o = into.chunk(4, 1)
        g, i, f = torch.tanh(g), torch.sigmoid(i + p_i * last), torch.sigmoid(f + p_f * last)
        cell = g * i + f * last
        cell = cell.clamp(-clip, clip) if clip else cell
        o = torch.sigmoid(o + p_o * cell)
        m = o * torch.tanh(cell)
        d, carry = x["d"].clone(), torch.zeros_like(x["carry"])
        d[:n] += 0.0 if x["sent"] is None else x["sent"] * mask
        carry[:n] = x["carry"][:n] * mask
        ((m * d).sum() + (cell * carry).sum()).backward()
    for got, expected in ((gates, torch.cat([g, i, f, o], 1)), (cells, cell), (tanh, torch.tanh(cell)), (outputs, m),
                          (derivatives, into.grad), (back, last.grad)):
        assert torch.allclose(got, expected.detach(), atol=1e-12)
    assert not x["peepholes"] or torch.equal(seen, last.detach())


def test_derivatives_are_bounded_and_copied_in_another_type():
    x, narrow = operands(2, True, True, True, torch.float32), torch.zeros(ROWS, 4 * DIM, dtype=torch.bfloat16)
    plain, bounded = (by_operators(BY_TORCH, x, 0.0, clip, narrow)[-2] for clip in (0.0, 0.1))
    assert plain.abs().max() > 0.1 and torch.equal(bounded, plain.clamp(-0.1, 0.1)) and torch.equal(narrow, bounded.bfloat16())


def test_tritons_kernels_compute_the_same():
    """By Triton's interpreter, which needs no GPU; in a process of its own, as it is chosen when Triton is imported."""
    pytest.importorskip("triton.language")
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, __file__], env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


def compare() -> None:
    from pykaldist.nnet.cells_triton import BLOCK, BY_TRITON

    for number, case in enumerate(CASES):
        torch.manual_seed(number)
        x = operands(*case[:4], torch.float32, dim=BLOCK + 3 if number % 5 == 0 else DIM)
        narrow = [torch.zeros_like(x["a"], dtype=torch.bfloat16) if case[3] else None for _ in range(2)]
        if case[3]:
            x["d"] = x["d"].bfloat16()
        found = [by_operators(ops, x, case[-1], 0.3 * case[1], to) for ops, to in zip((BY_TORCH, BY_TRITON), narrow, strict=True)]
        for one, other in zip(*found, strict=True):
            assert torch.allclose(one, other, rtol=0.0, atol=2e-6), case
        assert narrow[0] is None or torch.allclose(*narrow, rtol=1e-2)  # the interpreter rounds downwards


if __name__ == "__main__":
    compare()
