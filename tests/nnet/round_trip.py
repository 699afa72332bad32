"""Writes a network as nnet1 files, and makes a network of them again, for tests of several kinds of network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pykaldist.nnet.convert import from_nnet1, to_nnet1
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward


def through_nnet1(network: Network, path: Path, feats: np.ndarray) -> Network:
    """Make the network again from its nnet1 file `path`; checks that the file gives features (frames x dim) the network's posteriors."""
    nnet, transform = to_nnet1(network)
    nnet.write(path)
    nnet = Nnet1.read(path)
    posteriors = Nnet1Forward(Nnet1(transform.components + nnet.components))(feats)
    assert np.allclose(np.log(posteriors), network.log_posteriors(feats), atol=1e-4)
    return from_nnet1(nnet, transform, network.counts.numpy())
