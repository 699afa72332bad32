"""Networks in training beside the definition, frame by frame, with gradients by autograd; and what is random in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor, parse_node
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.network import Nnet3Network

SEQUENCES, FRAMES = 3, 4  # output frames
NATURAL = {"RankIn": 2, "RankOut": 2, "UpdatePeriod": 4, "NumSamplesHistory": 2000.0, "Alpha": 4.0}


def network_of(nodes: str, components: list[Nnet3Component]) -> Nnet3:
    lines = [parse_node(line) for line in nodes.strip().splitlines()]
    nnet = Nnet3({node.name: node for node in lines}, {component.name: component for component in components})
    nnet.check()
    return nnet


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def affine(name: str, input_dim: int, output_dim: int, kind: str = "NaturalGradientAffineComponent") -> Nnet3Component:
    params = {"LinearParams": random(output_dim, input_dim), "BiasParams": random(output_dim)}
    return Nnet3Component(name, kind, {"LearningRate": 0.001, **params, **(NATURAL if kind.startswith("Natural") else {})})


def tdnn(name: str, input_dim: int, output_dim: int, offsets: list[int], bias: bool = True) -> Nnet3Component:
    return Nnet3Component(name, "TdnnComponent", {
        "LearningRate": 0.001, "TimeOffsets": offsets, "LinearParams": random(output_dim, input_dim * len(offsets)),
        "BiasParams": random(output_dim * bias), "OrthonormalConstraint": 0.0, "UseNaturalGradient": True, "NumSamplesHistory": 2000.0,
        "AlphaInOut": [4.0, 4.0], "RankInOut": [2, 2]})


def linear(name: str, input_dim: int, output_dim: int) -> Nnet3Component:
    return Nnet3Component(name, "LinearComponent", {
        "LearningRate": 0.001, "Params": random(output_dim, input_dim), "UseNaturalGradient": True, "RankInOut": [2, 2], "Alpha": 4.0,
        "NumSamplesHistory": 2000.0, "UpdatePeriod": 4})


def simple(name: str, kind: str, dim: int, **more: float | bool) -> Nnet3Component:
    fields = {"RectifiedLinearComponent": {"ValueAvg": np.zeros(0, np.float32), "DerivAvg": np.zeros(0, np.float32), "Count": 0.0},
              "LogSoftmaxComponent": {"ValueAvg": np.zeros(0, np.float32), "DerivAvg": np.zeros(0, np.float32), "Count": 0.0},
              "BatchNormComponent": {"BlockDim": dim, "Epsilon": 0.001, "TargetRms": 0.7, "TestMode": False, "Count": 0.0,
                                     "StatsMean": np.zeros(0, np.float32), "StatsVar": np.zeros(0, np.float32)},
              "GeneralDropoutComponent": {"BlockDim": dim, "TimePeriod": 0, "DropoutProportion": 0.0},
              "NoOpComponent": {"BackpropScale": 1.0}}[kind]
    return Nnet3Component(name, kind, {"Dim": dim, **fields, **more})


ALL_NODES = """
input-node name=input dim=4
input-node name=ivector dim=2
component-node name=lda component=lda input=Append(Offset(input, -1), input, Offset(input, 1), ReplaceIndex(ivector, t, 0))
component-node name=first component=first input=lda
component-node name=relu component=relu input=first
component-node name=norm component=norm input=relu
component-node name=narrow component=narrow input=norm
component-node name=wide component=wide input=narrow
component-node name=sum component=sum input=Sum(Scale(0.66, norm), wide)
dim-range-node name=range input-node=sum dim-offset=1 dim=3
component-node name=plain component=plain input=Append(Round(sum, 3), IfDefined(Offset(range, -4)), Const(0.5, 2))
component-node name=blocks component=blocks input=plain
component-node name=spread component=spread input=Sum(Append(range, range), blocks)
output-node name=output input=spread objective=linear
component-node name=project component=project input=Sum(blocks, Offset(blocks, 3))
component-node name=log-softmax component=log-softmax input=project
output-node name=output-xent input=log-softmax objective=linear
"""


def all_components() -> Nnet3:
    fixed = Nnet3Component("lda", "FixedAffineComponent", {"LinearParams": random(5, 14), "BiasParams": random(5)})
    return network_of(ALL_NODES, [
        fixed, affine("first", 5, 6), simple("relu", "RectifiedLinearComponent", 6), simple("norm", "BatchNormComponent", 6),
        tdnn("narrow", 6, 2, [-1, 0], bias=False), tdnn("wide", 2, 6, [0, 1]), simple("sum", "NoOpComponent", 6),
        affine("plain", 11, 6, "AffineComponent"), simple("blocks", "BatchNormComponent", 6, BlockDim=3), linear("spread", 6, 4),
        linear("project", 6, 5), simple("log-softmax", "LogSoftmaxComponent", 5)])


class Definition:
    """A network's outputs by its definition: each node at each frame that is asked for, by recursion; parameters want gradients."""

    def __init__(self, nnet: Nnet3, network: Nnet3Network, feats: Tensor, ivectors: Tensor) -> None:
        self.nnet, self.feats, self.ivectors, self.left = nnet, feats, ivectors, network.left_context
        self.params = {name: [view.clone().requires_grad_() for view in views]
                       for name, views in zip(network.layers, network.views(network.params), strict=True)}
        self.frames: dict[str, set[int]] = {}
        self.values: dict[tuple[str, int], Tensor] = {}

    def defined(self, descriptor: Descriptor, t: int) -> bool:
        """Whether a descriptor can be computed from the input's frames."""
        match descriptor.function:
            case "":
                node = self.nnet.nodes[descriptor.node]
                if node.kind == "input-node":
                    return node.name != "input" or 0 <= t + self.left < len(self.feats)
                return all(self.defined(node.input, t + o) for o in self.offsets(node.name) if node.input is not None)
            case "IfDefined" | "Const":
                return True
            case _:
                return all(self.defined(part, self.shifted(descriptor, t)) for part in descriptor.parts)

    def offsets(self, name: str) -> list[int]:
        node = self.nnet.nodes[name]
        return self.nnet.components[node.component].time_offsets if node.kind == "component-node" else [0]

    def shifted(self, descriptor: Descriptor, t: int) -> int:
        match descriptor.function:
            case "Offset":
                return t + int(descriptor.numbers[0])
            case "Round":
                return t - t % int(descriptor.numbers[0])
            case "ReplaceIndex":
                return int(descriptor.numbers[0])
            case _:
                return t

    def ask(self, descriptor: Descriptor, t: int) -> None:
        """Note the frames at which nodes are needed."""
        if descriptor.function == "IfDefined" and not self.defined(descriptor.parts[0], t):
            return
        if descriptor.function:
            for part in descriptor.parts:
                self.ask(part, self.shifted(descriptor, t))
            return
        if t not in self.frames.setdefault(descriptor.node, set()):
            self.frames[descriptor.node].add(t)
            node = self.nnet.nodes[descriptor.node]
            for offset in self.offsets(descriptor.node):
                if node.input is not None:
                    self.ask(node.input, t + offset)

    def value(self, descriptor: Descriptor, t: int) -> Tensor:
        match descriptor.function:
            case "":
                return self.node(descriptor.node, t)
            case "Append":
                return torch.cat([self.value(part, t) for part in descriptor.parts], 1)
            case "Sum":
                return torch.stack([self.value(part, t) for part in descriptor.parts]).sum(0)
            case "Scale":
                return self.value(descriptor.parts[0], t) * descriptor.numbers[0]
            case "Const":
                return self.feats.new_full((SEQUENCES, int(descriptor.numbers[1])), descriptor.numbers[0])
            case "IfDefined" if not self.defined(descriptor.parts[0], t):
                return self.feats.new_zeros(SEQUENCES, self.nnet.descriptor_dim(descriptor))
            case _:
                return self.value(descriptor.parts[0], self.shifted(descriptor, t))

    def node(self, name: str, t: int) -> Tensor:
        if (name, t) not in self.values:
            self.values[name, t] = self.computed(name, t)
        return self.values[name, t]

    def computed(self, name: str, t: int) -> Tensor:
        node = self.nnet.nodes[name]
        if node.kind == "input-node":
            return self.feats[t + self.left] if name == "input" else self.ivectors
        assert node.input is not None
        if node.kind == "dim-range-node":
            start = int(node.values["dim-offset"])
            return self.value(node.input, t)[:, start:start + int(node.values["dim"])]
        component, params = self.nnet.components[node.component], self.params[node.component]
        x = torch.cat([self.value(node.input, t + offset) for offset in component.time_offsets], 1)
        match component.type:
            case "RectifiedLinearComponent":
                return x.relu()
            case "LogSoftmaxComponent":
                return x.log_softmax(1)
            case "NoOpComponent":
                return x
            case "FixedAffineComponent":
                return x @ torch.from_numpy(component.linear).double().t() + torch.from_numpy(component.array("BiasParams")).double()
            case "BatchNormComponent":
                block = int(component.number("BlockDim"))
                every = torch.cat([self.value(node.input, one).reshape(-1, block) for one in sorted(self.frames[name])])
                mean, variance = every.mean(0), every.var(0, unbiased=False)
                return ((x.reshape(-1, block) - mean) * 0.7 / (variance + 0.001).sqrt()).reshape(x.shape)
            case _:
                return x @ params[0].t() + (params[1] if len(params) > 1 else 0.0)

    def outputs(self) -> dict[str, Tensor]:
        times, found = [3 * n for n in range(FRAMES)], {}
        for name in ("output", "output-xent"):
            for t in times:
                self.ask(self.of(name), t)
        for name in ("output", "output-xent"):
            found[name] = torch.cat([self.value(self.of(name), t) for t in times])
        return found

    def of(self, name: str) -> Descriptor:
        descriptor = self.nnet.nodes[name].input
        assert descriptor is not None
        return descriptor


def inputs(network: Nnet3Network, frames: int = FRAMES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    count = 3 * (frames - 1) + 1 + network.left_context + network.right_context
    return (torch.randn(count, SEQUENCES, 4, generator=generator, dtype=torch.float64),
            torch.randn(SEQUENCES, 2, generator=generator, dtype=torch.float64))


def test_outputs_and_gradients_are_those_of_the_definition() -> None:
    nnet = all_components()
    network = Nnet3Network(nnet, dtype=torch.float64)
    feats, ivectors = inputs(network)
    outputs = network.forward_chunks(feats.flatten(0, 1), ivectors, FRAMES, SEQUENCES, training=True)
    reference = Definition(nnet, network, feats, ivectors)
    wanted = reference.outputs()
    for name, output in outputs.items():
        torch.testing.assert_close(output, wanted[name].detach())
    derivatives = {name: torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
                   for name, output in outputs.items()}
    sum((wanted[name] * derivatives[name]).sum() for name in wanted).backward()  # type: ignore[union-attr]
    grads = torch.full_like(network.params, 2.0)
    network.backward_chunks(derivatives, grads, 0.5)
    trained = 0
    for (name, layer), views in zip(network.layers.items(), network.views(grads), strict=True):
        for param, view in zip(reference.params[name] if layer.maps else [], views, strict=False):
            assert param.grad is not None
            torch.testing.assert_close(view, 1.0 + param.grad, msg=lambda text, name=name: f"{name}: {text}")
            trained += view.numel()
    assert trained == sum(part.stop - part.start for part in network.map_slices()) == network.nnet.num_params


def test_batch_normalisation_below_all_that_is_trained_has_statistics() -> None:
    network = Nnet3Network(network_of("""
        input-node name=input dim=3
        component-node name=norm component=norm input=input
        component-node name=first component=first input=norm
        output-node name=output input=first""", [simple("norm", "BatchNormComponent", 3), affine("first", 3, 2)]), subsampling=1)
    x, grads = torch.randn(6, 3), torch.zeros_like(network.params)
    network.backward_chunks({"output": network.forward_chunks(x, None, 3, 2, True)["output"]}, grads)
    for found, wanted in zip(network.views(grads)[0], (torch.full((1,), 6.0), x.sum(0), x.square().sum(0)), strict=True):
        torch.testing.assert_close(found, wanted)


def test_an_output_without_derivatives_trains_nothing_of_its_own() -> None:
    network = Nnet3Network(all_components(), dtype=torch.float64)
    feats, ivectors = inputs(network)
    outputs = network.forward_chunks(feats.flatten(0, 1), ivectors, FRAMES, SEQUENCES, training=True)
    grads = torch.full_like(network.params, 7.0)
    network.backward_chunks({"output": torch.ones_like(outputs["output"])}, grads)
    of = dict(zip(network.layers, network.views(grads), strict=True))
    assert (of["project"][0] == 0).all() and (of["first"][0] != 0).any() and (of["spread"][0] != 0).any()


def loss_of(network: Nnet3Network, weights: dict[str, Tensor]) -> Callable[[], float]:
    feats, ivectors = inputs(network)

    def loss() -> float:
        outputs = network.forward_chunks(feats.flatten(0, 1), ivectors, FRAMES, SEQUENCES, True, torch.Generator().manual_seed(5))
        return float(sum((outputs[name] * weight).sum() for name, weight in weights.items()))

    return loss


@pytest.mark.parametrize("fields", [{"Continuous": True}, {}, {"Continuous": True, "TimePeriod": 2}, {"BlockDim": 3}])
def test_gradients_behind_dropout_are_finite_differences(fields: dict[str, float | bool]) -> None:
    nodes = ALL_NODES.replace("component=norm input=relu", "component=norm input=dropped") + \
        "component-node name=dropped component=dropped input=relu\n"
    nnet = all_components()
    nnet = network_of(nodes, [*nnet.components.values(),
                              simple("dropped", "GeneralDropoutComponent", 6, **{"DropoutProportion": 0.3, **fields})])
    network = Nnet3Network(nnet, dtype=torch.float64)
    assert network.stochastic
    weights = {name: torch.randn(FRAMES * SEQUENCES, dim, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
               for name, dim in (("output", 4), ("output-xent", 5))}
    loss, grads = loss_of(network, weights), torch.zeros_like(network.params)
    loss()
    network.backward_chunks(weights, grads)
    generator, step = torch.Generator().manual_seed(4), 1e-6
    start = network.params.clone()
    for part in network.map_slices():
        direction = torch.zeros_like(start)
        direction[part] = torch.randn(part.stop - part.start, generator=generator, dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            network.params.copy_(start + sign * step * direction)
            ends.append(loss())
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(float(grads @ direction), rel=1e-5, abs=1e-6)


def dropout_only(**fields: float | bool) -> Nnet3Network:
    return Nnet3Network(network_of("""
        input-node name=input dim=4
        component-node name=dropped component=dropped input=input
        output-node name=output input=dropped""", [simple("dropped", "GeneralDropoutComponent", 4, **fields)]), subsampling=1)


def test_dropout_has_one_mask_a_sequence() -> None:
    network = dropout_only(DropoutProportion=0.2, Continuous=True)
    ones = torch.ones(5 * 400, 4)
    found = network.forward_chunks(ones, None, 5, 400, True, torch.Generator().manual_seed(0))["output"].view(5, 400, 4)
    assert (found == found[0]).all() and found[0].unique().numel() > 1000
    assert 0.6 <= found.min() < 0.61 and 1.39 < found.max() <= 1.4 and found.mean() == pytest.approx(1.0, abs=0.02)
    assert (network.forward_chunks(ones, None, 5, 400)["output"] == 1).all()
    network.set_dropout(0.0)
    assert (network.forward_chunks(ones, None, 5, 400, True, torch.Generator())["output"] == 1).all()
    found = dropout_only(DropoutProportion=0.25).forward_chunks(ones, None, 5, 400, True, torch.Generator().manual_seed(0))["output"]
    assert set(found.unique().tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert (found == 0).float().mean() == pytest.approx(0.25, abs=0.03)
    found = dropout_only(DropoutProportion=0.25, TimePeriod=2).forward_chunks(ones, None, 5, 400, True, torch.Generator())["output"]
    found = found.view(5, 400, 4)
    assert (found[0] == found[1]).all() and (found[2] == found[3]).all() and (found[1] != found[2]).any()


def test_units_that_are_always_off_or_on_are_repaired() -> None:
    values = {"SelfRepairScale": 1e-3, "Count": 100.0, "ValueAvg": np.ones(3, np.float32),
              "DerivAvg": np.array([0.04, 0.5, 0.96], np.float32)}
    nnet = network_of("""
        input-node name=input dim=3
        component-node name=first component=first input=input
        component-node name=relu component=relu input=first
        output-node name=output input=relu""", [affine("first", 3, 3), simple("relu", "RectifiedLinearComponent", 3, **values)])
    network, repaired = Nnet3Network(nnet, subsampling=1), 0
    for seed in range(40):
        network.forward_chunks(torch.ones(2, 3), None, 1, 2, True, torch.Generator().manual_seed(seed))
        grads = torch.zeros_like(network.params)
        network.backward_chunks({"output": torch.zeros(2, 3)}, grads)
        bias = network.views(grads)[0][1]  # of a loss: a unit that is off is to grow
        assert bias.tolist() in ([0, 0, 0], pytest.approx([-2 * 0.002, 0, 2 * 0.002]))
        repaired += bool(bias.any())
    assert 10 <= repaired <= 30
    network.forward_chunks(torch.ones(2, 3), None, 1, 2, training=True)
    network.backward_chunks({"output": torch.zeros(2, 3)}, grads)
    assert not network.views(grads)[0][1].any()


def test_statistics_go_into_the_file_and_come_back() -> None:
    network = Nnet3Network(all_components(), dtype=torch.float64)
    feats, ivectors = inputs(network)
    outputs = network.forward_chunks(feats.flatten(0, 1), ivectors, FRAMES, SEQUENCES, training=True)
    grads = torch.zeros_like(network.params)
    network.backward_chunks({name: torch.ones_like(one) for name, one in outputs.items()}, grads)
    for part in network.statistics():
        network.params[part] += grads[part]
    written = network.to_nnet3(0.25)
    assert written.components["norm"].number("Count") == SEQUENCES * len(network._last.times["norm"])
    assert written.components["first"].number("LearningRate") == 0.25
    again = Nnet3Network(written, dtype=torch.float64)
    torch.testing.assert_close(again.params, network.params, rtol=1e-5, atol=1e-5)
    before, after = (one.forward_chunks(feats.flatten(0, 1), ivectors, FRAMES, SEQUENCES) for one in (network, again))
    torch.testing.assert_close(before["output"], after["output"], rtol=1e-4, atol=1e-4)


def test_narrow_factors_give_nearly_the_same() -> None:
    nnet = all_components()
    wide, narrow = Nnet3Network(nnet), Nnet3Network(nnet, compute=torch.bfloat16)
    feats, ivectors = (one.float() for one in inputs(wide))
    found = []
    for network in (wide, narrow):
        outputs = network.forward_chunks(feats.flatten(0, 1), ivectors, FRAMES, SEQUENCES, training=True)
        grads = torch.zeros_like(network.params)
        network.backward_chunks({name: torch.ones_like(one) for name, one in outputs.items()}, grads)
        found.append((outputs["output"], grads))
    assert found[1][0].dtype == found[1][1].dtype == torch.float32
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert torch.linalg.vector_norm(ours - theirs) < 0.03 * torch.linalg.vector_norm(theirs)


def test_what_cannot_be_trained_is_refused() -> None:
    nnet = all_components()
    network = Nnet3Network(nnet)
    feats, ivectors = (one.float() for one in inputs(network))
    with pytest.raises(ValueError, match="the outputs need input frames"):
        network.forward_chunks(feats[1:].flatten(0, 1), ivectors, FRAMES, SEQUENCES)
    with pytest.raises(ValueError, match="expected ivector of dimension 2, found none"):
        network.forward_chunks(feats.flatten(0, 1), None, FRAMES, SEQUENCES)
    with pytest.raises(UserError, match="nodes share the component project"):
        Nnet3Network(network_of(ALL_NODES.replace("component=spread", "component=project").replace(
            "input=Sum(Append(range, range), blocks)", "input=blocks"), [*all_components().components.values()]))
    nnet.components["norm"].values["TestMode"] = True
    with pytest.raises(UserError, match="component norm is in test mode"):
        Nnet3Network(nnet)
    masked = simple("dropped", "GeneralDropoutComponent", 4, SpecAugmentMaxProportion=0.2, SpecAugmentMaxRegions=2)
    with pytest.raises(UserError, match="component dropped masks several regions"):
        Nnet3Network(network_of("input-node name=input dim=4\ncomponent-node name=d component=dropped input=input\n"
                                "output-node name=output input=d", [masked]))
    nodes = ALL_NODES.replace("ReplaceIndex(ivector, t, 0)", "Round(ivector, 10)")
    with pytest.raises(UserError, match="takes its input ivector at several frames"):
        Nnet3Network(network_of(nodes, [*all_components().components.values()])).forward_chunks(
            torch.zeros(200, 4), torch.zeros(2, 2), 25, 2)


def test_frames_that_nothing_needs_change_nothing() -> None:
    """Features that go on behind those that the outputs need, into a component without parameters."""
    nodes = """
input-node name=input dim=3
component-node name=relu component=relu input=input
component-node name=affine component=affine input=relu
output-node name=output input=affine objective=linear
"""
    network = Nnet3Network(network_of(nodes, [simple("relu", "RectifiedLinearComponent", 3), tdnn("affine", 3, 2, [-1, 0, 1])]))
    needed = 3 * (FRAMES - 1) + 1 + 2
    x, derivative = torch.from_numpy(random(needed + 1, SEQUENCES, 3)), torch.from_numpy(random(FRAMES * SEQUENCES, 2))
    found = []
    for frames in (needed, needed + 1):
        grads = torch.zeros_like(network.params)
        outputs = network.forward_chunks(x[:frames].flatten(0, 1), None, FRAMES, SEQUENCES, training=True)["output"]
        network.backward_chunks({"output": derivative}, grads)
        found.append((outputs, grads))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
