"""Layers that are one component, or a few without an affine map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer, component, node, sequence


class RenormComponent(Layer):
    """Each frame scaled to the root mean square `target-rms`."""

    kinds = ("renorm-component",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "target-rms": 1.0}

    def check(self) -> None:
        self.require(self.values["target-rms"] > 0, "target-rms", "a number above 0")

    def lines(self) -> list[str]:
        return [component(self.name, "NormalizeComponent", f"dim={self.input.dim} target-rms={self.values['target-rms']}"),
                node(self.name, self.input.nodes)]


class BatchnormComponent(RenormComponent):
    """Batch normalisation."""

    kinds = ("batchnorm-component",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "target-rms": 1.0, "include-in-init": False}

    def lines(self) -> list[str]:
        return [component(self.name, "BatchNormComponent", f"dim={self.input.dim} target-rms={self.values['target-rms']}"),
                node(self.name, self.input.nodes)]


class NoOpComponent(Layer):
    """What goes in comes out: it keeps what a long descriptor comes to."""

    kinds = ("no-op-component",)

    def lines(self) -> list[str]:
        return [component(self.name, "NoOpComponent", f"dim={self.input.dim}"), node(self.name, self.input.nodes)]


class DeltaLayer(Layer):
    """The input with its deltas (of the frames before and after) and their deltas behind it, and batch normalisation."""

    kinds = ("delta-layer",)

    def check(self) -> None:
        if "(" in self.input.nodes:
            raise ValueError(f"input={self.input.layers}: expected one layer, without a function")

    def dim(self, other: str = "") -> int:
        return 3 * self.input.dim

    def lines(self) -> list[str]:
        source = self.input.nodes
        deltas = (f"Append(Offset({source},0), Sum(Offset(Scale(-1.0,{source}_copy1),-1), Offset({source},1)), "
                  f"Sum(Offset({source},-2), Offset({source},2), Offset(Scale(-2.0,{source}_copy2),0)))")
        return [*(f"dim-range-node name={source}_copy{n} input-node={source} dim={self.input.dim} dim-offset=0" for n in (1, 2)),
                component(f"{source}_2", "NoOpComponent", f"dim={self.dim()}"), node(f"{source}_2", deltas),
                component(self.name, "BatchNormComponent", f"dim={self.dim()}"), node(self.name, f"{source}_2")]


class LinearComponent(Layer):
    """A linear map, without a bias."""

    kinds = ("linear-component",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "orthonormal-constraint": "", "max-change": 0.75,
                                               "l2-regularize": "", "param-stddev": "", "learning-rate-factor": ""}
    type: ClassVar[str] = "LinearComponent"
    passed: ClassVar[tuple[str, ...]] = ("orthonormal-constraint", "max-change", "l2-regularize", "param-stddev", "learning-rate-factor")

    def lines(self) -> list[str]:
        return [component(self.name, self.type, f"input-dim={self.input.dim} output-dim={self.values['dim']} {self.options(*self.passed)}"),
                node(self.name, self.input.nodes)]


class AffineComponent(LinearComponent):
    """An affine map."""

    kinds = ("affine-component",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "orthonormal-constraint": "", "max-change": 0.75,
                                               "param-stddev": "", "bias-stddev": "", "l2-regularize": ""}
    type = "NaturalGradientAffineComponent"
    passed = ("orthonormal-constraint", "max-change", "l2-regularize", "param-stddev", "bias-stddev")


class ScaleComponent(Layer):
    """A scale for each dimension, which is trained."""

    kinds = ("scale-component",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "l2-regularize": "", "max-change": 0.75, "param-mean": "",
                                               "param-stddev": "", "learning-rate-factor": ""}
    type: ClassVar[str] = "NaturalGradientPerElementScaleComponent"

    def lines(self) -> list[str]:
        options = self.options("learning-rate-factor", "max-change", "l2-regularize", "param-mean", "param-stddev")
        return [component(self.name, self.type, f"dim={self.input.dim} {options} "), node(self.name, self.input.nodes)]


class OffsetComponent(ScaleComponent):
    """An offset for each dimension, which is trained."""

    kinds = ("offset-component",)
    type = "PerElementOffsetComponent"


class DimRangeComponent(Layer):
    """Some of the input's dimensions: `dim` from `dim-offset` on."""

    kinds = ("dim-range-component",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "dim-offset": 0}

    def check(self) -> None:
        if "(" in self.input.nodes:
            raise ValueError(f"input={self.input.layers}: expected one layer, without a function")
        self.require(0 <= self.values["dim-offset"] <= self.input.dim - self.values["dim"], "dim-offset",
                     f"from 0 to {self.input.dim - self.values['dim']}, so that {self.values['dim']} of {self.input.dim} dimensions remain")

    def lines(self) -> list[str]:
        return [f"dim-range-node name={self.name} input-node={self.input.nodes} dim={self.values['dim']} "
                f"dim-offset={self.values['dim-offset']}"]


class CombineFeatureMapsLayer(Layer):
    """Two or three images of one height, appended, made one whose filters at each height are those of all."""

    kinds = ("combine-feature-maps-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "num-filters1": -1, "num-filters2": -1, "num-filters3": 0, "height": -1}

    @property
    def filters(self) -> list[int]:
        return [self.values[f"num-filters{n}"] for n in (1, 2, 3)]

    def check(self) -> None:
        for key in ("num-filters1", "num-filters2", "height"):
            self.require(self.values[key] > 0, key, "a number above 0")
        self.require(self.values["num-filters3"] >= 0, "num-filters3", "a number of at least 0")
        self.require(sum(self.filters) * self.values["height"] == self.input.dim, "height",
                     f"height and filters ({' + '.join(map(str, self.filters))}) that make the input's dimension, {self.input.dim}")

    def lines(self) -> list[str]:
        height, columns = self.values["height"], list[int]()
        starts = [sum(self.filters[:n]) * height for n in range(3)]
        for h in range(height):
            for start, filters in zip(starts, self.filters, strict=True):
                columns += range(start + h * filters, start + (h + 1) * filters)
        return [component(self.name, "PermuteComponent", f"column-map={','.join(map(str, columns))} "), node(self.name, self.input.nodes)]


class ChannelAverageLayer(Layer):
    """The mean over the blocks of `dim` dimensions that make the input."""

    kinds = ("channel-average-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1}

    def derive(self) -> None:
        pass

    def check(self) -> None:
        dim = self.values["dim"]
        self.require(dim > 0 and self.input.dim % dim == 0, "dim", f"a divisor of the input's {self.input.dim}")

    def lines(self) -> list[str]:
        dim = self.values["dim"]
        return [component(self.name, "SumBlockComponent", f"input-dim={self.input.dim} output-dim={dim} scale={dim / self.input.dim}"),
                node(self.name, self.input.nodes)]


class SpecAugmentLayer(Layer):
    """SpecAugment: bands of dimensions and stretches of frames set to zero in training."""

    kinds = ("spec-augment-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "freq-max-proportion": 0.5, "time-zeroed-proportion": 0.2,
                                               "time-mask-max-frames": 20, "include-in-init": False}

    def check(self) -> None:
        for key in ("freq-max-proportion", "time-zeroed-proportion"):
            self.require(0 < self.values[key] < 1, key, "a number between 0 and 1")
        self.require(self.values["time-mask-max-frames"] >= 1, "time-mask-max-frames", "at least 1")

    def output(self, other: str = "") -> str:
        return f"{self.name}.time-mask"

    def lines(self) -> list[str]:
        dim, values = self.input.dim, self.values
        return sequence(self.name, self.input.nodes, [
            ("freq-mask", "GeneralDropoutComponent", f"dim={dim} specaugment-max-proportion={values['freq-max-proportion']}"),
            ("time-mask", "SpecAugmentTimeMaskComponent", f"dim={dim} zeroed-proportion={values['time-zeroed-proportion']} "
                                                          f"time-mask-max-frames={values['time-mask-max-frames']}")])
