"""nnet3 networks for recognisers that take features as they come, when no speaker's mean is known.

A network that was trained on features less each speaker's mean gets a fixed bias in front, minus the mean of its training data.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import CmvnOptions
from pykaldist.feats.pipeline import FeaturePipeline, stats_of_all
from pykaldist.io.datadir import DataDir
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor, parse_node
from pykaldist.nnet.nnet3.model import Nnet3


def for_plain_features(model_dir: Path, nnet: Nnet3, mean_data: Path | None, online_cmvn: bool = False) -> Nnet3:
    """Make of the network of `model_dir` one that takes features as they are; `mean_data` is the training data of one that does not.

    `online_cmvn`: who asks makes online CMVN where the network takes it. Raises UserError where the network takes features that cannot be
    made so.
    """
    pipeline = FeaturePipeline.from_dir(model_dir, nnet3=True)
    cmvn = pipeline.cmvn
    if pipeline.online is not None and online_cmvn:
        cmvn = CmvnOptions(norm_means=False)
    elif pipeline.online is not None:
        raise UserError(f"{model_dir}/online_cmvn: the recogniser that this is for makes no online CMVN; train a network with "
                        "--feat.cmvn-opts='--norm-means=false --norm-vars=false'.")
    if pipeline.lda is not None or pipeline.deltas.delta_order or cmvn.norm_vars or cmvn.sliding:
        raise UserError(f"{model_dir} takes features with deltas, final.mat, variance or sliding normalisation, none of which is made of "
                        "audio as it comes; train a network with --feat.cmvn-opts='--norm-means=false --norm-vars=false'.")
    if not cmvn.norm_means:
        if mean_data is not None:
            raise UserError(f"{model_dir} takes features as they are, without CMVN; leave out --mean-of.")
        return nnet
    if mean_data is None:
        raise UserError(f"{model_dir}/cmvn_opts says that the network takes features less each speaker's mean, which is not known while "
                        "audio comes, and without which nearly every word would be wrong; name the network's training data with --mean-of, "
                        "to subtract the mean of all of it, or train without CMVN.")
    mean = mean_of(DataDir(mean_data))
    if len(mean) != nnet.dim("input"):
        raise UserError(f"{mean_data}/cmvn.scp has means of dimension {len(mean)}, the network of {model_dir} takes "
                        f"{nnet.dim('input')}; name the data that it was trained on.")
    return with_mean_subtracted(nnet, mean)


def with_mean_subtracted(nnet: Nnet3, mean: np.ndarray) -> Nnet3:
    """Make the network that subtracts `mean` from its input `input`, by a fixed bias in front of all that takes it."""
    name = "input-mean"
    if name in nnet.nodes:
        raise UserError(f"the network has a node {name}, which subtracts a mean already.")
    nodes = {}
    for node in nnet.nodes.values():
        nodes[node.name] = replace(node, input=_renamed(node.input, "input", name)) if node.input is not None else copy.copy(node)
        if node.kind == "dim-range-node" and node.values["input-node"] == "input":
            nodes[node.name].values = {**node.values, "input-node": name}
        if node.name == "input":
            nodes[name] = parse_node(f"component-node name={name} component={name} input=input")
    bias = Nnet3Component(name, "FixedBiasComponent", {"Bias": -np.asarray(mean, np.float32)})
    return Nnet3(nodes, {name: bias, **nnet.components})


def _renamed(descriptor: Descriptor, node: str, by: str) -> Descriptor:
    """A descriptor that takes the node `by` where it took `node`."""
    if not descriptor.function:
        return replace(descriptor, node=by) if descriptor.node == node else descriptor
    return replace(descriptor, parts=tuple(_renamed(part, node, by) for part in descriptor.parts))


def mean_of(data: DataDir) -> np.ndarray:
    """The mean of all frames of a data directory, from its speakers' CMVN statistics."""
    first = stats_of_all(data)[0]
    return first[:-1] / first[-1]
