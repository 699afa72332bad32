"""One of 16 simulated workers four times slower: time to a frame accuracy with it and without, by strategy, on AN4's fMLLR features.

    tests/bench/run.sh straggler --out DIR [--shared ../shared] [--strategies "ssgd,adpsgd --pattern ring"] [--seeds 0] [--jobs 1]

Training and cluster are those of `large_minibatch`, with a global minibatch of 1,024, for five epochs; given its --out, the first five of
its runs are taken. Times are simulated; the accuracy rises linearly between the ends of epochs.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor

from large_minibatch import EPOCHS, FIRST, WORKERS, arguments, folder, prepare, stand_in, train

from pykaldist.parallel.strategies.adpsgd import PATTERNS
from pykaldist.report.simulate import Run

SLOW = {"5": 4.0}  # worker -> factor
ACCURACY = 0.58
FEWER = 5  # epochs
STRATEGIES = ("ssgd", "asgd", "asgd --staleness-discount false", "asgd --staleness-discount false --max-distance 32",
              *(f"adpsgd --pattern {pattern}" for pattern in PATTERNS), "hadpsgd", "ma --average-period 10",
              "bmuf --average-period 10", "onebit")


def main() -> None:
    args = arguments(__doc__, STRATEGIES).parse_args()
    out, seeds = args.out, [int(seed) for seed in args.seeds.split(",")]
    store, clusters = prepare(args), {False: out / "v100.json", True: out / "v100-straggler.json"}
    for slow, cluster in clusters.items():
        stand_in("v100-ethernet", store, slow=SLOW if slow else {}).write(cluster)

    def run(strategy: str, slow: bool, seed: int) -> Run:
        exp, epochs = out / folder(strategy, FIRST, seed), EPOCHS
        if slow or not (exp / "final.pt").exists():
            exp, epochs = out / folder(strategy, FIRST, seed, "straggler" if slow else "even"), FEWER
        lines = train(store, exp, clusters[slow], seed, strategy, WORKERS, FIRST // WORKERS, epochs)
        return Run("", strategy, WORKERS, lines[:FEWER])

    strategies = args.strategies.split(",")
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {(s, slow, seed): pool.submit(run, s, slow, seed) for seed in seeds for s in strategies for slow in (False, True)}
        print(f"| strategy | an epoch, s | with a straggler | ratio | to {100 * ACCURACY:g} %, s | with a straggler | ratio | "
              "best frame accuracy, % | with a straggler |\n" + "| --- " * 9 + "|")
        for strategy in strategies:
            even, late = ([runs[strategy, slow, seed].result() for seed in seeds] for slow in (False, True))
            cells = [*compared(list(map(epoch, even)), list(map(epoch, late))), *compared(list(map(to_accuracy, even)),
                                                                                          list(map(to_accuracy, late)))]
            cells += [described([100 * max((line["cv_acc"] for line in one.lines), default=0.0) for one in group], 2)
                      for group in (even, late)]
            print(f"| {strategy} | " + " | ".join(cells) + " |", flush=True)


def epoch(run: Run) -> float | None:
    return run.seconds[-1] / len(run.lines) if run.lines else None


def to_accuracy(run: Run) -> float | None:
    return run.time_to(ACCURACY)


def described(values: list[float], digits: int) -> str:
    spread = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def compared(even: list[float | None], late: list[float | None]) -> list[str]:
    """Seconds without and with it, and the ratio; `-` where a run has none."""
    both = [(a, b) for a, b in zip(even, late, strict=True) if a is not None and b is not None]
    if len(both) < len(even):
        return [described([v for v in values if v is not None], 1) if None not in values else "-" for values in (even, late)] + ["-"]
    return [described([a for a, _ in both], 1), described([b for _, b in both], 1), described([b / a for a, b in both], 2)]


if __name__ == "__main__":
    main()
