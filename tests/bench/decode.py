"""Real-time factor of the decoder on one core: golden log-likelihoods on the golden triphone graph of AN4.

    python tests/bench/decode.py --shared ../shared [--repeat 3]

Kaldi's latgen-faster-mapped took 0.0127 on such a core, at acwt 0.1, beam 13, lattice-beam 8, max-active 7000.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.paths import best_words
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with golden/ (default: ../shared)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts (default: 3)")
    args = parser.parse_args()
    folder = args.shared / "golden/an4_kaldi"
    tid2pdf = read_transition_model(folder / "tri3_ali/final.mdl").tid2pdf
    fst = Fst.read(folder / "graph_tri3/HCLG.fst")
    matrices = [matrix for _, matrix in read_archive(folder / "dnn/loglikes.ark")]
    seconds = sum(map(len, matrices)) / 100

    def fastest(work: Callable[[], object]) -> float:
        times = []
        for _ in range(args.repeat + 1):  # the first run compiles or loads
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return min(times[1:])

    print(f"{len(matrices)} utterances, {seconds:.0f} s of speech, graph of {fst.num_states} states")
    print("| what | real-time factor | times faster than real time |\n| --- | --- | --- |")
    for beam, max_active in ((13.0, 7000), (13.0, 1000), (10.0, 7000), (16.0, 7000)):
        decoder = LatticeDecoder(fst, tid2pdf, DecoderOptions(acwt=0.1, beam=beam, max_active=max_active))
        rtf = fastest(lambda decoder=decoder: [decoder.decode(m) for m in matrices]) / seconds
        print(f"| search, beam {beam:g}, max-active {max_active} | {rtf:.4f} | {1 / rtf:.0f} |", flush=True)
    decoder = LatticeDecoder(fst, tid2pdf, DecoderOptions(acwt=0.1))
    lattices = [decoder.decode(m) for m in matrices]
    rtf = fastest(lambda: [determinize(x, 0.1) for x in lattices]) / seconds
    print(f"| determinisation | {rtf:.5f} | {1 / rtf:.0f} |")
    lattices = [determinize(x, 0.1) for x in lattices]
    points = [(1.0, 1 / lmwt, wip) for wip in (0.0, 0.5, 1.0) for lmwt in range(4, 16)]
    rtf = fastest(lambda: [best_words(x, *zip(*points, strict=True)) for x in lattices]) / seconds
    print(f"| sweep of {len(points)} points | {rtf:.5f} | {1 / rtf:.0f} |")


if __name__ == "__main__":
    main()
