"""Speed, size and word error rate of a network that takes i-vectors, here, in ONNX, and with 8-bit integers, on one core.

    tests/bench/run.sh onnx_ivectors exp/chain/tdnn_ivector exp/chain/tree_sp/graph data/test_hires exp/nnet3/ivectors_test_hires

An utterance goes through the network as a whole, with the last of its i-vectors. Times are seconds of CPU per second of speech, the best of
the repetitions. The largest difference of an output is that of ONNX Runtime from the forward pass here.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import numpy as np
from decoding import Decoding, onnx_sessions

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.datadir import DataDir
from pykaldist.io.tables import MatrixReader
from pykaldist.nnet.nnet3.run import Nnet3Forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("exp", "graph", "data", "ivectors"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts (default: 3)")
    args = parser.parse_args()
    data, pipeline = DataDir(args.data), FeaturePipeline.from_dir(args.exp, nnet3=True)
    feats = {utt: np.asarray(pipeline.apply(data, utt), np.float32) for utt in data.utterances()}
    table = MatrixReader(args.ivectors / "ivector_online.scp")
    ivectors = {utt: np.ascontiguousarray(table[utt][-1:], np.float32) for utt in feats}
    bench = Decoding(feats, data, args.exp / "final.mdl", args.graph / "HCLG.fst", args.graph / "words.txt", args.repeat)
    subsampling = read_subsampling(args.exp)
    forward = Nnet3Forward(bench.model.nnet, subsampling=subsampling)
    print(f"{len(feats)} utterances, {bench.seconds:.0f} s of speech, load {os.getloadavg()[0]:.1f}")
    print("| what | CPU s / s of speech | WER at LMWT 8 |\n| --- | --- | --- |")
    expected = bench.network("network", lambda utt: forward(feats[utt], ivector=ivectors[utt]))
    for name, size, session in onnx_sessions(bench.model, subsampling):
        found = bench.network(name, lambda utt, session=session: session.run(None, {"feats": feats[utt], "ivector": ivectors[utt]})[0])
        difference = max(float(np.abs(found[utt] - expected[utt]).max()) for utt in feats)
        print(f"{name}: {size:,} bytes, largest difference {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
