"""How far nnet3 training is from Kaldi's, beside how far Kaldi's is from itself where its BLAS rounds otherwise.

    tests/bench/run.sh kaldi_rounding $PYKALDIST_SHARED/golden --kaldi .../kaldi/src/chainbin/nnet3-chain-train [--kernels Prescott,Zen]

The training is that of chain/net/train.{1,2,4,8}: a small TDNN-F from train.0.raw on the examples of merged.ark. Kaldi's program, linked to
OpenBLAS, runs with each of its `kernels` (OPENBLAS_CORETYPE). Each number is the largest difference of a parameter after 1, 2, 4 and 8
minibatches: from the numbers in chain/net, then, with a rank of 20 in the last layers, from Kaldi with the first of the kernels. With
`--start 0.raw` another network of these features and pdfs is trained in its place (tests/optim/kaldi_lstm/0.raw.gz, unpacked: an LSTM).
"""

from __future__ import annotations

import argparse
import copy
import gzip
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from chain_egs import merged_egs  # tests is on sys.path only after the line above
from nnet3_learners import CONTEXT_OF_EGS, Chain, minibatch_of

from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.chain_denominator import Denominator
from pykaldist.nnet.chain_objective import ChainOptions
from pykaldist.nnet.nnet3.model import Nnet3 as Network
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

STEPS, RATE, PDFS, SEQUENCES = (1, 2, 4, 8), 0.01, 112, 6
LAST_LAYERS, LOW_RANK = ("output.affine", "output-xent.affine"), 20
OPTIONS = ["--apply-deriv-weights=false", "--l2-regularize=0.0001", "--leaky-hmm-coefficient=0.1", "--xent-regularize=0.1",
           "--momentum=0", "--max-param-change=2.0", "--l2-regularize-factor=1.0"]


def kaldis(program: Path, chain: Path, start: Network, steps: int, kernels: str, folder: Path) -> Network:
    """What Kaldi's program makes of a network in so many minibatches."""
    start.write(folder / "start.raw")
    data = (chain / "merged.ark").read_bytes()
    second = [match.start() for match in re.finditer(rb"merged-\S+ \0B<Nnet3ChainEg> ", data)][1]
    (folder / "egs.ark").write_bytes(b"".join((data[:second], data[second:])[step % 2] for step in range(steps)))
    subprocess.run([program, *OPTIONS, folder / "start.raw", chain / "den.fst", f"ark:{folder}/egs.ark", folder / "end.raw"], check=True,
                   capture_output=True, env={**os.environ, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": "1"})
    return Network.read(folder / "end.raw")


def ours(chain: Path, start: Network, steps: int, dtype: torch.dtype) -> Network:
    """What the optimiser nnet3 makes of it."""
    plain = Nnet3Network(start)
    around = (CONTEXT_OF_EGS - plain.left_context, CONTEXT_OF_EGS - plain.right_context) if plain.cell_statistics() else (0, 0)
    learner = Chain(Nnet3Network(start, dtype=dtype, around=around), [*merged_egs(chain, PDFS, SEQUENCES).values()],
                    Denominator(Fst.read(chain / "den.fst"), PDFS, 0.1), ChainOptions(0.1, 0.0001), False)
    optimizer, totals = Nnet3(learner, Nnet3Options()), torch.zeros(4, dtype=torch.float64)
    for index in range(steps):
        optimizer.local_step(minibatch_of(index), RATE, totals)
    return optimizer.model.to_nnet3()


def difference(one: Network, other: Network) -> float:
    """The largest difference of a parameter that is trained."""
    return max(float(np.abs(one.components[name].array(token) - other.components[name].array(token)).max())
               for name, component in one.components.items() if component.num_params
               for token in ("LinearParams", "Params", "BiasParams", "w_h") if len(component.values.get(token, [])))


def golden(chain: Path, steps: int) -> Network:
    """The network that Kaldi had made."""
    path = chain / f"net/train.{steps}.raw.txt.gz"
    return Network.parse(KaldiReader(gzip.decompress(path.read_bytes()), str(path)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--kaldi", type=Path, required=True, help="Kaldi's program nnet3-chain-train")
    parser.add_argument("--start", type=Path, help="another network to start from")
    parser.add_argument("--kernels", default="Prescott,Nehalem,Sandybridge,Haswell,Zen,SkylakeX")
    args = parser.parse_args()
    chain, kernels = args.golden / "chain", args.kernels.split(",")
    start = Network.read(args.start or chain / "net/train.0.raw")
    for component in start.components.values():
        if "LearningRate" in component.values:
            component.values["LearningRate"] = RATE * float(component.values.get("LearningRateFactor", 1.0))
    low = copy.deepcopy(start)
    for name in LAST_LAYERS:
        low.components[name].values["RankOut"] = LOW_RANK
    print(f"{'minibatches':>20}: " + " ".join(f"{steps:7d}" for steps in STEPS))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made_golden = {} if args.start else {steps: golden(chain, steps) for steps in STEPS}
        made_low = {steps: kaldis(args.kaldi, chain, low, steps, kernels[0], folder) for steps in STEPS}
        for title, network, reference in (("from the golden numbers", start, made_golden),
                                          (f"rank {LOW_RANK}, from Kaldi, {kernels[0]}", low, made_low)):
            if not reference:
                continue
            print(title)
            runs = {f"Kaldi, {name}": [kaldis(args.kaldi, chain, network, steps, name, folder) for steps in STEPS] for name in kernels}
            runs |= {f"ours, {name}": [ours(chain, network, steps, dtype) for steps in STEPS]
                     for name, dtype in (("float32", torch.float32), ("float64", torch.float64))}
            for name, made in runs.items():
                print(f"{name:>20}: " + " ".join(f"{difference(one, reference[steps]):7.1e}"
                                                 for steps, one in zip(STEPS, made, strict=True)), flush=True)


if __name__ == "__main__":
    main()
