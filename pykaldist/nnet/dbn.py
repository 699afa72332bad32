"""A deep belief network: a stack of RBMs, each trained on the activations of those below (Hinton et al., 2006).

Their recognition weights, with sigmoids between them, are the start of a DNN's hidden layers; the DNN takes over their feature transform.
`dbn.pt` holds both; so do nnet1's `<layers>.dbn` and `final.feature_transform`, as Kaldi's pretrain_dbn.sh leaves them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.io import container
from pykaldist.nnet.components import Affine, Component, Sigmoid
from pykaldist.nnet.convert import read_feature_transform, to_component, to_feature_transform
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import FeatureTransform
from pykaldist.nnet.nnet1 import Nnet1


@dataclass
class Dbn:
    """A deep belief network that is the start of a DNN's first hidden layers.

    `layers`: weight (out, in) and bias (out,) of each, from the input on, float32 on the CPU.
    """

    transform: FeatureTransform
    layers: list[tuple[Tensor, Tensor]]

    @property
    def hid_dims(self) -> list[int]:
        return [len(bias) for _, bias in self.layers]

    @property
    def input_dim(self) -> int:
        return self.layers[0][0].shape[1]

    def network(self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
                compute: torch.dtype | None = None) -> Model:
        """Make the network from inputs (n, input_dim) to the hidden probabilities of the top layer; `dtype` and `compute` as in Model."""
        components: list[Component] = []
        for weight, bias in self.layers:
            components += [Affine(weight.shape[1], len(bias)), Sigmoid(len(bias))]
        model = Model(components, device, dtype, compute)
        _copy(self.layers, model)
        return model

    def check(self, options: DnnOptions, splice: list[int], dim: int) -> None:
        """Raise UserError unless a DNN of this shape, on features of dimension `dim` spliced like this, can start from it."""
        own, width = self.transform.splice, len(self.transform.splice)
        if options.activation != "sigmoid":
            raise UserError(f"--activation {options.activation}: the layers of a DBN are sigmoid; use --activation sigmoid.")
        if options.batch_norm:
            raise UserError("--batch-norm true: the layers of a DBN have none; leave out --dbn or the normalisation.")
        if options.bottleneck_dim:
            raise UserError("--bottleneck-dim: a DBN has no bottleneck; leave out --dbn or the bottleneck.")
        if self.hid_dims != [options.hid_dim] * min(options.hid_layers, len(self.hid_dims)) or len(self.hid_dims) > options.hid_layers:
            raise UserError(f"--hid-layers {options.hid_layers} --hid-dim {options.hid_dim}: the DBN has layers of "
                            f"{', '.join(map(str, self.hid_dims))} units; give the network the same, or more of them, or pretrain again "
                            "(steps/nnet/pretrain_dbn.sh).")
        if own != splice:
            raise UserError(f"--splice: the DBN takes frames {own[0]} to {own[-1]}, the network is to take {splice[0]} to {splice[-1]}; "
                            "use the same --splice for both.")
        if self.input_dim != width * dim:
            raise UserError(f"the DBN takes features of dimension {self.input_dim // width}, the store has {dim}; pretrain on the same "
                            "store (steps/nnet/pretrain_dbn.sh).")

    def start(self, model: Model) -> None:
        """Copy the layers to the hidden layers of a DNN that passed `check`."""
        _copy(self.layers, model)

    def checksum(self) -> str:
        """A checksum of everything that training depends on."""
        digest = hashlib.blake2b(repr(self.transform.splice).encode(), digest_size=16)
        for tensor in (self.transform.shift, self.transform.scale, *(t for layer in self.layers for t in layer)):
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def to_nnet1(self) -> tuple[Nnet1, Nnet1]:
        """Convert to (<layers>.dbn, final.feature_transform)."""
        components = []
        for weight, bias in self.layers:
            components += [to_component("AffineTransform", *weight.shape, linearity=weight.numpy(), bias=bias.numpy()),
                           to_component("Sigmoid", len(bias), len(bias))]
        return Nnet1(components), to_feature_transform(self.transform)

    def save(self, path: str | os.PathLike[str]) -> None:
        container.save(path, {"nnet": "dbn", "splice": self.transform.splice, "shift": self.transform.shift, "scale": self.transform.scale,
                              "layers": self.layers})

    @classmethod
    def load(cls, path: str | os.PathLike[str], transform: FeatureTransform | None = None) -> Dbn:
        """Read the DBN of a pretraining folder, made here or by Kaldi, or one `<layers>.dbn` of it.

        With `transform` in place of its own. Raises UserError where pretraining has not ended or a file is damaged.
        """
        dbn = cls._of_file(Path(path), transform) if Path(path).is_file() else cls._of_folder(Path(path))
        return dbn if transform is None else dataclasses.replace(dbn, transform=transform)

    @classmethod
    def _of_folder(cls, folder: Path) -> Dbn:
        stacks = [p for p in folder.glob("*.dbn") if p.stem.isdigit()]
        if (folder / "config.json").is_file() or not stacks:
            state: dict[str, Any] = container.load(folder / "dbn.pt")
            try:
                return cls(FeatureTransform(state["splice"], state["shift"], state["scale"]), list(state["layers"]))
            except (KeyError, TypeError) as error:
                raise UserError(f"{folder / 'dbn.pt'} is no DBN of this version ({error}); pretrain again "
                                "(steps/nnet/pretrain_dbn.sh).") from error
        return cls._of_file(max(stacks, key=lambda p: int(p.stem)))

    @classmethod
    def _of_file(cls, path: Path, transform: FeatureTransform | None = None) -> Dbn:
        """The stack in a file of nnet1, with the feature transform beside it where none is given."""
        components = Nnet1.read(path).components
        if [c.marker for c in components] != ["AffineTransform", "Sigmoid"] * (len(components) // 2):
            raise UserError(f"{path} is {' '.join(f'<{c.marker}>' for c in components)}; expected <AffineTransform> <Sigmoid> by turns.")
        layers = [(torch.from_numpy(c.arrays["linearity"]), torch.from_numpy(c.arrays["bias"])) for c in components[::2]]
        return cls(transform or read_feature_transform(path.parent / "final.feature_transform"), layers)


def _copy(layers: list[tuple[Tensor, Tensor]], model: Model) -> None:
    """Copy layers to a model's first affine components; the copy takes the model's device and type."""
    affine = [views for c, views in zip(model.components, model.views(model.params), strict=True) if isinstance(c, Affine)]
    for own, layer in zip(affine, layers, strict=False):
        for parameter, value in zip(own, layer, strict=True):
            parameter.copy_(value)
