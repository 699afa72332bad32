"""Layers of affine maps that training does not change: an LDA-like transform, the inverse of the MFCCs' cosine transform."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer, component, node


class FixedAffineLayer(Layer):
    """An affine map that is read from a file, such as an LDA; init.config has its input as output, of which the file is to be made."""

    kinds = ("fixed-affine-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "affine-transform-file": "", "delay": 0,
                                               "write-init-config": True}

    def check(self) -> None:
        self.require(bool(self.values["affine-transform-file"]), "affine-transform-file", "the file of the matrix")

    def configs(self) -> dict[str, list[str]]:
        source, delay, init = self.input.nodes, self.values["delay"], []
        if self.values["write-init-config"]:
            if delay:
                delayed = f"{self.name}.delayed"
                init = [component(delayed, "NoOpComponent", f"dim={self.input.dim}"), node(delayed, source)]
                source_of_init = f"Offset({delayed}, {delay})"
            else:
                source_of_init = source
            init.append(f"output-node name=output input={source_of_init}")
        return {"init": init,
                "ref": [component(self.name, "FixedAffineComponent", f"input-dim={self.input.dim} output-dim={self.values['dim']}"),
                        node(self.name, source)],
                "final": [component(self.name, "FixedAffineComponent", f"matrix={self.values['affine-transform-file']}"),
                          node(self.name, source)]}


class IdctLayer(Layer):
    """The map from MFCCs to log mel energies; its file is written when the configs are."""

    kinds = ("idct-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "cepstral-lifter": 22.0, "affine-transform-file": "",
                                               "include-in-init": False}

    def check(self) -> None:
        self.require(bool(self.values["affine-transform-file"]), "affine-transform-file", "the file to write the matrix to")

    def lines(self) -> list[str]:
        return [component(self.name, "FixedAffineComponent", f"matrix={self.values['affine-transform-file']}"),
                node(self.name, self.input.nodes)]

    def matrix(self) -> list[list[float]]:
        """The inverse of the cosine transform (output, input + 1), liftering undone; its last column, the bias, is zero."""
        inputs, outputs, lifter = self.input.dim, self.values["dim"], self.values["cepstral-lifter"]
        coefficients = [1 + 0.5 * lifter * math.sin(math.pi * k / lifter) if lifter else 1.0 for k in range(inputs)]
        rows = []
        for n in range(outputs):
            waves = (math.cos(math.pi / outputs * (n + 0.5) * k) for k in range(1, inputs))
            row = [math.sqrt(1 / outputs), *(math.sqrt(2 / outputs) * wave for wave in waves)]
            rows.append([*(value / coefficient for value, coefficient in zip(row, coefficients, strict=True)), 0])
        return rows
