"""How sparse and how noisy gradients of utterances are, by objective: what averaging over workers has to fight.

    tests/bench/run.sh gradient_noise --network EXP/xent --store STORE --denlats DENLATS    # several of each: seeds, in one order

`--network` is the folder of a network that cross-entropy has trained, `--store` the frame store of its data, `--denlats` the lattice store
of its mistakes; egs/study leaves them in exp/*.lattices.*/{xent,store} and exp/corpora/*/store. Nothing is trained. An utterance a
gradient; the noise is that of a mean over n utterances over the length of the true one, sqrt(noise scale / n), for n = 1 and 16
(McCandlish et al., 2018). Means over seeds.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pykaldist.frames.sampler import Partition
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.network import Network
from pykaldist.nnet.objective import CrossEntropy, Objective
from pykaldist.nnet.objectives import OBJECTIVES

LARGE = 0.1  # a frame's derivative, in sum of magnitudes


def gradients(network: Network, store: FrameStore, denlats: Path) -> dict[str, tuple[float, float]]:
    """Of each objective the share of frames with a large derivative, and the root of the noise scale."""
    cut, whole, transform = SequenceOptions(sequences="whole", num_streams=1), Partition(store, level="utterance"), network.transform
    sampler = SequenceSampler(store, whole, 0, cut, transform.splice, transform.shift, transform.scale, 0, torch.device("cpu"),
                              padded=False)
    kinds: dict[str, Objective] = {"xent": CrossEntropy()}
    for name in ("smbr", "mpe", "mmi"):
        of_lattices: Any = OBJECTIVES[name].options_class
        kinds[name] = OBJECTIVES[name](of_lattices(denlats=str(denlats)))
    found = {}
    for name, objective in kinds.items():
        objective.prepare(store, store)
        learner, count, frames, felt = Supervised(network.model, objective), 0, 0, 0
        grads = torch.zeros_like(network.model.params)
        total, square = torch.zeros(len(grads), dtype=torch.float64), 0.0
        learner.reserve(sampler.capacity)
        for minibatch in sampler.in_order():
            totals = torch.zeros(learner.num_totals, dtype=torch.float64)
            outputs = network.model.forward(minibatch.inputs, None, minibatch.sequences, training=True)
            derivative = objective(outputs, minibatch, totals)
            felt, frames = felt + int((derivative.abs().sum(1) > LARGE).sum()), frames + len(derivative)
            learner.gradient(minibatch, grads, 0.0, totals)
            total += grads
            square, count = square + float(grads.double().pow(2).sum()), count + 1
        length = float((total / count).pow(2).sum())
        noise = (square / count - length) * count / (count - 1)
        found[name] = felt / frames, (noise / (length - noise / count)) ** 0.5
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("network", "store", "denlats"):
        parser.add_argument(f"--{name}", type=Path, nargs="+", required=True)
    args = parser.parse_args()
    if len(args.network) != len(args.denlats) or len(args.store) not in (1, len(args.network)):
        parser.error("give as many folders of --denlats as of --network, and of --store as many or one")
    torch.set_num_threads(1)
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with torch.no_grad():
        for network, store, denlats in zip(args.network, args.store * (len(args.network) // len(args.store)), args.denlats, strict=True):
            for name, row in gradients(Network.load(network / "final.pt"), FrameStore(store / "train"), denlats).items():
                rows[name].append(row)
    print("| objective | seeds | frames with a derivative above 0.1, % | noise of one utterance | of 16 |\n| --- | --- | --- | --- | --- |")
    for name, found in rows.items():
        large, noise = np.array(found).T
        print(f"| {name} | {len(found)} | {100 * large.mean():.1f} | {noise.mean():.1f} | {noise.mean() / 4:.1f} |")


if __name__ == "__main__":
    main()
