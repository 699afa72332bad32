"""Recurrent networks of the layers that Kaldi's recipes call, and a reference that computes them frame by frame, as their files say."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers

INPUTS, PDFS = 5, 4
REACH = 4  # frames beyond which no node here is from an input that it needs
FAST = "cell-dim=6 recurrent-projection-dim=3 non-recurrent-projection-dim=2"
XCONFIGS = {
    "lstm": ["lstm-layer name=l cell-dim=4 delay=-2"],
    "lstmp": [f"lstmp-layer name=l {FAST} delay=-3"],
    "lstmp with dropout": [f"lstmp-layer name=l {FAST} delay=-3 dropout-proportion=0.25 dropout-per-frame=true"],
    "fast lstm": ["fast-lstm-layer name=l cell-dim=4 delay=-1"],
    "fast lstmp": [f"fast-lstmp-layer name=l {FAST} delay=-3 decay-time=20"],
    "fast lstmp with dropout": [f"fast-lstmp-layer name=l {FAST} delay=-3 dropout-proportion=0.25"],
    "bottleneck": ["lstmb-layer name=l cell-dim=4 bottleneck-dim=3 delay=-3 self-scale=0.5"],
    "backwards": [f"fast-lstmp-layer name=l {FAST} delay=2"],
    "tdnn and lstm": ["relu-batchnorm-layer name=t input=Append(-2,0,1) dim=6", f"fast-lstmp-layer name=l {FAST} delay=-3",
                      "relu-batchnorm-layer name=u input=Append(-3,0,3) dim=5", f"fast-lstmp-layer name=l2 {FAST} delay=-3"],
    "gru": ["gru-layer name=l cell-dim=4 delay=-2"],
    "norm pgru": [f"norm-pgru-layer name=l {FAST} delay=-3 dropout-proportion=0.25"],
    "fast gru": ["fast-gru-layer name=l cell-dim=4 delay=-1"],
    "fast norm pgru": [f"fast-norm-pgru-layer name=l {FAST} delay=-3"],
    "opgru": [f"opgru-layer name=l {FAST} delay=-1"],
    "norm opgru": [f"norm-opgru-layer name=l {FAST} delay=-3 dropout-proportion=0.25"],
    "fast opgru": [f"fast-opgru-layer name=l {FAST} delay=-2"],
    "fast norm opgru": [f"fast-norm-opgru-layer name=l {FAST} delay=-3 dropout-proportion=0.0"],
    "both ways": [f"fast-lstmp-layer name=a {FAST} delay=-3", f"fast-lstmp-layer name=b input=input {FAST} delay=3",
                  "relu-batchnorm-layer name=u input=Append(a, b) dim=5"],
}


def recurrent(name: str, seed: int = 0, trained: bool = True) -> Nnet3:
    """A network of `XCONFIGS` with random parameters; `trained`: with statistics of batch normalisation."""
    lines = [f"input dim={INPUTS} name=input", *XCONFIGS[name], f"output-layer name=output dim={PDFS}"]
    nnet = initialised(config_lines(read_layers(lines))["final"], torch.Generator().manual_seed(seed))
    random = np.random.default_rng(seed)
    for component in nnet.components.values():
        if component.type == "NaturalGradientAffineComponent" and component.name.startswith("output"):  # which starts at zero
            component.values["LinearParams"] = random.normal(size=component.linear.shape).astype(np.float32)
        if component.type == "BatchNormComponent" and trained:
            component.values |= {"Count": 10.0, "StatsMean": random.normal(size=component.output_dim).astype(np.float32),
                                 "StatsVar": random.uniform(0.5, 2, component.output_dim).astype(np.float32)}
    return nnet


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _frame(component: Nnet3Component, x: np.ndarray) -> np.ndarray:
    """A component's output for one frame of its input, in the test."""
    match component.type:
        case "NaturalGradientAffineComponent" | "LinearComponent":
            return component.linear @ x + component.values.get("BiasParams", 0.0)
        case "LstmNonlinearityComponent":
            w, cells = component.array("Params").astype(np.float64), component.array("Params").shape[1]
            a, before = x[:4 * cells].reshape(4, cells), x[4 * cells:5 * cells]
            d = x[5 * cells:] if len(x) > 5 * cells else np.ones(3)
            c = sigmoid(a[1] + w[1] * before) * d[1] * before + sigmoid(a[0] + w[0] * before) * d[0] * np.tanh(a[2])
            return np.concatenate([c, sigmoid(a[3] + w[2] * c) * d[2] * np.tanh(c)])
        case "GruNonlinearityComponent":
            cells, recurrent = component.integer("CellDim"), component.integer("RecurrentDim")
            z, r, a, before = np.split(x[:3 * cells + recurrent], np.cumsum([cells, recurrent, cells]))
            h = np.tanh(a + component.array("w_h").astype(np.float64) @ (r * x[-recurrent:]))
            return np.concatenate([h, (1 - z) * h + z * before])
        case "OutputGruNonlinearityComponent":
            z, a, before = x.reshape(3, -1)
            h = np.tanh(a + component.array("w_h") * before)
            return np.concatenate([h, (1 - z) * h + z * before])
        case "NoOpComponent":
            return x
        case "NormalizeComponent":
            return x * component.number("TargetRms") / math.sqrt(np.mean(x * x))
        case "SigmoidComponent":
            return sigmoid(x)
        case "TanhComponent":
            return np.tanh(x)
        case "RectifiedLinearComponent":
            return np.maximum(x, 0)
        case "LogSoftmaxComponent":
            return x - math.log(np.exp(x).sum())
        case "ElementwiseProductComponent":
            return x.reshape(-1, component.output_dim).prod(0)
        case "NaturalGradientPerElementScaleComponent":
            return x * component.array("Params")
        case "ScaleAndOffsetComponent":
            return x * component.array("Scales") + component.array("Offsets")
        case "BackpropTruncationComponent":
            return x * component.number("Scale")
        case "DropoutComponent":
            return x * (1 - component.number("DropoutProportion"))
        case "BatchNormComponent":
            return (x - component.array("StatsMean")) / np.sqrt(component.array("StatsVar") + component.number("Epsilon"))
        case _:
            raise AssertionError(component.type)


def slow_outputs(nnet: Nnet3, feats: np.ndarray, first: int, last: int, times: list[int]) -> np.ndarray:
    """The node `output` at `times`: each node at each frame by its definition; of input frames `first` to `last`, repeated at the ends."""

    @functools.cache
    def value(name: str, t: int) -> np.ndarray | None:
        """None where it cannot be computed."""
        node = nnet.nodes[name]
        if not first - REACH <= t <= last + REACH:  # so far away nothing has input
            return None
        if node.kind == "input-node":
            return feats[min(max(t, 0), len(feats) - 1)].astype(np.float64) if first <= t <= last else None
        if node.kind == "component-node" and nnet.components[node.component].type == "DropoutMaskComponent":
            return np.full(3, 1 - nnet.components[node.component].number("DropoutProportion"))
        assert node.input is not None
        x = of(node.input, t)
        if x is None:
            return None
        if node.kind == "dim-range-node":
            return x[int(node.values["dim-offset"]):][:int(node.values["dim"])]
        return _frame(nnet.components[node.component], x) if node.kind == "component-node" else x

    def of(descriptor: Descriptor, t: int) -> np.ndarray | None:
        match descriptor.function:
            case "":
                return value(descriptor.node, t)
            case "Offset":
                return of(descriptor.parts[0], t + int(descriptor.numbers[0]))
            case "Scale":
                x = of(descriptor.parts[0], t)
                return None if x is None else x * descriptor.numbers[0]
            case "Const":
                return np.full(int(descriptor.numbers[1]), descriptor.numbers[0])
            case "IfDefined":
                x = of(descriptor.parts[0], t)
                return np.zeros(nnet.descriptor_dim(descriptor)) if x is None else x
            case "Append" | "Sum":
                parts = [of(part, t) for part in descriptor.parts]
                if any(part is None for part in parts):
                    return None
                return np.concatenate(parts) if descriptor.function == "Append" else sum(parts)
            case _:
                raise AssertionError(descriptor)

    return np.array([value("output", t) for t in times])
