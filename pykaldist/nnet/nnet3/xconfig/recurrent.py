"""Layers of LSTMs: Sak et al. (2014), with and without projections; those called fast have all gates in one component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer

AFFINE = "NaturalGradientAffineComponent"
TRUNCATION: dict[str, Default] = {"delay": -1, "clipping-threshold": 30.0, "zeroing-interval": 20, "zeroing-threshold": 15.0,
                                  "decay-time": -1.0, "l2-regularize": 0.0}


def peephole_options(options: str) -> str:
    """The options of a vector of scales, which are drawn around 0 where they do not say it otherwise."""
    return options if "param-mean" in options or "param-stddev" in options else f"{options} param-mean=0.0 param-stddev=1.0 "


class Recurrent(Layer):
    """What all recurrent layers have: cells, the frame of the recurrence, and how far derivatives go back."""

    def derive(self) -> None:
        if "recurrent-projection-dim" not in self.fields:
            if self.values["cell-dim"] <= 0:
                self.values["cell-dim"] = self.input.dim
            return
        if self.values["recurrent-projection-dim"] <= 0:
            self.values["recurrent-projection-dim"] = self.values["cell-dim"] // 4
        if self.values["non-recurrent-projection-dim"] <= 0:
            self.values["non-recurrent-projection-dim"] = self.values["recurrent-projection-dim"]

    def check(self) -> None:
        values = self.values
        self.require(values["cell-dim"] > 0, "cell-dim", "a number above 0")
        self.require(values["delay"] != 0, "delay", "a number of frames other than 0")
        self.require(self._scale() > 0, "decay-time", f"more than the delay, {abs(values['delay'])}")
        if "recurrent-projection-dim" in values:
            self.require(self._recurrent > 0 and self._output_dim() <= values["cell-dim"], "recurrent-projection-dim",
                         f"above 0, and with non-recurrent-projection-dim={values['non-recurrent-projection-dim']} at most "
                         f"cell-dim={values['cell-dim']}")
        if "dropout-proportion" in values:
            self.require(values["dropout-proportion"] == -1 or 0 <= values["dropout-proportion"] <= 1, "dropout-proportion",
                         "a number from 0 to 1, or left out")

    @property
    def _cells(self) -> int:
        return self.values["cell-dim"]

    @property
    def _recurrent(self) -> int:
        return self.values.get("recurrent-projection-dim", self._cells)

    def _output_dim(self) -> int:
        return self._recurrent + self.values.get("non-recurrent-projection-dim", 0)

    def dim(self, other: str = "") -> int:
        return self._cells if other else self._output_dim()

    def _scale(self) -> float:
        decay = self.values.get("decay-time", -1.0)
        return 1.0 if decay < 0 else 1.0 - abs(self.values["delay"]) / decay

    def _truncation(self) -> str:
        values = self.values
        scale = f" scale={self._scale()}" if "decay-time" in values else ""
        return (f"clipping-threshold={values['clipping-threshold']} zeroing-threshold={values['zeroing-threshold']} "
                f"zeroing-interval={values['zeroing-interval']} recurrence-interval={abs(values['delay'])}{scale}")

    def _l2(self) -> str:
        return f"l2-regularize={self.values['l2-regularize']} " if self.values.get("l2-regularize") else ""

    def _earlier(self, name: str) -> str:
        return f"IfDefined(Offset({self.name}.{name}, {self.values['delay']}))"

    def _component(self, name: str, type_: str, rest: str) -> str:
        return f"component name={self.name}.{name} type={type_} {rest}"

    def _affine(self, name: str, inputs: int, outputs: int) -> str:
        options = f"{self.values['ng-affine-options']} {self._l2()}"
        return self._component(name, AFFINE, f"input-dim={inputs} output-dim={outputs} {options}")

    def _node(self, name: str, own: str, source: str) -> str:
        return f"component-node name={self.name}.{name} component={self.name}.{own} input={source}"

    def _range(self, name: str, source: str, offset: int, dim: int) -> str:
        return f"dim-range-node name={self.name}.{name} input-node={self.name}.{source} dim-offset={offset} dim={dim}"

    def _batchnorm(self, name: str, source: str, dim: int) -> list[str]:
        return [self._component(name, "BatchNormComponent", f"dim={dim} "), self._node(name, name, f"{self.name}.{source}")]


class LstmLayer(Recurrent):
    """An LSTM with peephole connections, each gate a component of its own."""

    kinds: ClassVar[tuple[str, ...]] = ("lstm-layer",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "cell-dim": -1, "ng-per-element-scale-options": " max-change=0.75", "ng-affine-options": " max-change=0.75 ",
        "self-repair-scale-nonlinearity": 1e-5, **TRUNCATION}
    other_outputs = ("c_t",)

    def output(self, other: str = "") -> str:
        return f"{self.name}.{other or 'm_t'}"

    def _dropout(self) -> str:
        """The fields of the gates' dropout; empty where there is none."""
        return ""

    def lines(self) -> list[str]:
        name, cells, inputs = self.name, self._cells, self.input.dim + self._recurrent
        peephole = peephole_options(self.values["ng-per-element-scale-options"])
        repair = f"dim={cells} self-repair-scale={self.values['self-repair-scale-nonlinearity']:.10f}"
        lines = []
        for gate in "ifo":
            lines += [self._affine(f"W_{gate}.xr", inputs, cells),
                      self._component(f"w_{gate}.c", "NaturalGradientPerElementScaleComponent", f"dim={cells} {peephole} {self._l2()}")]
        lines.append(self._affine("W_c.xr", inputs, cells))
        lines += [self._component(gate, "SigmoidComponent", repair) for gate in "ifo"]
        lines += [self._component(gate, "TanhComponent", repair) for gate in "gh"]
        if dropout := self._dropout():
            lines.append(self._component("dropout", "DropoutComponent", dropout))
        lines += [self._component(product, "ElementwiseProductComponent", f"input-dim={2 * cells} output-dim={cells}")
                  for product in ("c1", "c2", "m")]
        lines += [self._component("c", "BackpropTruncationComponent", f"dim={cells} {self._truncation()}"),
                  self._node("c_t", "c", f"Sum({name}.c1_t, {name}.c2_t)")]
        spliced = f"Append({self.input.nodes}, {self._earlier('r_t')})"
        for gate in "ifo":
            lines += [self._node(f"{gate}1_t", f"W_{gate}.xr", spliced),
                      self._node(f"{gate}2_t", f"w_{gate}.c", f"{name}.c_t" if gate == "o" else self._earlier("c_t")),
                      self._node(f"{gate}_t_predrop" if dropout else f"{gate}_t", gate, f"Sum({name}.{gate}1_t, {name}.{gate}2_t)")]
            if dropout:
                lines.append(self._node(f"{gate}_t", "dropout", f"{name}.{gate}_t_predrop"))
        return [*lines,
                self._node("h_t", "h", f"{name}.c_t"),
                self._node("g1_t", "W_c.xr", spliced),
                self._node("g_t", "g", f"{name}.g1_t"),
                self._node("c1_t", "c1", f"Append({name}.f_t, {self._earlier('c_t')})"),
                self._node("c2_t", "c2", f"Append({name}.i_t, {name}.g_t)"),
                self._node("m_t", "m", f"Append({name}.o_t, {name}.h_t)"),
                *self._recurrence()]

    def _recurrence(self) -> list[str]:
        return [self._component("r", "BackpropTruncationComponent", f"dim={self._cells} {self._truncation()}"),
                self._node("r_t", "r", f"{self.name}.m_t")]


class LstmpLayer(LstmLayer):
    """An LSTM with peephole connections, and a projection of which a part is recurrent."""

    kinds = ("lstmp-layer", "lstmp-batchnorm-layer")
    fields: ClassVar[Mapping[str, Default]] = {
        **LstmLayer.fields, "ng-per-element-scale-options": " max-change=0.75 ", "recurrent-projection-dim": -1,
        "non-recurrent-projection-dim": -1, "dropout-proportion": -1.0, "dropout-per-frame": False}

    def output(self, other: str = "") -> str:
        return f"{self.name}.{other or ('rp_t_batchnorm' if 'batchnorm' in self.kind else 'rp_t')}"

    def _dropout(self) -> str:
        proportion = self.values["dropout-proportion"]
        per_frame = str(self.values["dropout-per-frame"]).lower()
        return "" if proportion == -1 else f"dim={self._cells} dropout-proportion={proportion} dropout-per-frame={per_frame}"

    def _recurrence(self) -> list[str]:
        lines = [self._affine("W_rp.m", self._cells, self._output_dim()),
                 self._component("r", "BackpropTruncationComponent", f"dim={self._recurrent} {self._truncation()}"),
                 self._node("rp_t", "W_rp.m", f"{self.name}.m_t"),
                 self._range("r_t_preclip", "rp_t", 0, self._recurrent),
                 self._node("r_t", "r", f"{self.name}.r_t_preclip")]
        return lines + (self._batchnorm("rp_t_batchnorm", "rp_t", self._output_dim()) if "batchnorm" in self.kind else [])


class FastLstmLayer(Recurrent):
    """An LSTM whose gates are one component."""

    kinds: ClassVar[tuple[str, ...]] = ("fast-lstm-layer", "fast-lstm-batchnorm-layer")
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "cell-dim": -1, "lstm-nonlinearity-options": " max-change=0.75", "ng-affine-options": " max-change=1.5",
        **TRUNCATION}
    other_outputs: ClassVar[tuple[str, ...]] = ("c",)

    def output(self, other: str = "") -> str:
        return f"{self.name}.{other or ('m_batchnorm' if 'batchnorm' in self.kind else 'm')}"

    def _nonlinearity(self, rest: str = "") -> str:
        options = f"{self.values['lstm-nonlinearity-options']} {self._l2()}"
        return self._component("lstm_nonlin", "LstmNonlinearityComponent", f"cell-dim={self._cells} {rest}{options}")

    def _cell_nodes(self, gates: str) -> list[str]:
        """The nodes from the gates on: cells and outputs, and both with derivatives that go back so far and no further."""
        cells = self._cells
        return [self._node("lstm_nonlin", "lstm_nonlin", f"Append({self.name}.{gates}, {self._earlier('c_trunc')})"),
                self._range("m", "lstm_nonlin", cells, cells),
                self._node("cm_trunc", "cm_trunc", f"{self.name}.lstm_nonlin"),
                self._range("c_trunc", "cm_trunc", 0, cells),
                self._range("m_trunc", "cm_trunc", cells, cells)]

    def lines(self) -> list[str]:
        cells = self._cells
        lines = [self._affine("W_all", self.input.dim + cells, 4 * cells), self._nonlinearity(),
                 self._component("cm_trunc", "BackpropTruncationComponent", f"dim={2 * cells} {self._truncation()}"),
                 self._node("W_all", "W_all", f"Append({self.input.nodes}, {self._earlier('m_trunc')})"), *self._cell_nodes("W_all")]
        return lines + (self._batchnorm("m_batchnorm", "m", cells) if "batchnorm" in self.kind else [])


class LstmbLayer(FastLstmLayer):
    """An LSTM whose gates come from a bottleneck."""

    kinds = ("lstmb-layer",)
    fields: ClassVar[Mapping[str, Default]] = {**FastLstmLayer.fields, "bottleneck-dim": -1, "orthonormal-constraint": 1.0,
                                               "self-scale": 1.0}
    other_outputs = ()

    def check(self) -> None:
        super().check()
        self.require(self.values["bottleneck-dim"] > 0, "bottleneck-dim", "a number above 0")

    def output(self, other: str = "") -> str:
        return f"{self.name}.m_batchnorm"

    def lines(self) -> list[str]:
        cells, bottleneck, options = self._cells, self.values["bottleneck-dim"], self.values["ng-affine-options"]
        recurrence = f"IfDefined(Offset(Scale({self.values['self-scale']}, {self.name}.m_trunc), {self.values['delay']}))"
        batchnorm, batchnorm_node = self._batchnorm("m_batchnorm", "m", cells)
        return [self._component("W_all_a", "LinearComponent", f"input-dim={self.input.dim + cells} orthonormal-constraint="
                                                              f"{self.values['orthonormal-constraint']} output-dim={bottleneck} {options}"),
                self._component("W_all_b", "LinearComponent", f"input-dim={bottleneck} output-dim={4 * cells} {options} {self._l2()}"),
                self._component("W_all_b_so", "ScaleAndOffsetComponent", f"dim={4 * cells} max-change=0.75"),
                self._nonlinearity(),
                self._component("cm_trunc", "BackpropTruncationComponent", f"dim={2 * cells} {self._truncation()}"),
                batchnorm,
                self._node("W_all_a", "W_all_a", f"Append({self.input.nodes}, {recurrence})"),
                self._node("W_all_b", "W_all_b", f"{self.name}.W_all_a"),
                self._node("W_all_b_so", "W_all_b_so", f"{self.name}.W_all_b"),
                *self._cell_nodes("W_all_b_so"),
                batchnorm_node]


class FastLstmpLayer(FastLstmLayer):
    """An LSTM whose gates are one component, and a projection of which a part is recurrent."""

    kinds = ("fast-lstmp-layer", "fast-lstmp-batchnorm-layer")
    fields: ClassVar[Mapping[str, Default]] = {
        **FastLstmLayer.fields, "recurrent-projection-dim": -1, "non-recurrent-projection-dim": -1, "dropout-proportion": -1.0}
    other_outputs = ("c",)

    def output(self, other: str = "") -> str:
        return f"{self.name}.{other or ('rp_batchnorm' if 'batchnorm' in self.kind else 'rp')}"

    def lines(self) -> list[str]:
        name, cells, recurrent = self.name, self._cells, self._recurrent
        dropout = self.values["dropout-proportion"]
        masked = dropout != -1
        lines = [self._affine("W_all", self.input.dim + recurrent, 4 * cells), self._nonlinearity(f"use-dropout={str(masked).lower()} "),
                 self._component("cr_trunc", "BackpropTruncationComponent", f"dim={cells + recurrent} {self._truncation()}")]
        if masked:
            lines.append(self._component("dropout_mask", "DropoutMaskComponent", f"output-dim=3 dropout-proportion={dropout} "))
        lines += [self._affine("W_rp", cells, self._output_dim()),
                  self._node("W_all", "W_all", f"Append({self.input.nodes}, {self._earlier('r_trunc')})")]
        if masked:
            lines.append(self._node("dropout_mask", "dropout_mask", f"{name}.dropout_mask"))
        mask = f", {name}.dropout_mask" if masked else ""
        lines += [self._node("lstm_nonlin", "lstm_nonlin", f"Append({name}.W_all, {self._earlier('c_trunc')}{mask})"),
                  self._range("c", "lstm_nonlin", 0, cells), self._range("m", "lstm_nonlin", cells, cells),
                  self._node("rp", "W_rp", f"{name}.m"), self._range("r", "rp", 0, recurrent),
                  self._node("cr_trunc", "cr_trunc", f"Append({name}.c, {name}.r)"),
                  self._range("c_trunc", "cr_trunc", 0, cells), self._range("r_trunc", "cr_trunc", cells, recurrent)]
        return lines + (self._batchnorm("rp_batchnorm", "rp", self._output_dim()) if "batchnorm" in self.kind else [])
