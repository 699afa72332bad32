"""Layers of gated recurrent units (GRU): with reset gates, with projections (PGRU), with output gates (OPGRU; Cheng et al., 2018).

With x the input, s what goes back, d the delay, and a dot for products of elements, cells are

    z_t = sigmoid(U_z x_t + W_z s_{t-d}),   c_t = (1 - z_t) . h_t + z_t . c_{t-d},

with a reset gate   r_t = sigmoid(U_r x_t + W_r s_{t-d}),   h_t = tanh(U_h x_t + W_h (r_t . s_{t-d})),   y_t = W_y c_t,
with an output gate o_t = sigmoid(U_o x_t + W_o s_{t-d}),   h_t = tanh(U_h x_t + w_h . c_{t-d}),         y_t = W_y (c_t . o_t),

and s is the first part of the projection y; without projections y and s are c. Layers called norm have s with a root mean square of 1, and
behind y batch normalisation; in those called fast h and c are one component.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default
from pykaldist.nnet.nnet3.xconfig.recurrent import Recurrent, peephole_options

COMMON: dict[str, Default] = {
    "input": "[-1]", "cell-dim": -1, "clipping-threshold": 30.0, "delay": -1, "ng-per-element-scale-options": " max-change=0.75 ",
    "ng-affine-options": " max-change=0.75 ", "self-repair-scale-nonlinearity": 1e-5, "zeroing-interval": 20, "zeroing-threshold": 15.0}
PROJECTED: dict[str, Default] = {**COMMON, "recurrent-projection-dim": -1, "non-recurrent-projection-dim": -1}
DROPOUT: dict[str, Default] = {"dropout-proportion": -1.0, "dropout-per-frame": True}
FAST: dict[str, Default] = {"gru-nonlinearity-options": " max-change=0.75"}


class _Gru(Recurrent):
    """What all GRU layers have: gates, products, and what goes back."""

    other_gate: ClassVar[str] = "r"  # beside z: the reset gate r, or the output gate o

    @property
    def _norm(self) -> bool:
        return "norm" in self.kind

    def _gate_dim(self, gate: str) -> int:
        return self._recurrent if gate == "r" else self._cells

    def _functions(self, *tanh: str) -> list[str]:
        """The functions of the gates, and of a tanh."""
        repair = f"self-repair-scale={self.values['self-repair-scale-nonlinearity']:.10f}"
        return [*(self._component(gate, "SigmoidComponent", f"dim={self._gate_dim(gate)} {repair}") for gate in ("z", self.other_gate)),
                *(self._component(name, "TanhComponent", f"dim={self._cells} {repair}") for name in tanh)]

    def _product(self, name: str, dim: int) -> str:
        return self._component(name, "ElementwiseProductComponent", f"input-dim={2 * dim} output-dim={dim}")

    def _truncated(self) -> str:
        return self._component("s_r", "BackpropTruncationComponent", f"dim={self._recurrent} {self._truncation()}")

    def _renorm(self) -> str:
        return self._component("renorm", "NormalizeComponent", f"dim={self._recurrent} target-rms=1.0")

    def _output_norm(self) -> str:
        return self._component("batchnorm", "BatchNormComponent", f"dim={self._output_dim()} target-rms=1.0")

    def _dropout_of(self, gate: str) -> str:
        """The name of the component of a gate's dropout; empty where there is none."""
        if self.values.get("dropout-proportion", -1.0) == -1:
            return ""
        return "dropout" if self.other_gate == "o" else f"dropout_{gate}"  # both of one dimension are one

    def _dropouts(self) -> list[str]:
        dims = {self._dropout_of(gate): self._gate_dim(gate) for gate in ("z", self.other_gate) if self._dropout_of(gate)}
        return [self._component(name, "DropoutComponent", f"dim={dim} dropout-proportion={self.values['dropout-proportion']} "
                                                          f"dropout-per-frame={str(self.values['dropout-per-frame']).lower()}")
                for name, dim in dims.items()]

    def _gate(self, gate: str, affine: str, before: str) -> list[str]:
        """The nodes of a gate; `before` is that in front of dropout, where there is any."""
        dropout = self._dropout_of(gate)
        lines = [self._node(f"{gate}_t_pre", affine, f"Append({self.input.nodes}, {self._earlier('s_t')})"),
                 self._node(before if dropout else f"{gate}_t", gate, f"{self.name}.{gate}_t_pre")]
        return [*lines, self._node(f"{gate}_t", dropout, f"{self.name}.{before}")] if dropout else lines

    def _cells_of(self, earlier: str) -> list[str]:
        """The cells y_t = (1 - z_t) . h_t + z_t . c_{t-d}, whose earlier ones are in the node `earlier`."""
        name = self.name
        return [self._node("y1_t", "y1", f"Append({name}.h_t, Sum(Scale(-1.0,{name}.z_t), Const(1.0, {self._cells})))"),
                self._node("y2_t", "y2", f"Append({self._earlier(earlier)}, {name}.z_t)"),
                self._node("y_t", "y", f"Sum({name}.y1_t, {name}.y2_t)")]


class GruLayer(_Gru):
    """A unit with a reset gate and without projection, of components for each gate and product."""

    kinds: ClassVar[tuple[str, ...]] = ("gru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**COMMON, "ng-per-element-scale-options": " max-change=0.75"}
    cells: ClassVar[str] = "s_t"  # the node whose earlier frames are the cells

    def output(self, other: str = "") -> str:
        return f"{self.name}.s_t"

    def lines(self) -> list[str]:
        name, cells, inputs = self.name, self._cells, self.input.dim + self._recurrent
        return [self._affine("W_z.xs_z", inputs, cells), self._affine("W_z.xs_r", inputs, self._recurrent),
                self._affine("W_h.UW", inputs, cells), *self._dropouts(), *self._functions("h"),
                self._product("h1", self._recurrent), self._product("y1", cells), self._product("y2", cells),
                self._component("y", "NoOpComponent", f"dim={cells}"),
                *self._gate("z", "W_z.xs_z", "z_predrop_t"), *self._gate("r", "W_z.xs_r", "r_predrop_t"),
                self._node("h1_t", "h1", f"Append({name}.r_t, {self._earlier('s_t')})"),
                self._node("h_t_pre", "W_h.UW", f"Append({self.input.nodes}, {name}.h1_t)"),
                self._node("h_t", "h", f"{name}.h_t_pre"),
                *self._cells_of(self.cells), *self._back()]

    def _back(self) -> list[str]:
        """From the cells to what goes back."""
        return [self._truncated(), self._node("s_t", "s_r", f"{self.name}.y_t")]


class PgruLayer(GruLayer):
    """The same with a projection."""

    kinds = ("pgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = PROJECTED
    cells = "y_t"

    def output(self, other: str = "") -> str:
        return f"{self.name}.sn_t"

    def _back(self) -> list[str]:
        name, projection = self.name, self._affine("W_s.ys", self._cells, self._output_dim())
        if not self._norm:
            return [projection, self._truncated(), self._node("sn_t", "W_s.ys", f"{name}.y_t"),
                    self._range("s_t_preclip", "sn_t", 0, self._recurrent), self._node("s_t", "s_r", f"{name}.s_t_preclip")]
        return [projection, self._truncated(), self._output_norm(), self._renorm(),
                self._node("sn_nobatchnorm_t", "W_s.ys", f"{name}.y_t"),
                self._range("s_t_preclip", "sn_nobatchnorm_t", 0, self._recurrent),
                self._node("sn_t", "batchnorm", f"{name}.sn_nobatchnorm_t"),
                self._node("s_renorm_t", "renorm", f"{name}.s_t_preclip"),
                self._node("s_t", "s_r", f"{name}.s_renorm_t")]


class NormPgruLayer(PgruLayer):
    """The same with normalisation of what goes back and what comes out."""

    kinds = ("norm-pgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**PROJECTED, **DROPOUT}


class OpgruLayer(_Gru):
    """A unit with an output gate, of components for each gate and product."""

    kinds: ClassVar[tuple[str, ...]] = ("opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = PROJECTED
    other_gate = "o"

    def output(self, other: str = "") -> str:
        return f"{self.name}.sn_t"

    def lines(self) -> list[str]:
        name, cells, inputs = self.name, self._cells, self.input.dim + self._recurrent
        lines = [self._affine("W_z.xs_z", inputs, cells), self._affine("W_z.xs_o", inputs, cells),
                 self._affine("W_h.UW", self.input.dim, cells),
                 self._component("W_h.UW_elementwise", "NaturalGradientPerElementScaleComponent",
                                 f"dim={cells} {peephole_options(self.values['ng-per-element-scale-options'])}"),
                 *self._functions("h"), *(self._product(product, cells) for product in ("o1", "y1", "y2")),
                 self._component("y", "NoOpComponent", f"dim={cells}"), *self._dropouts(),
                 *self._gate("z", "W_z.xs_z", "z_predrop_t"), *self._gate("o", "W_z.xs_o", "o_predrop_t"),
                 self._node("h_t_pre", "W_h.UW", self.input.nodes),
                 self._node("h_t_pre2", "W_h.UW_elementwise", self._earlier("y_t")),
                 self._node("h_t", "h", f"Sum({name}.h_t_pre, {name}.h_t_pre2)"),
                 *self._cells_of("y_t"),
                 self._node("y_o_t", "o1", f"Append({name}.o_t, {name}.y_t)"),
                 self._affine("W_s.ys", cells, self._output_dim()), self._truncated()]
        if not self._norm:
            return [*lines, self._node("sn_t", "W_s.ys", f"{name}.y_o_t"), self._range("s_t_preclip", "sn_t", 0, self._recurrent),
                    self._node("s_t", "s_r", f"{name}.s_t_preclip")]
        return [*lines, self._output_norm(), self._renorm(),
                self._node("sn_nobatchnorm_t", "W_s.ys", f"{name}.y_o_t"),
                self._node("sn_t", "batchnorm", f"{name}.sn_nobatchnorm_t"),
                self._range("s_t_preclip", "sn_nobatchnorm_t", 0, self._recurrent),
                self._node("s_t_preclip_renorm", "renorm", f"{name}.s_t_preclip"),
                self._node("s_t", "s_r", f"{name}.s_t_preclip_renorm")]


class NormOpgruLayer(OpgruLayer):
    """The same with normalisation of what goes back and what comes out."""

    kinds = ("norm-opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**PROJECTED, **DROPOUT, "l2-regularize": 0.0}


class FastGruLayer(_Gru):
    """A unit with a reset gate and without projection, whose cells are one component."""

    kinds: ClassVar[tuple[str, ...]] = ("fast-gru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**GruLayer.fields, **FAST}

    def output(self, other: str = "") -> str:
        return f"{self.name}.{other or 'y_t'}"

    def _beginning(self, recurrent: str) -> list[str]:
        """The maps of the input, the gates, and their nodes; `recurrent` is the end of the names of the maps of what goes back."""
        inputs, (z, other) = self.input.dim + self._recurrent, (f"W_{gate}.{recurrent}" for gate in ("z", self.other_gate))
        return [self._affine(z, inputs, self._cells), self._affine(other, inputs, self._gate_dim(self.other_gate)),
                self._affine("W_hpart.x", self.input.dim, self._cells), *self._functions(), *self._dropouts(),
                *self._gate("z", z, "z_t_predrop"), *self._gate(self.other_gate, other, f"{self.other_gate}_t_predrop"),
                self._node("hpart_t", "W_hpart.x", self.input.nodes)]

    def _nonlinearity(self, type_: str, rest: str, taken: str, output: str) -> list[str]:
        """The component of the cells, which takes `taken` behind z_t, and the node of its second half."""
        return [self._component("gru_nonlin", type_, f"cell-dim={self._cells} {rest}{self.values['gru-nonlinearity-options']}"),
                self._node("gru_nonlin_t", "gru_nonlin", f"Append({self.name}.z_t, {taken})"),
                self._range(output, "gru_nonlin_t", self._cells, self._cells)]

    def lines(self) -> list[str]:
        taken = f"{self.name}.r_t, {self.name}.hpart_t, {self._earlier('s_t')}"
        return [*self._beginning("xh"), *self._nonlinearity("GruNonlinearityComponent", "", taken, "y_t"), self._truncated(),
                self._node("s_t", "s_r", f"{self.name}.y_t")]


class FastPgruLayer(FastGruLayer):
    """The same with a projection."""

    kinds = ("fast-pgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**PROJECTED, **FAST}
    other_outputs = ("c_t",)

    def lines(self) -> list[str]:
        taken = f"{self.name}.r_t, {self.name}.hpart_t, {self._earlier('c_t')}, {self._earlier('s_t')}"
        return [*self._beginning("xs"),
                *self._nonlinearity("GruNonlinearityComponent", f"recurrent-dim={self._recurrent} ", taken, "c_t"),
                *self._projection("W_y.c", "c_t", "s_t_pre")]

    def _projection(self, affine: str, source: str, recurrent: str) -> list[str]:
        """From what is projected to what goes back, whose node is called `recurrent` before normalisation and truncation."""
        name, projection = self.name, self._affine(affine, self._cells, self._output_dim())
        if not self._norm:
            return [projection, self._node("y_t", affine, f"{name}.{source}"), self._truncated(),
                    self._range(recurrent, "y_t", 0, self._recurrent), self._node("s_t", "s_r", f"{name}.{recurrent}")]
        return [projection, self._node("y_t_tmp", affine, f"{name}.{source}"), self._renorm(), self._truncated(),
                self._range("s_t_pre", "y_t_tmp", 0, self._recurrent),
                self._node("s_t_renorm", "renorm", f"{name}.s_t_pre"),
                self._node("s_t", "s_r", f"{name}.s_t_renorm"),
                self._output_norm(), self._node("y_t", "batchnorm", f"{name}.y_t_tmp")]


class FastNormPgruLayer(FastPgruLayer):
    """The same with normalisation of what goes back and what comes out."""

    kinds = ("fast-norm-pgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**FastPgruLayer.fields, **DROPOUT}


class FastOpgruLayer(FastPgruLayer):
    """A unit with an output gate, whose cells are one component."""

    kinds = ("fast-opgru-layer",)
    other_gate = "o"

    def lines(self) -> list[str]:
        taken = f"{self.name}.hpart_t, {self._earlier('c_t')}"
        return [*self._beginning("xs"), *self._nonlinearity("OutputGruNonlinearityComponent", "", taken, "c_t"),
                self._product("cdoto", self._cells), self._node("cdoto", "cdoto", f"Append({self.name}.c_t, {self.name}.o_t)"),
                *self._projection("W_y.cdoto", "cdoto", "s_t_preclip")]


class FastNormOpgruLayer(FastOpgruLayer):
    """The same with normalisation of what goes back and what comes out."""

    kinds = ("fast-norm-opgru-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**FastOpgruLayer.fields, **DROPOUT}
