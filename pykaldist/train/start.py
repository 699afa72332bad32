"""What a training starts from: a feature transform, a DBN, or a whole network, where options name one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.nnet.convert import from_nnet1, read_feature_transform, to_feature_transform
from pykaldist.nnet.dbn import Dbn
from pykaldist.nnet.kinds import default_splice, kind_of, make_nnet
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import FeatureTransform
from pykaldist.nnet.nnet1 import Nnet1


@dataclass
class Start:
    """The start of a network on features of some dimension.

    `splice`: the frames that make an input. `transform` is None where the store's own mean and variance are to be taken, `dbn` and
    `params` (all parameters of the network) where there are none. `inputs`: checksums of the files that it is from.
    """

    splice: list[int]
    transform: FeatureTransform | None
    dbn: Dbn | None
    params: Tensor | None
    inputs: dict[str, str]

    @classmethod
    def of(cls, options: Any, nnet: Any, dim: int, output_dim: int) -> Start:
        """Read what the options of an experiment name, for a network `nnet` on features of dimension `dim`.

        Raises UserError where a file is no network of this kind and shape.
        """
        inputs = {}
        transform = dbn = params = None
        if options.feature_transform:
            transform = read_feature_transform(options.feature_transform)
            inputs["feature_transform"] = provenance.checksum(options.feature_transform)
        if options.dbn:
            dbn = Dbn.load(options.dbn, transform)
            transform, inputs["dbn"] = dbn.transform, dbn.checksum()
        splice = default_splice(nnet, options.splice)
        if transform and options.splice is None and not getattr(nnet, "target_delay", 0):
            splice = transform.splice
        if dbn:
            dbn.check(nnet, splice, dim)
        elif transform:
            check_transform(transform, splice, dim, options.feature_transform)
        if options.nnet_init:
            params = _params(options.nnet_init, nnet, splice, dim, output_dim)
            inputs["nnet_init"] = provenance.checksum(options.nnet_init)
        return cls(splice, transform, dbn, params, inputs)

    def apply(self, model: Model) -> None:
        """Copy the start into a network that has its random weights."""
        if self.dbn:
            self.dbn.start(model)
        if self.params is not None:
            model.params.copy_(self.params)


def check_transform(transform: FeatureTransform, splice: list[int], dim: int, path: str) -> None:
    """Check a feature transform; raises UserError unless it takes features of this dimension, spliced like this."""
    if transform.splice != splice:
        raise UserError(f"--splice: {path} takes the frames {', '.join(map(str, transform.splice))}, the network is to take "
                        f"{', '.join(map(str, splice))}; leave --splice out.")
    if len(transform.shift) != len(splice) * dim:
        raise UserError(f"{path} takes features of dimension {len(transform.shift) // len(splice)}, found {dim}; use the features (CMVN, "
                        "deltas) that it was made for.")


def _params(path: str, nnet: Any, splice: list[int], dim: int, output_dim: int) -> Tensor:
    """The parameters of an nnet1 network of this kind and shape."""
    source = Nnet1.read(path)
    width = len(splice) * dim
    if (source.input_dim, source.output_dim) != (width, output_dim):
        raise UserError(f"--nnet-init {path} has {source.input_dim} inputs and {source.output_dim} outputs, expected {width} and "
                        f"{output_dim}; take a network of these features and this alignment model.")
    plain = FeatureTransform(splice, torch.zeros(width), torch.ones(width))
    network = from_nnet1(source, to_feature_transform(plain), None)
    ours = make_nnet(nnet, width, output_dim, len(splice))
    if kind_of(network.options) != kind_of(nnet) or ours.shapes != network.model.shapes:
        raise UserError(f"--nnet-init {path} is a {kind_of(network.options)} of {network.options.described()}, the network to train a "
                        f"{kind_of(nnet)} of {nnet.described()}; give it the same shape.")
    return network.model.params
