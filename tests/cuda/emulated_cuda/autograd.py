"""Derivatives on an emulated device: autograd's engine wants a real one, so its graph is walked here, on the thread that asks."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from emulated_cuda.tensor import CudaTensor


def emulated(grad: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.autograd.grad`, and for tensors of an emulated device what stands in its place: of one number, to leaves."""

    def derivatives(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        given = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        if not isinstance(given[0], CudaTensor):
            return grad(outputs, inputs, *args, **kwargs)
        assert len(given) == 1 and not args and not kwargs, "the emulated device knows the derivatives of one number alone"
        with torch.no_grad():
            return _walk(given[0], [inputs] if isinstance(inputs, Tensor) else inputs)

    return derivatives


def _walk(output: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The derivatives of a number with respect to leaves, by its graph, from the node made last to the one made first."""
    found: dict[int, Tensor] = {}
    node = output.grad_fn
    assert node is not None, "the number does not depend on anything that wants a derivative"
    arrived: dict[Any, dict[int, Tensor]] = {node: {output.output_nr: torch.ones_like(output)}}
    order = itertools.count()
    waiting = [(-node._sequence_nr(), next(order), node)]
    while waiting:
        _, _, node = heapq.heappop(waiting)
        own = arrived.pop(node)
        if hasattr(node, "variable"):
            found[id(node.variable)] = own[0]
            continue
        results = node(*(own.get(i) for i in range(max(own) + 1)))
        for (after, place), value in zip(node.next_functions, results if isinstance(results, tuple) else (results,), strict=True):
            if after is None or value is None:
                continue
            if after not in arrived:
                arrived[after] = {}
                heapq.heappush(waiting, (-after._sequence_nr() if not hasattr(after, "variable") else 1, next(order), after))
            before = arrived[after].get(place)
            arrived[after][place] = value if before is None else before + value
    return tuple(found[id(leaf)] for leaf in inputs)
