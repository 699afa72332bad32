"""The outputs of an nnet3 network's nodes over an utterance, as Kaldi's nnet3-compute makes them.

Which frames of which node are needed follows from those of the output: a node's input at frame t is its descriptor at t, and a
TdnnComponent takes that at t + each of its time offsets. So the frames are found from the output to the inputs (with a subsampling
of 3, upper layers compute every third frame only), and computed from the inputs to the output, each node at once for all of its frames.
Before the first and behind the last frame the input is repeated. Batch normalisation and dropout are in test mode.

A recurrent network goes through the utterance as a whole, each loop wave by wave (`loops.py`). What it was in before the first frame that
can be computed is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from pykaldist.devices import computing_on
from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing import lstm
from pykaldist.nnet.nnet3.computing.attention import Attention
from pykaldist.nnet.nnet3.computing.convolution import Patches
from pykaldist.nnet.nnet3.computing.elementwise import FUNCTIONS
from pykaldist.nnet.nnet3.computing.gru import GruFunction
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.loops import Loop
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.plan import Plan, Span, shift

#: Of a node by its name, the rows at frames.
Taken = Callable[[str, np.ndarray], Tensor]


class Nnet3Forward:
    """The forward pass of a network on `device`, to which its parameters are copied once, up to the node `output`.

    `subsampling` is the number of input frames for each output frame. A recurrent network's loops begin `around` frames before the first
    frame that is needed (and end so many behind the last); there the input is repeated, too.
    """

    def __init__(self, nnet: Nnet3, device: str = "cpu", output: str = "output", subsampling: int = 1,
                 around: tuple[int, int] = (0, 0)) -> None:
        self._nnet, self.device, self.output, self.subsampling, self.around = nnet, device, output, subsampling, around
        self.plan = Plan(nnet, output, subsampling)
        self._order = self.plan.order
        self.output_dim = nnet.dim(output)
        self.inputs = {name: nnet.dim(name) for name in self._order if nnet.nodes[name].kind == "input-node"}
        self._layers: dict[str, dict[str, Tensor]] = {}
        for name in self._order:
            node = nnet.nodes[name]
            if node.kind == "component-node" and node.component not in self._layers:
                self._layers[node.component] = {key: torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(device)
                                                for key, array in parameters(nnet.components[node.component]).items()}
        self._users = {name: 0 for name in self._order}  # descriptors that take each node
        for name in self._order:
            for source in self.sources(name):
                self._users[source] += 1

    def __call__(self, feats: np.ndarray, **others: np.ndarray) -> np.ndarray:
        """Compute the output (frames / subsampling, rounded up; dimension) float32 of an utterance `feats` (frames, dimension).

        `others` are the inputs of other names by theirs (`ivector`), a matrix each, whose last row is repeated. Raises ValueError for
        inputs of another dimension, or that are missing.
        """
        inputs = {"input": feats, **others}
        self.check_inputs(inputs)
        times = np.arange(0, len(feats), self.subsampling)
        with computing_on(self.device):
            return self.outputs_at(times, {name: inputs[name] for name in self.inputs}, *self.ends(len(feats))).cpu().numpy()

    def ends(self, frames: int) -> tuple[int, int]:
        """The first and the last frame that an input of so many frames has where its own are repeated before and behind them."""
        return -self.plan.left_context - self.around[0], frames - 1 + self.plan.right_context + self.around[1]

    def check_inputs(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Raise ValueError where an input is missing, empty, or has another dimension."""
        for name, dim in self.inputs.items():
            if name not in inputs:
                raise ValueError(f"the network has an input {name}, of dimension {dim}, which is not given")
            if inputs[name].ndim != 2 or inputs[name].shape[1] != dim or not len(inputs[name]):
                raise ValueError(f"expected {name} of dimension {dim}, found {inputs[name].shape}")

    def sources(self, name: str) -> list[str]:
        """The nodes that a node takes input from."""
        descriptor = self._nnet.taken_by(name)
        return list(descriptor.nodes()) if descriptor is not None else []

    def outputs_at(self, times: np.ndarray, inputs: Mapping[str, np.ndarray], first: int, last: int) -> Tensor:
        """The outputs at some frames, of the frames of input from `first` to `last` alone where it matters (IfDefined)."""
        with torch.no_grad(), computing_on(self.device):
            return self._outputs_at(times, inputs, first, last)

    def _outputs_at(self, times: np.ndarray, inputs: Mapping[str, np.ndarray], first: int, last: int) -> Tensor:
        spans = self.plan.spans(first, last) if self.plan.has_if_defined else {}
        needed = self.plan.needed(times, spans=spans if self.plan.loops else None)
        values: dict[str, Tensor] = {}
        users = dict(self._users)

        def kept(name: str, at: np.ndarray) -> Tensor:
            return rows_of(values[name], needed[name], at)

        def taken(name: str, at: np.ndarray) -> Tensor:
            users[name] -= name not in self.plan.loop_of
            return kept(name, at) if users[name] else rows_of(values.pop(name), needed[name], at)

        for name in self._order:
            if name in values or name not in needed:
                continue
            if name in self.plan.loop_of:
                inner = [one for one in self.plan.loop_of[name].nodes if one in needed]
                values.update({one: self.empty(one, len(needed[one])) for one in inner})
                self.loop(self.plan.loop_of[name], needed, needed, values, inputs, kept, spans)
            else:
                values[name] = self.node(name, needed[name], inputs, taken, spans)
        return values[self.output]

    def loop(self, loop: Loop, new: Mapping[str, np.ndarray], times: Mapping[str, np.ndarray], values: Mapping[str, Tensor],
             inputs: Mapping[str, np.ndarray], taken: Taken, spans: Mapping[str, Span]) -> None:
        """Compute the frames `new` of a loop's nodes, which have rows in `values` among those of the frames `times`."""
        for wave in loop.waves(new):
            for name in loop.nodes:
                if name in wave:
                    at = new[name][wave[name]]
                    values[name][_on_device(_rows(times[name], at), values[name].device)] = self.node(name, at, inputs, taken, spans)

    def empty(self, name: str, frames: int) -> Tensor:
        """Rows for so many frames of a node."""
        return torch.empty(frames, self._nnet.dim(name), device=self.device)

    def node(self, name: str, times: np.ndarray, inputs: Mapping[str, np.ndarray], taken: Taken, spans: Mapping[str, Span]) -> Tensor:
        """Compute a node at the frames `times`; `taken` gives the values of nodes that it takes, `spans` is for IfDefined (`Plan.spans`).

        The first and the last rows of `inputs` are repeated before and behind them.
        """
        node = self._nnet.nodes[name]
        if node.kind == "input-node":
            rows = times.clip(0, len(inputs[name]) - 1)
            return torch.from_numpy(np.require(inputs[name][rows], np.float32, ["C", "W"])).to(self.device)
        if (descriptor := self._nnet.taken_by(name)) is None:
            return torch.full((len(times), self._nnet.dim(name)), mask_in_test(self._nnet.components[node.component]), device=self.device)
        at = self.plan.input_times(name, times)
        x = self._value(descriptor, at, taken, spans)
        if node.kind == "component-node":
            return _component(self._nnet.components[node.component], self._layers[node.component], x, at, times)
        if node.kind == "dim-range-node":
            start = int(node.values["dim-offset"])
            return x[:, start:start + int(node.values["dim"])]
        return x

    def _value(self, descriptor: Descriptor, at: np.ndarray, taken: Taken, spans: Mapping[str, Span]) -> Tensor:
        """The value of a descriptor at the frames `at`."""
        match descriptor.function:
            case "":
                return taken(descriptor.node, at)
            case "Append":
                return torch.cat([self._value(part, at, taken, spans) for part in descriptor.parts], 1)
            case "Sum":
                first, *rest = [self._value(part, at, taken, spans) for part in descriptor.parts]
                for part in rest:
                    first = first + part
                return first
            case "Scale":
                return self._value(descriptor.parts[0], at, taken, spans) * descriptor.numbers[0]
            case "Const":
                return torch.full((len(at), int(descriptor.numbers[1])), descriptor.numbers[0], device=self.device)
            case "IfDefined":
                low, high = self.plan.span(descriptor.parts[0], spans)
                defined = (at >= low) & (at <= high)
                if defined.all():
                    return self._value(descriptor.parts[0], at, taken, spans)
                value = torch.zeros(len(at), self._nnet.descriptor_dim(descriptor), device=self.device)
                if defined.any():
                    value[torch.from_numpy(defined).to(self.device)] = self._value(descriptor.parts[0], at[defined], taken, spans)
                return value
            case _:
                return self._value(descriptor.parts[0], shift(descriptor, at), taken, spans)


def rows_of(values: Tensor, have: np.ndarray, want: np.ndarray) -> Tensor:
    """The rows of the frames `want` among those of the frames `have`, which are in order."""
    return values[_on_device(_rows(have, want), values.device)]


def _on_device(rows: slice | np.ndarray, device: torch.device) -> slice | Tensor:
    return rows if isinstance(rows, slice) else torch.from_numpy(rows).to(device)


def _rows(have: np.ndarray, want: np.ndarray) -> slice | np.ndarray:
    """The rows of the frames `want` among the frames `have`, which are in order: a slice where they are evenly spaced."""
    rows = np.searchsorted(have, want)
    if len(rows) == 1:
        return slice(int(rows[0]), int(rows[0]) + 1)
    step = int(rows[1] - rows[0])
    if step > 0 and rows[-1] - rows[0] == step * (len(rows) - 1) and (np.diff(rows) == step).all():
        return slice(int(rows[0]), int(rows[-1]) + 1, step)
    return rows


def parameters(component: Nnet3Component) -> dict[str, np.ndarray]:
    """The arrays that a component computes with: of batch normalisation the scale and offset that its statistics come to.

    Raises UserError for batch normalisation without statistics, and for a type that is not computed here.
    """
    def repeated(token: str) -> np.ndarray:
        """An array of a block, for all of the component's dimensions."""
        return np.tile(component.array(token), component.output_dim // len(component.array(token)))

    match component.type:
        case "BatchNormComponent":
            if component.number("Count") <= 0:
                raise UserError(f"the network's {component.name} has no statistics yet; train it (steps/nnet3/train_dnn.py, "
                                "steps/nnet3/chain/train.py), or give a trained network.")
            blocks = component.output_dim // int(component.number("BlockDim"))
            scale = component.number("TargetRms") / np.sqrt(component.array("StatsVar") + component.number("Epsilon"))
            return {"scale": np.tile(scale, blocks), "offset": np.tile(-component.array("StatsMean") * scale, blocks)}
        case "ScaleAndOffsetComponent":
            return {"scale": repeated("Scales"), "offset": repeated("Offsets")}
        case "PerElementScaleComponent" | "NaturalGradientPerElementScaleComponent":
            return {"scale": component.array("Params")}
        case "FixedScaleComponent":
            return {"scale": component.array("Scales")}
        case "PerElementOffsetComponent":
            return {"offset": repeated("Offsets")}
        case "FixedBiasComponent":
            return {"offset": component.array("Bias")}
        case "DropoutComponent":  # in training what stays is not scaled up
            return {"scale": np.full(component.output_dim, 1 - component.number("DropoutProportion"), np.float32)}
        case "TimeHeightConvolutionComponent":
            return {"weight": component.linear, "bias": component.array("BiasParams")}
        case "LstmNonlinearityComponent":
            return {"peepholes": component.array("Params")}
        case "OutputGruNonlinearityComponent" | "GruNonlinearityComponent":
            return {"weights": component.array("w_h")}
        case "BackpropTruncationComponent":
            return {} if component.number("Scale") == 1 else {"scale": np.full(component.output_dim, component.number("Scale"), np.float32)}
        case type_ if type_ in MAPS:
            bias = component.values.get("BiasParams")
            return {"linear": component.linear, **({"bias": bias} if isinstance(bias, np.ndarray) and len(bias) else {})}
        case type_ if type_ in WITHOUT_ARRAYS:
            return {}
        case _:
            raise UserError(f"the network's {component.name} is of the type {component.type}, which is not computed here.")


MAPS = {"FixedAffineComponent", "AffineComponent", "NaturalGradientAffineComponent", "LinearComponent", "TdnnComponent"}
WITHOUT_ARRAYS = {"GeneralDropoutComponent", "NoOpComponent", "SpecAugmentTimeMaskComponent", "RectifiedLinearComponent",
                  "LogSoftmaxComponent", "DropoutMaskComponent", "RestrictedAttentionComponent", *FUNCTIONS}


def mask_in_test(component: Nnet3Component) -> float:
    """What a DropoutMaskComponent puts everywhere: the mean of its random masks."""
    return 1.0 if "Continuous" in component.values else 1.0 - component.number("DropoutProportion")


def _component(component: Nnet3Component, arrays: dict[str, Tensor], x: Tensor, at: np.ndarray, times: np.ndarray) -> Tensor:
    """The output of a component at the frames `times`; `x` is its input at the frames `at`."""
    match component.type:
        case "RectifiedLinearComponent":
            return x.clamp_min(0)
        case "LogSoftmaxComponent":
            return x.log_softmax(1)
        case "BatchNormComponent" | "ScaleAndOffsetComponent":
            return torch.addcmul(arrays["offset"], x, arrays["scale"])
        case "GeneralDropoutComponent" | "NoOpComponent" | "SpecAugmentTimeMaskComponent":
            return x
        case "BackpropTruncationComponent" if not arrays:
            return x
        case "LstmNonlinearityComponent":
            return lstm.gates_and_cells(x, arrays["peepholes"]).outputs()
        case "OutputGruNonlinearityComponent" | "GruNonlinearityComponent":
            return GruFunction(component).forward(x, arrays["weights"])
        case "RestrictedAttentionComponent":
            attention = Attention(component)
            rows = [_on_device(_rows(at, times + offset), x.device) for offset in attention.offsets]
            return attention.forward(x[:, None], rows)[0][:, 0]
        case "TimeHeightConvolutionComponent":
            spliced = torch.cat([rows_of(x, at, times + offset) for offset in component.time_offsets], 1)
            return Patches(component).forward(spliced, arrays["weight"], arrays["bias"])
        case type_ if type_ in FUNCTIONS:
            return FUNCTIONS[type_](component).forward(x)
        case _ if "scale" in arrays:
            return x * arrays["scale"]
        case _ if "offset" in arrays:
            return x + arrays["offset"]
        case _:
            y = None
            for offset, weights in zip(component.time_offsets, arrays["linear"].split(component.input_dim, 1), strict=True):
                part = rows_of(x, at, times + offset)
                if y is not None:
                    y = torch.addmm(y, part, weights.t())
                elif "bias" in arrays:
                    y = torch.addmm(arrays["bias"], part, weights.t())
                else:
                    y = part @ weights.t()
            assert y is not None
            return y
