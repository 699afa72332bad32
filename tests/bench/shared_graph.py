"""Memory of several decoding jobs with one graph: HCLG.search mapped, beside a graph of each job's own.

    tests/bench/run.sh shared_graph GRAPH_DIR MODEL [--nj 4] [--utterances 10]

MODEL is final.mdl. Each job decodes utterances of 300 frames of random log-likelihoods, then all tell their memory at the same time: Pss of
/proc/self/smaps_rollup, in which a page that n processes share counts an n-th for each. What a job has without a graph is taken off.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.search_graph import SearchGraph, read_search_graph
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst


def proportional() -> float:
    """MB of this process's memory, shared pages by their shares."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1000


def job(graph_dir: Path, model: Path, mapped: bool, utterances: int, number: int, barrier: Barrier,
        results: multiprocessing.Queue[tuple[float, float, float]]) -> None:
    """One job: puts (MB more than before the graph, seconds of CPU until the graph is there, arcs)."""
    tid2pdf = read_transition_model(model).tid2pdf
    barrier.wait()
    before = proportional()
    barrier.wait()
    start = time.process_time()
    graph = read_search_graph(graph_dir, tid2pdf) if mapped else SearchGraph.of(Fst.read(graph_dir / "HCLG.fst"), tid2pdf)
    seconds = time.process_time() - start
    decoder = LatticeDecoder(graph, tid2pdf, DecoderOptions(max_active=2000))
    rng = np.random.default_rng(number)
    for _ in range(utterances):
        decoder.decode(rng.normal(0, 3, (300, int(tid2pdf.max()) + 1)).astype(np.float32))
    barrier.wait()
    results.put((proportional() - before, seconds, float(len(graph.arcs))))
    barrier.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph_dir", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--nj", type=int, default=4, help="jobs (default: 4)")
    parser.add_argument("--utterances", type=int, default=10, help="utterances a job (default: 10)")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for mapped in (False, True):
        barrier, results = context.Barrier(args.nj), context.Queue()
        jobs = [context.Process(target=job, args=(args.graph_dir, args.model, mapped, args.utterances, n, barrier, results))
                for n in range(args.nj)]
        for process in jobs:
            process.start()
        found = [results.get() for _ in jobs]
        for process in jobs:
            process.join()
        memory, arcs = sum(more for more, _, _ in found), found[0][2]
        print(f"{'HCLG.search, mapped' if mapped else 'a graph of its own':20s} {args.nj} jobs: {memory:.0f} MB together, "
              f"{1e6 * memory / args.nj / arcs:.1f} bytes an arc and job; {np.median([seconds for _, seconds, _ in found]):.2f} s of CPU "
              f"until the graph is there")


if __name__ == "__main__":
    main()
