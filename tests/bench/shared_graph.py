"""Memory and speed of several decoders with one graph: in jobs with a graph each, in jobs that map HCLG.search, in threads of one job.

    tests/bench/run.sh shared_graph GRAPH_DIR MODEL [--lookahead GRAPH_DIR] [--nj 4] [--utterances 10] [--runs 5]

MODEL is final.mdl; --lookahead names a graph of utils/mkgraph_lookahead.sh, which is measured too. Each decoder decodes utterances of 300
frames of random log-likelihoods, then all tell their memory at the same time: Pss of /proc/self/smaps_rollup, in which a page that n
processes share counts an n-th for each. "More" is without what the processes had before they read the graph. At the end threads decode
what one decodes alone, by turns (--runs): with as many idle cores as threads the ratio of their times, wall clock, is what threads bring.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lookahead import read_decoder
from pykaldist.decode.search_graph import SearchGraph
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst


def proportional() -> float:
    """MB of this process's memory, shared pages by their shares."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1000


def job(graph_dir: Path, model: Path, own: bool, threads: int, utterances: int, number: int, barrier: Barrier,
        results: multiprocessing.Queue[tuple[float, float, float, float]]) -> None:
    """One job: puts (MB, MB more than before the graph, seconds of CPU until it is there, seconds of the wall clock for all utterances)."""
    tid2pdf, options = read_transition_model(model).tid2pdf, DecoderOptions(max_active=2000)
    barrier.wait()
    before = proportional()
    barrier.wait()
    start = time.process_time()
    first = (LatticeDecoder(SearchGraph.of(Fst.read(graph_dir / "HCLG.fst"), tid2pdf), tid2pdf, options) if own
             else read_decoder(graph_dir, tid2pdf, options))
    seconds, begin = time.process_time() - start, time.perf_counter()

    def decode(decoder: LatticeDecoder, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(utterances):
            decoder.decode(rng.normal(0, 3, (300, int(tid2pdf.max()) + 1)).astype(np.float32))

    decoders = [first, *(first.another() for _ in range(threads - 1))]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, decoders, range(number, number + threads)))
    wall = time.perf_counter() - begin
    barrier.wait()
    now = proportional()
    results.put((now, now - before, seconds, wall))
    barrier.wait()


def measure(name: str, graph_dir: Path, args: argparse.Namespace, own: bool, jobs: int) -> None:
    """Run so many jobs, which have args.nj decoders together, and print what they took."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(jobs), context.Queue()
    threads = args.nj // jobs
    processes = [context.Process(target=job, args=(graph_dir, args.model, own, threads, args.utterances, n, barrier, results))
                 for n in range(jobs)]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    total, more = (sum(one[i] for one in found) for i in (0, 1))
    print(f"{name:28s} {jobs:4d} {threads:7d} {total:9.0f} {more:8.0f} {np.median([one[2] for one in found]):10.2f} "
          f"{max(one[3] for one in found):7.1f}", flush=True)


def speed_up(args: argparse.Namespace) -> list[float]:
    """The time of one decoder for all utterances of `args.nj`, over that of as many in threads, which have a share each; of each run."""
    tid2pdf = read_transition_model(args.model).tid2pdf
    first = read_decoder(args.graph_dir, tid2pdf, DecoderOptions(max_active=2000))
    rng = np.random.default_rng(0)
    utts = [rng.normal(0, 3, (300, int(tid2pdf.max()) + 1)).astype(np.float32) for _ in range(args.nj * args.utterances)]

    def seconds(threads: int) -> float:
        decoders = [first.another() for _ in range(threads)]

        def share(number: int) -> None:
            for utt in utts[number::threads]:
                decoders[number].decode(utt)

        begin = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, range(threads)))
        return time.perf_counter() - begin

    seconds(1)  # pages of the graph
    return [seconds(1) / seconds(args.nj) for _ in range(args.runs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph_dir", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--lookahead", type=Path, help="graph directory with HCLr.fst and Gr.fst")
    parser.add_argument("--nj", type=int, default=4, help="decoders (default: 4)")
    parser.add_argument("--utterances", type=int, default=10, help="utterances a decoder (default: 10)")
    parser.add_argument("--runs", type=int, default=5, help="runs of one decoder and of threads (default: 5)")
    args = parser.parse_args()
    print(f"{'graph':28s} jobs threads in all,MB more,MB load,CPU s wall, s")
    measure("HCLG.fst, one a job", args.graph_dir, args, True, args.nj)
    measure("HCLG.search, mapped", args.graph_dir, args, False, args.nj)
    measure("HCLG.search, mapped", args.graph_dir, args, False, 1)
    if args.lookahead:
        measure("HCLr.fst and Gr.fst", args.lookahead, args, False, args.nj)
        measure("HCLr.fst and Gr.fst", args.lookahead, args, False, 1)
    found = speed_up(args)
    print(f"{args.nj} threads over one: {np.median(found):.2f} ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
