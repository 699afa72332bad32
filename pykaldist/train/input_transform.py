"""The fixed matrices of an nnet3 network's configs that are made of data: configs/lda.mat, and configs/presoftmax_prior_scale.vec.

`init.config` is the network up to the first affine map, as a network of its own, whose outputs are the inputs of the LDA-like transform
(`feats/lda.py`). It is there where a fixed-affine-layer of the xconfig asks for it. Other matrices that configs read are the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pykaldist.feats.lda import LdaStats
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.run import Nnet3Forward

LDA, PRIOR_SCALE, INIT = "lda.mat", "presoftmax_prior_scale.vec", "init.config"
FRAMES = 400_000  # output frames of which the transform is made, at most
PRIOR_POWER, SMOOTH = -0.25, 0.01  # Kaldi's --trainer.presoftmax-prior-scale-power; the mean count's share that each count gets more


@dataclass
class LabelledUtterance:
    """An utterance: its features (T, dim), its i-vector where it has one, and classes (n,) of outputs (n,), each with its weight (n,)."""

    feats: np.ndarray
    ivector: np.ndarray | None
    outputs: np.ndarray
    classes: np.ndarray
    weights: np.ndarray


def asks_for_transform(configs: Path) -> bool:
    """True where the LDA-like transform is to be made of data."""
    return (configs / INIT).is_file()


def write_input_transform(configs: Path, utterances: Iterable[LabelledUtterance], num_classes: int, subsampling: int) -> int:
    """Write configs/lda.mat; returns the number of output frames that it is made of."""
    text = (configs / INIT).read_text(encoding="utf-8")
    network = Nnet3Forward(initialised(text.splitlines(), torch.Generator().manual_seed(0), ".", str(configs / INIT)),
                           subsampling=subsampling)
    stats, frames = LdaStats(network.output_dim, num_classes), 0
    for utterance in utterances:
        others = {} if utterance.ivector is None else {"ivector": utterance.ivector[None]}
        outputs = network(utterance.feats, **others)
        stats.add(outputs[utterance.outputs], utterance.classes, utterance.weights)
        frames += len(outputs)
        if frames >= FRAMES:
            break
    with atomic_open(configs / LDA, "wb") as stream:
        KaldiWriter(stream).matrix(stats.input_transform().astype(np.float32))
    return frames


def write_prior_scale(configs: Path, counts: np.ndarray, power: float = PRIOR_POWER) -> None:
    """Write configs/presoftmax_prior_scale.vec: counts of pdfs to a power, of a mean of 1."""
    scales = (counts + SMOOTH * counts.mean()) ** power
    with atomic_open(configs / PRIOR_SCALE, "wb") as stream:
        KaldiWriter(stream).vector((scales / scales.mean()).astype(np.float32))
