"""An nnet3 network in training: the graph of a Kaldi file over one flat parameter buffer, forward and backward over chunks.

    network = Nnet3Network(Nnet3.read("exp/chain/tdnn/configs/ref.raw"))
    outputs = network.forward_chunks(feats, ivectors, output_frames=50, sequences=64, training=True, generator=generator)
    network.backward_chunks({"output": ..., "output-xent": ...}, grads, 0.0, rule)
    network.to_nnet3().write("final.raw")

A chunk has `output_frames` outputs, at the frames 0, `subsampling`, 2 `subsampling`, ... All tensors have their rows frame by frame: those
of all sequences of the first frame, of all of the second one, ... Derivatives are those of a *loss*, which is to fall, as everywhere in
this library; Kaldi's are those of the objective, the same with the other sign.

`params` holds, beside what is trained, the statistics of batch normalisation and of rectified linear units (`layers.py`): a strategy that
averages parameters averages them.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.components import AffineMap, GradientRule, outer_product
from pykaldist.nnet.flat_model import FlatModel
from pykaldist.nnet.gemm import aligned
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.chunks import ChunkPlan, Frames, LoopPlan, Term
from pykaldist.nnet.nnet3.computing.kinds import IN_LOOPS, layer_of
from pykaldist.nnet.nnet3.computing.more_layers import PlainDropout
from pykaldist.nnet.nnet3.computing.recurrent_layers import DropoutMask, GruCells, LstmCells
from pykaldist.nnet.nnet3.layers import BatchNormalised, Dropout, Layer, LogSoftmax, Rectified, Run
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.plan import Plan

OUTPUTS = ("output", "output-xent")


def trained_outputs(nnet: Nnet3) -> list[str]:
    """The output nodes of a network that are trained; raises UserError where there is none."""
    if "output" not in nnet.nodes:
        raise UserError(f"the network has no node output to train; it has {', '.join(nnet.nodes)}.")
    return [name for name in OUTPUTS if name in nnet.nodes]


class Nnet3Network(FlatModel):
    """A network that can be trained, made from one as it stands in a file. `left_context`, `right_context`: frames that an output needs.

    `outputs` are those that training computes: `output`, and `output-xent` where it is there. `subsampling` is the number of input frames
    for each output frame. `around`: frames more that a recurrent network has before a chunk, and behind it. `truncation`: derivatives go so
    many frames beyond a chunk's outputs and no further; below 0: wherever they lead.
    """

    def __init__(self, nnet: Nnet3, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
                 compute: torch.dtype | None = None, subsampling: int = 3, around: tuple[int, int] = (0, 0), truncation: int = -1) -> None:
        self.nnet, self.subsampling, self.truncation = nnet, subsampling, truncation
        self.outputs = trained_outputs(nnet)
        self._plan = Plan(nnet, self.outputs, subsampling)
        self.left_context, self.right_context = self._plan.left_context, self._plan.right_context
        self.window = self.left_context + around[0], self.right_context + around[1]  # frames before and behind an output in a chunk
        self.layers = {name: layer_of(component) for name, component in nnet.components.items()}
        self._check_uses()
        self._widen_ends()
        super().__init__([*self.layers.values()], device, dtype)
        self._learned = self._needing_derivatives()
        self._chunk_plans: dict[tuple[int, int, int], ChunkPlan] = {}
        self._indices: dict[bytes, Tensor] = {}  # on the device
        self.num_sequences = 0  # of the last minibatch
        self._buffers = Buffers()
        self.compute_in(compute or dtype)
        for layer, views in zip(self.layers.values(), self.views(self.params), strict=True):
            for view, value in zip(views, layer.initial(), strict=True):
                view.copy_(torch.from_numpy(value.astype(np.float64)))

    @property
    def input_dim(self) -> int:
        return self.nnet.dim("input")

    @property
    def output_dim(self) -> int:
        return self.nnet.dim("output")

    @property
    def stochastic(self) -> bool:
        """True where training draws random numbers (dropout, self-repair)."""
        return any(layer.stochastic for layer in self.layers.values())

    def share_activations(self, other: Nnet3Network) -> None:
        """Use the buffers of a network of the same shape: of the models in one process, one computes at a time."""
        self._buffers = other._buffers

    def reserve(self, rows: int) -> None:
        """Note the rows of the largest minibatch; buffers are made as they are needed."""
        self._buffers.capacity = max(self._buffers.capacity, rows)

    @property
    def capacity(self) -> int:
        return self._buffers.capacity

    @property
    def step_values(self) -> int:
        return self.capacity * sum(layer.output_dim for layer in self.layers.values())

    def scratch(self, size: int, like: Tensor) -> Tensor:
        return self._buffers.flat("scratch", size, like.dtype, like.device)

    def set_dropout(self, proportion: float) -> None:
        """Set the proportion of all dropout, as a schedule asks for."""
        for layer in self.layers.values():
            if isinstance(layer, Dropout | PlainDropout | DropoutMask):
                layer.proportion = proportion

    def batchnorm_statistics(self) -> list[slice]:
        """The slices of the flat buffer with the statistics of batch normalisation."""
        return self._slices_of(BatchNormalised)

    def rectified_statistics(self) -> list[slice]:
        """The slices of the flat buffer with the statistics of rectified linear units."""
        return self._slices_of(Rectified)

    def cell_statistics(self) -> list[slice]:
        """The slices of the flat buffer with the statistics of cells of LSTMs and GRUs, behind their parameters."""
        cells = (LstmCells, GruCells)
        sizes = [layer.map.input_dim * layer.map.output_dim for layer in self.layers.values() if isinstance(layer, cells)]
        return [slice(part.start + size, part.stop) for part, size in zip(self._slices_of(*cells), sizes, strict=True)]

    def _slices_of(self, *kinds: type[Layer]) -> list[slice]:
        ends = [*self._starts[1:], self.params.shape[-1]]
        return [slice(start, end) for layer, start, end in zip(self.layers.values(), self._starts, ends, strict=True)
                if isinstance(layer, kinds)]

    def products(self) -> list[tuple[AffineMap, int, bool]]:
        """Each affine map with the rows that it had in the last minibatch, and whether derivatives went on below it."""
        found = []
        for name in self._last.order:
            node = self.nnet.nodes[name]
            if node.kind == "component-node" and name in self._last.steps:
                below = any(term.source in self._learned for term in self._last.steps[name].terms)
                found += [(m, len(self._last.times[name]) * self.num_sequences, below) for m in self.layers[node.component].maps]
        return found

    def to_nnet3(self, learn_rate: float | None = None) -> Nnet3:
        """The network as it stands in a file, with the parameters and statistics of now; `learn_rate` is noted in it."""
        components: dict[str, Nnet3Component] = {}
        for (name, layer), views in zip(self.layers.items(), self.views(self.params.cpu()), strict=True):
            changed = layer.to_component([view.float().numpy().copy() for view in views], learn_rate)
            components[name] = replace(layer.component, values={**layer.component.values, **changed})
        return Nnet3(copy.deepcopy(self.nnet.nodes), components)

    def forward_chunks(self, feats: Tensor, ivectors: Tensor | None, output_frames: int, sequences: int, training: bool = False,
                       generator: torch.Generator | None = None, changed: bool = True,
                       window: tuple[int, int] | None = None) -> dict[str, Tensor]:
        """The outputs by their names, (output_frames x sequences, dim), of chunks.

        `feats` (frames x sequences, dim) begin `window[0]` frames before the first output frame, and end `right_context` frames or more
        behind the last. `ivectors` (sequences, dim), where the network has the input `ivector`. `training`: for a gradient; `generator`:
        for what is random in it. `changed`: the parameters may not be those of the last forward. `window`: another one than the network's.
        """
        frames, rest = divmod(len(feats), sequences)
        if rest or (ivectors is not None and len(ivectors) != sequences):
            raise ValueError(f"{len(feats)} rows of features and {0 if ivectors is None else len(ivectors)} i-vectors for {sequences} "
                             "sequences")
        plan = self._chunk_plan(frames, output_frames, (window or self.window)[0])
        if changed and self.narrow:
            self._working.copy_(self.params)
        inputs = {"input": feats, **({} if ivectors is None else {"ivector": ivectors})}
        self.num_sequences, self._last = sequences, plan
        self._values: dict[str, Tensor] = {}
        self._inputs: dict[str, Tensor] = {}
        self._runs: dict[str, Run] = {}
        with torch.no_grad():
            for name in plan.order:
                node = self.nnet.nodes[name]
                if name in self._values:  # with its loop
                    continue
                if node.kind == "input-node":
                    if name not in inputs or inputs[name].shape[1] != self.nnet.dim(name):
                        raise ValueError(f"expected {name} of dimension {self.nnet.dim(name)}, found "
                                         f"{'none' if name not in inputs else inputs[name].shape[1]}")
                    self._values[name] = inputs[name].to(self.device, self.compute)
                    continue
                taken = plan.steps[name].times if name in plan.steps else None
                run = Run(training, sequences, plan.times[name], generator if training else None, taken=taken)
                if name in plan.loops:
                    self._forward_loop(plan.loops[name], plan, run)
                    continue
                x = self._input(name, plan, sequences)
                if node.kind == "component-node":
                    self._inputs[name], self._runs[name] = x, run
                self._values[name] = self._computed(name, x, run)
        outputs = {name: self._values[name].to(self.params.dtype) for name in self.outputs}
        if not training:
            self._values, self._inputs, self._runs = {}, {}, {}
        return outputs

    def _computed(self, name: str, x: Tensor, run: Run) -> Tensor:
        """What a node makes of rows of its input."""
        node = self.nnet.nodes[name]
        if node.kind == "component-node":
            return self.layers[node.component].forward(x, run)
        if node.kind == "dim-range-node":
            start = int(node.values["dim-offset"])
            return x[:, start:start + int(node.values["dim"])].contiguous()
        return x

    def _forward_loop(self, loop: LoopPlan, plan: ChunkPlan, whole: Run) -> None:
        """Compute the nodes of a loop wave by wave; all inputs and values are kept, and what backward needs of each part."""
        sequences = whole.sequences
        for name in loop.nodes:
            rows, step = len(plan.times[name]) * sequences, plan.steps[name]
            width = aligned(step.dim + 1) if self._has_map(name) else step.dim
            self._inputs[name] = x = self._buffers.rows(name, rows, width, self.compute, self.device)
            x[:, :step.dim] = 0.0
            for term in loop.outside[name]:
                self._put_term(x.view(-1, sequences, width), term)
            self._values[name] = x.new_empty(rows, self.nnet.dim(name))
            self._runs[name] = replace(whole, times=plan.times[name], memory=[])
        for wave in loop.waves:
            for part in wave:
                rows_of = slice(part.rows.start * sequences, part.rows.stop * sequences)
                x = self._inputs[part.name][rows_of]
                for term in part.terms:
                    self._put_term(x.view(-1, sequences, x.shape[1]), term)
                run = replace(whole, times=plan.times[part.name][part.rows])
                self._values[part.name][rows_of] = self._computed(part.name, x, run)
                self._runs[part.name].memory.append(run)

    def backward_chunks(self, derivatives: Mapping[str, Tensor], grads: Tensor, beta: float = 0.0,
                        rule: GradientRule = outer_product) -> None:
        """The gradient of the minibatch of the last `forward_chunks`, once: grads <- beta grads + gradient.

        `derivatives` are those of the loss with respect to the outputs, by their names; those of an output that is not there are 0.
        """
        plan, views = self._last, self._grad_views(grads)
        of_component = dict(zip(self.layers, views, strict=True))
        with torch.no_grad():
            found = {name: torch.zeros_like(self._values[name]) for name in self.outputs}
            for name, derivative in derivatives.items():
                found[name].copy_(derivative)
            for name in reversed(plan.order):
                if name in plan.loops and name in self._values:
                    self._backward_loop(plan.loops[name], plan, found, of_component, beta, rule)
                if name in plan.loops:
                    continue
                dy, y, node = found.pop(name, None), self._values.pop(name), self.nnet.nodes[name]
                x, run = self._inputs.pop(name, y), self._runs.pop(name, None)
                own = of_component.pop(node.component, []) if run is not None else []
                if run is not None:
                    self.layers[node.component].gather(y, run, own, beta)
                if dy is None or name not in plan.steps:
                    continue
                self._truncate(dy, plan.times[name])
                dx: Tensor | None = dy
                given = [term for term in plan.steps[name].terms if term.source in self._learned]
                if run is not None:
                    dx = self.layers[node.component].backward(x, y, dy, run, bool(given), own, beta, rule)
                elif node.kind == "dim-range-node":
                    dx = self._widened(name, dy)
                if given and dx is not None:
                    for term in given:
                        self._give_back(found, term, dx, plan, term is given[-1])
            for view in itertools.chain.from_iterable(of_component.values()):  # of components that have no part in it
                view.mul_(beta) if beta else view.zero_()

    def _widened(self, name: str, dy: Tensor) -> Tensor:
        """The derivatives of all dimensions that a node takes some of."""
        start = int(self.nnet.nodes[name].values["dim-offset"])
        dx = dy.new_zeros(len(dy), self.nnet.dim(self.nnet.nodes[name].values["input-node"]))
        dx[:, start:start + dy.shape[1]] = dy
        return dx

    def _truncate(self, dy: Tensor, times: np.ndarray) -> None:
        """Make derivatives zero at frames further from the outputs than `truncation`."""
        if self.truncation < 0:
            return
        low, high = np.searchsorted(times, [-self.truncation, self._last.last_output + self.truncation + 1]) * self.num_sequences
        dy[:low] = 0.0
        dy[high:] = 0.0

    def _backward_loop(self, loop: LoopPlan, plan: ChunkPlan, found: dict[str, Tensor], of_component: dict[str, list[Tensor]], beta: float,
                       rule: GradientRule) -> None:
        """Go back through the waves of a loop; then the gradients of its components, and the derivatives of what it takes."""
        values = {name: self._values.pop(name) for name in loop.nodes}
        runs = {name: self._runs.pop(name) for name in loop.nodes}
        total = {name: found.pop(name) if name in found else torch.zeros_like(values[name]) for name in loop.nodes}
        given = {name: [term for term in terms if term.source in self._learned] for name, terms in loop.outside.items()}
        down = {name: values[name].new_empty(len(values[name]), plan.steps[name].dim) for name, terms in given.items() if terms}
        for wave in reversed(loop.waves):
            for part in reversed(wave):
                name, rows = part.name, slice(part.rows.start * self.num_sequences, part.rows.stop * self.num_sequences)
                dy, run, node = total[name][rows], runs[name].memory.pop(), self.nnet.nodes[name]
                self._truncate(dy, run.times)
                dx = dy
                if node.kind == "component-node":
                    dx = self.layers[node.component].derivative(self._inputs[name][rows], values[name][rows], dy, run)
                elif node.kind == "dim-range-node":
                    dx = self._widened(name, dy)
                for term in part.terms:
                    self._add_back(total[term.source], term, dx)
                if name in down:
                    down[name][rows] = dx
        for name in loop.nodes:
            node, x = self.nnet.nodes[name], self._inputs.pop(name)
            if node.kind == "component-node":
                own = of_component.pop(node.component, [])
                self.layers[node.component].gather(values[name], runs[name], own, beta)
                self.layers[node.component].accumulate(x, total[name], runs[name], own, beta, rule)
            for term in given[name]:
                self._give_back(found, term, down[name], plan, term is given[name][-1])

    def _check_uses(self) -> None:
        """Leave components alone that no output needs; raises UserError for those that are not trained where they stand."""
        uses = Counter(self.nnet.nodes[name].component for name in self._plan.order if self.nnet.nodes[name].kind == "component-node")
        for name, layer in self.layers.items():
            if uses[name] > 1 and layer.specs():
                raise UserError(f"the network's nodes share the component {name}, which is not trained so here; give each its own.")
            if not uses[name]:
                layer.maps = []
        for node in map(self.nnet.nodes.__getitem__, self._plan.loop_of):
            if node.kind == "component-node" and type(self.layers[node.component]) not in IN_LOOPS:
                type_ = self.nnet.components[node.component].type
                raise UserError(f"the network's component {node.component}, a {type_}, is inside a loop of a recurrent network, where it "
                                "is not trained here.")

    def _widen_ends(self) -> None:
        """Let the maps whose outputs are the network's, or what these are the log-softmax of, compute them in the parameters' type."""
        for name in self.outputs:
            node = self.nnet.nodes[name]
            while node.input is not None and not node.input.function and self.nnet.nodes[node.input.node].kind == "component-node":
                node = self.nnet.nodes[node.input.node]
                layer = self.layers[node.component]
                layer.wide = bool(layer.maps)
                if not isinstance(layer, LogSoftmax):
                    break

    def _needing_derivatives(self) -> set[str]:
        """The nodes with parameters that are trained, in themselves or in what they take input from."""
        learned: set[str] = set()
        for name in self._plan.order:
            together = self._plan.loop_of[name].nodes if name in self._plan.loop_of else (name,)
            taken = [self.nnet.taken_by(one) for one in together]
            if any(map(self._has_map, together)) or any(one is not None and learned.intersection(one.nodes()) for one in taken):
                learned.update(together)
        return learned

    def _has_map(self, name: str) -> bool:
        """Whether a node is of a component with parameters that are trained."""
        node = self.nnet.nodes[name]
        return node.kind == "component-node" and bool(self.layers[node.component].maps)

    def _chunk_plan(self, frames: int, output_frames: int, before: int) -> ChunkPlan:
        key = frames, output_frames, before
        if key not in self._chunk_plans:
            times = np.arange(output_frames) * self.subsampling
            self._chunk_plans[key] = ChunkPlan(self.nnet, self._plan, times, -before, frames - before - 1)
        return self._chunk_plans[key]

    def _input(self, name: str, plan: ChunkPlan, sequences: int) -> Tensor:
        """The input of a node (rows, dim); of an affine map in rows with room for a one. Of a node that takes none it has no columns."""
        if name not in plan.steps:
            return self.params.new_empty(len(plan.times[name]) * sequences, 0, dtype=self.compute)
        step, has_map = plan.steps[name], self._has_map(name)
        if step.same and not has_map:
            return self._values[step.same]
        rows, width = len(step.times) * sequences, aligned(step.dim + 1) if has_map else step.dim
        x = self._buffers.rows(name, rows, width, self.compute, self.device)
        if step.partial:
            x[:, :step.dim] = 0.0
        for term in step.terms:
            self._put_term(x.view(-1, sequences, width), term)
        return x

    def _put_term(self, frames: Tensor, term: Term) -> None:
        """Put a term where it belongs in an input (frames, sequences, columns)."""
        part = frames[:, :, term.column:term.column + term.dim]
        if not term.source:
            self._put(part, term, torch.full((), term.scale, dtype=self.compute, device=self.device))
            return
        source = self._values[term.source]
        value = self._frames(source.view(-1, self.num_sequences, source.shape[1]), term.frames)
        self._put(part, term, value if term.scale == 1.0 else value * term.scale)

    def _give_back(self, found: dict[str, Tensor], term: Term, dx: Tensor, plan: ChunkPlan, last: bool) -> None:
        """Add to the derivatives of a term's source what stands in the derivatives dx (rows, dim) of the input.

        After the `last` term nobody reads dx, which may become the source's.
        """
        source = self._values[term.source]
        whole = isinstance(term.frames, slice) and term.frames == slice(0, len(plan.times[term.source]))
        if last and whole and term.source not in found and dx.shape == source.shape and isinstance(term.into, slice):
            found[term.source] = dx if term.scale == 1.0 else dx.mul_(term.scale)
            return
        value = self._frames(dx.view(-1, self.num_sequences, dx.shape[1]), term.into)[:, :, term.column:term.column + term.dim]
        if term.source not in found:
            found[term.source] = torch.empty_like(source) if whole else torch.zeros_like(source)
            total = found[term.source].view(-1, self.num_sequences, source.shape[1])
            if whole:
                torch.mul(value, term.scale, out=total) if term.scale != 1.0 else total.copy_(value)
                return
        self._add_back(found[term.source], term, dx)

    def _add_back(self, total: Tensor, term: Term, dx: Tensor) -> None:
        """Add to the derivatives `total` of a term's source what stands in the derivatives dx (rows, dim) of the input."""
        value = self._frames(dx.view(-1, self.num_sequences, dx.shape[1]), term.into)[:, :, term.column:term.column + term.dim]
        total = total.view(-1, self.num_sequences, total.shape[1])
        if isinstance(term.frames, slice):
            total[term.frames].add_(value, alpha=term.scale)
        else:
            total.index_add_(0, self._index(term.frames), value, alpha=term.scale)

    def _index(self, frames: np.ndarray) -> Tensor:
        """Frames as an index on the device, to which it is copied once."""
        key = frames.tobytes()
        if key not in self._indices:
            self._indices[key] = torch.from_numpy(frames).to(self.device)
        return self._indices[key]

    def _frames(self, x: Tensor, frames: Frames) -> Tensor:
        return x[frames] if isinstance(frames, slice) else x.index_select(0, self._index(frames))

    def _put(self, out: Tensor, term: Term, value: Tensor) -> None:
        """Put a term's value (frames, sequences, dim) where it belongs in `out`, which has all frames of the input."""
        if not isinstance(term.into, slice):
            out[self._index(term.into)] += value
        elif term.add:
            out[term.into].add_(value)
        else:
            out[term.into].copy_(value)


class Buffers:
    """The rows that the inputs of affine maps lie in, by the names of their nodes; kept from one minibatch to the next."""

    def __init__(self) -> None:
        self.capacity = 0
        self._flat: dict[str, Tensor] = {}

    def flat(self, name: str, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A flat buffer of `size` values or more; zeros at first."""
        found = self._flat.get(name)
        if found is None or found.numel() < size or found.dtype != dtype:
            found = self._flat[name] = torch.zeros(size, dtype=dtype, device=device)
        return found

    def rows(self, name: str, rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer (rows, width). Columns that nobody writes to are zero."""
        return self.flat(name, rows * width, dtype, device)[:rows * width].view(rows, width)
