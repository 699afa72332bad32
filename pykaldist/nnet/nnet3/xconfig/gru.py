"""Layers of gated recurrent units with an output gate and a projection (OPGRU; Cheng et al., 2018, "Output-gate projected GRU").

With x the input, s the recurrent part of the layer's projection y, and a dot for products of elements,

    z_t = sigmoid(U_z x_t + W_z s_{t-d}),   o_t = sigmoid(U_o x_t + W_o s_{t-d}),   h_t = tanh(U_h x_t + w_h . c_{t-d}),
    c_t = (1 - z_t) . h_t + z_t . c_{t-d},  y_t = W_y (c_t . o_t).

Layers called norm have s with a root mean square of 1, and behind y batch normalisation; in those called fast h and c are one component.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default
from pykaldist.nnet.nnet3.xconfig.recurrent import Recurrent, peephole_options

NORMALISED: dict[str, Default] = {"dropout-proportion": -1.0, "dropout-per-frame": True, "l2-regularize": 0.0}


class OpgruLayer(Recurrent):
    """A unit of components for each gate and product."""

    kinds: ClassVar[tuple[str, ...]] = ("opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "cell-dim": -1, "recurrent-projection-dim": -1, "non-recurrent-projection-dim": -1, "clipping-threshold": 30.0,
        "delay": -1, "ng-per-element-scale-options": " max-change=0.75 ", "ng-affine-options": " max-change=0.75 ",
        "self-repair-scale-nonlinearity": 1e-5, "zeroing-interval": 20, "zeroing-threshold": 15.0}

    @property
    def _norm(self) -> bool:
        return "norm" in self.kind

    def output(self, other: str = "") -> str:
        return f"{self.name}.sn_t"

    def _repair(self) -> str:
        return f"dim={self._cells} self-repair-scale={self.values['self-repair-scale-nonlinearity']:.10f}"

    def _truncated(self) -> str:
        return self._component("s_r", "BackpropTruncationComponent", f"dim={self._recurrent} {self._truncation()}")

    def _dropout(self) -> list[str]:
        """The component of the gates' dropout, if there is any."""
        proportion = self.values.get("dropout-proportion", -1.0)
        per_frame = str(self.values.get("dropout-per-frame", True)).lower()
        fields = f"dim={self._cells} dropout-proportion={proportion} dropout-per-frame={per_frame}"
        return [] if proportion == -1 else [self._component("dropout", "DropoutComponent", fields)]

    def _gate(self, gate: str, affine: str, before: str) -> list[str]:
        """The nodes of a gate; `before` is that in front of dropout, where there is any."""
        lines = [self._node(f"{gate}_t_pre", affine, f"Append({self.input.nodes}, {self._earlier('s_t')})"),
                 self._node(before if self._dropout() else f"{gate}_t", gate, f"{self.name}.{gate}_t_pre")]
        return [*lines, self._node(f"{gate}_t", "dropout", f"{self.name}.{before}")] if self._dropout() else lines

    def lines(self) -> list[str]:
        name, cells, inputs = self.name, self._cells, self.input.dim + self._recurrent
        lines = [self._affine("W_z.xs_z", inputs, cells), self._affine("W_z.xs_o", inputs, cells),
                 self._affine("W_h.UW", self.input.dim, cells),
                 self._component("W_h.UW_elementwise", "NaturalGradientPerElementScaleComponent",
                                 f"dim={cells} {peephole_options(self.values['ng-per-element-scale-options'])}"),
                 *(self._component(gate, "SigmoidComponent", self._repair()) for gate in "zo"),
                 self._component("h", "TanhComponent", self._repair()),
                 *(self._component(product, "ElementwiseProductComponent", f"input-dim={2 * cells} output-dim={cells}")
                   for product in ("o1", "y1", "y2")),
                 self._component("y", "NoOpComponent", f"dim={cells}"), *self._dropout(),
                 *self._gate("z", "W_z.xs_z", "z_predrop_t"), *self._gate("o", "W_z.xs_o", "o_predrop_t"),
                 self._node("h_t_pre", "W_h.UW", self.input.nodes),
                 self._node("h_t_pre2", "W_h.UW_elementwise", self._earlier("y_t")),
                 self._node("h_t", "h", f"Sum({name}.h_t_pre, {name}.h_t_pre2)"),
                 self._node("y1_t", "y1", f"Append({name}.h_t, Sum(Scale(-1.0,{name}.z_t), Const(1.0, {cells})))"),
                 self._node("y2_t", "y2", f"Append({self._earlier('y_t')}, {name}.z_t)"),
                 self._node("y_t", "y", f"Sum({name}.y1_t, {name}.y2_t)"),
                 self._node("y_o_t", "o1", f"Append({name}.o_t, {name}.y_t)"),
                 self._affine("W_s.ys", cells, self._output_dim()), self._truncated()]
        if not self._norm:
            return [*lines, self._node("sn_t", "W_s.ys", f"{name}.y_o_t"), self._range("s_t_preclip", "sn_t", 0, self._recurrent),
                    self._node("s_t", "s_r", f"{name}.s_t_preclip")]
        return [*lines,
                self._component("batchnorm", "BatchNormComponent", f"dim={self._output_dim()} target-rms=1.0"),
                self._component("renorm", "NormalizeComponent", f"dim={self._recurrent} target-rms=1.0"),
                self._node("sn_nobatchnorm_t", "W_s.ys", f"{name}.y_o_t"),
                self._node("sn_t", "batchnorm", f"{name}.sn_nobatchnorm_t"),
                self._range("s_t_preclip", "sn_nobatchnorm_t", 0, self._recurrent),
                self._node("s_t_preclip_renorm", "renorm", f"{name}.s_t_preclip"),
                self._node("s_t", "s_r", f"{name}.s_t_preclip_renorm")]


class NormOpgruLayer(OpgruLayer):
    """The same with normalisation of what goes back and what comes out."""

    kinds = ("norm-opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**OpgruLayer.fields, **NORMALISED}


class FastOpgruLayer(OpgruLayer):
    """A unit whose cells are one component."""

    kinds = ("fast-opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**OpgruLayer.fields, "gru-nonlinearity-options": " max-change=0.75"}
    other_outputs = ("c_t",)

    def output(self, other: str = "") -> str:
        return f"{self.name}.{other or 'y_t'}"

    def lines(self) -> list[str]:
        name, cells, inputs, options = self.name, self._cells, self.input.dim + self._recurrent, self.values["gru-nonlinearity-options"]
        projected = "y_t_tmp" if self._norm else "y_t"
        lines = [self._affine("W_z.xs", inputs, cells), self._affine("W_o.xs", inputs, cells),
                 self._affine("W_hpart.x", self.input.dim, cells),
                 *(self._component(gate, "SigmoidComponent", self._repair()) for gate in "zo"), *self._dropout(),
                 *self._gate("z", "W_z.xs", "z_t_predrop"), *self._gate("o", "W_o.xs", "o_t_predrop"),
                 self._node("hpart_t", "W_hpart.x", self.input.nodes),
                 self._component("gru_nonlin", "OutputGruNonlinearityComponent", f"cell-dim={cells} {options}"),
                 self._node("gru_nonlin_t", "gru_nonlin", f"Append({name}.z_t, {name}.hpart_t, {self._earlier('c_t')})"),
                 self._range("c_t", "gru_nonlin_t", cells, cells),
                 self._component("cdoto", "ElementwiseProductComponent", f"input-dim={2 * cells} output-dim={cells}"),
                 self._node("cdoto", "cdoto", f"Append({name}.c_t, {name}.o_t)"),
                 self._affine("W_y.cdoto", cells, self._output_dim()),
                 self._node(projected, "W_y.cdoto", f"{name}.cdoto")]
        if not self._norm:
            return [*lines, self._truncated(), self._range("s_t_preclip", "y_t", 0, self._recurrent),
                    self._node("s_t", "s_r", f"{name}.s_t_preclip")]
        return [*lines,
                self._component("renorm", "NormalizeComponent", f"dim={self._recurrent} target-rms=1.0"),
                self._truncated(),
                self._range("s_t_pre", "y_t_tmp", 0, self._recurrent),
                self._node("s_t_renorm", "renorm", f"{name}.s_t_pre"),
                self._node("s_t", "s_r", f"{name}.s_t_renorm"),
                self._component("batchnorm", "BatchNormComponent", f"dim={self._output_dim()} target-rms=1.0"),
                self._node("y_t", "batchnorm", f"{name}.y_t_tmp")]


class FastNormOpgruLayer(FastOpgruLayer):
    """The same with normalisation of what goes back and what comes out."""

    kinds = ("fast-norm-opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**FastOpgruLayer.fields, "dropout-proportion": -1.0, "dropout-per-frame": True}
