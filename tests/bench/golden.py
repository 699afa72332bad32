"""Held-out frame accuracy and WER of ways to train, on Kaldi's own AN4 fMLLR features, alignments and graph; several seeds, one core a run.

    python tests/bench/golden.py --shared ../shared --out DIR [--runs rbm_ngsgd_exponential,...] [--seeds 0,1,2] [--dtype bf16] [--jobs 2]
        [--delayed true]

DIR gets the frame store, a DBN for each seed and a folder for each run; what is there is not made again, so the command can be stopped and
run again. `--list true` prints what every run is made of. With `--delayed true` NG-SGD trains on the CPU as on a GPU, where an update of
the Fisher models takes effect half an update period later. Kaldi's nnet1, RBM pretrained, reached 66.8 % and 6.08 % WER on the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pykaldist.frames.store import pack
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.tables import read_archive
from pykaldist.options import boolean

KALDIS_BEAMS = ["--acoustic-scale=0.1", "--beam=13", "--lattice-beam=8", "--max-active=7000"]  # of Kaldi's steps/decode.sh
SHAPE = ["--hid-layers", "4", "--hid-dim", "512"]


def rates(first: float, epochs: int = 8) -> str:
    """The exponential schedule from `first` down to a tenth of it."""
    return f"--schedule exponential --learn-rate {first:g} --final-learn-rate {first / 10:g} --num-epochs {epochs}"


def parallel(workers: int, strategy: str, minibatch: int, rate: float, epochs: int = 8) -> str:
    """A serial epoch, then `epochs` with so many workers."""
    several = f" --ngpu {workers} --strategy {strategy}" if workers > 1 else ""
    return f"--dbn --optimizer ngsgd --serial-warmup 1 --minibatch-size {minibatch}{several} {rates(rate, epochs)}"


MA, BMUF = "ma --average-period {}", "bmuf --average-period {}"
RUNS = {
    "random_sgd_newbob": "",
    "rbm_sgd_newbob": "--dbn",
    "rbm_ngsgd_newbob": "--dbn --optimizer ngsgd",
    "rbm_ngsgd_exponential": f"--dbn --optimizer ngsgd {rates(0.008)}",
    # how often NG-SGD updates its Fisher models, in minibatches
    **{f"rbm_ngsgd_period{period}": f"--dbn --optimizer ngsgd --update-period {period} {rates(0.008)}" for period in (4, 16, 32)},
    **{f"n{n}_ma10_period{period}": f"{parallel(n, MA.format(10), 256, 0.008)} --update-period {period}"
       for n in (4, 16) for period in (4, 16, 32)},
    "n1": parallel(1, "", 256, 0.008),
    **{f"n{n}_ma{period}": parallel(n, MA.format(period), 256, 0.008) for n in (4, 16, 32) for period in (10, 20)},
    "n8_asgd": parallel(8, "asgd", 256, 0.008),
    "n8_adpsgd": parallel(8, "adpsgd", 256, 0.008),
    "n4_bmuf10": parallel(4, BMUF.format(10), 256, 0.008),
    **{f"n{n}_bmuf10": parallel(n, BMUF.format(10), 64, 0.004) for n in (16, 32)},
    # how the rate at 16 workers was chosen, by held-out frame accuracy
    **{f"n16_ma10_rate{rate:g}": parallel(16, MA.format(10), 256, rate) for rate in (0.002, 0.004)},
    "lstm": f"--nnet lstm --hid-layers 2 --hid-dim 256 --momentum 0.5 {rates(0.004)}",
    "blstm": "--nnet blstm --hid-layers 2 --hid-dim 256 --schedule exponential --learn-rate 0.008 --final-learn-rate 0.0004 --num-epochs 6 "
             "--momentum 0.9 --max-param-change 1 --dropout 0.2",
}


#: pykaldist, with updates of the Fisher models as on a GPU
DELAYED = """import sys
from pykaldist.cli import main
from pykaldist.optim import ngsgd

at_once = ngsgd.NaturalGradient.__init__

def delayed(self, learner, options, states):
    at_once(self, learner, options, states)
    self.delayed = ngsgd.DelayedUpdates(self._sides)

ngsgd.NaturalGradient.__init__ = delayed
sys.exit(main(sys.argv[1:]))
"""


def run(command: list[str], log: Path, delayed: bool = False) -> None:
    """A `pykaldist` verb on one core, its output in a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with open(log, "w", encoding="utf-8") as stream:
        program = [sys.executable, *(["-c", DELAYED] if delayed else ["-m", "pykaldist"])]
        status = subprocess.run([*program, *command], stdout=stream, stderr=subprocess.STDOUT,
                                env={**os.environ, **single}, check=False).returncode
    if status:
        sys.exit(f"golden.py: ERROR: pykaldist {command[0]} ended with status {status}; see {log}.")


def make_store(an4: Path, store: Path) -> None:
    """Pack Kaldi's features and alignments."""
    tid2pdf = read_transition_model(an4 / "tri3_ali" / "final.mdl").tid2pdf
    pdfs = {utt: tid2pdf[ids] for job in (1, 2) for utt, ids in read_archive(an4 / "tri3_ali" / f"ali.{job}.gz")}
    feats = dict(read_archive(an4 / "fmllr" / "train.ark"))
    for name, listed in (("train", "tr.utts"), ("dev", "cv.utts")):
        utts = [line.split()[0] for line in (an4 / "fmllr" / listed).read_text().splitlines()]
        pack(utts, feats.__getitem__, pdfs.get, int(tid2pdf.max()) + 1, store / name)


def outcome(exp: Path) -> tuple[float, float]:
    """Frame accuracy of the accepted model on held-out speakers, and WER on the test set, in %."""
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    accuracy = [line["cv_acc"] for line in history if line["accepted"]][-1]
    match = re.match(r"%WER ([\d.]+) ", (exp / "decode" / "best_wer").read_text())
    assert match, exp
    return 100 * accuracy, float(match[1])


def folder(out: Path, name: str, dtype: str, seed: int, delayed: bool = False) -> Path:
    """Of a run, or of a DBN."""
    return out / ".".join([name, *([] if dtype == "float32" else [dtype]), *(["delayed"] if delayed else []), str(seed)])


def train(an4: Path, out: Path, name: str, dtype: str, seed: int, delayed: bool) -> tuple[float, float]:
    """Train, decode and score, as far as it has not been done."""
    exp, dbn = folder(out, name, dtype, seed, delayed), folder(out, "dbn", dtype, seed)
    if not (exp / "decode" / "best_wer").exists():
        seeds = ["--seed", str(seed), "--randomizer-seed", str(seed)]
        given = RUNS[name].split()
        options = [part for option in given for part in (["--dbn", str(dbn)] if option == "--dbn" else [option])]
        run(["train", "--device", "cpu", "--num-threads", "1", "--fabric", "virtual", "--dtype", dtype, *SHAPE, *seeds, *options,
             str(out / "store"), str(exp)], exp / "log" / "train.log", delayed)
        run(["nnet-forward", "--no-softmax=true", "--class-frame-counts", str(exp / "ali_train_pdf.counts"), str(exp / "final.pt"),
             str(an4 / "fmllr" / "test.ark"), str(exp / "loglikes.ark")], exp / "log" / "forward.log")
        decode = exp / "decode"
        run(["latgen-faster-mapped", *KALDIS_BEAMS, str(an4 / "tri3_ali" / "final.mdl"), str(an4 / "graph_tri3" / "HCLG.fst"),
             str(exp / "loglikes.ark"), str(decode / "lat.1.gz")], exp / "log" / "decode.log")
        (decode / "acwt").write_text("0.1\n", encoding="utf-8")
        run(["score", str(an4 / "data" / "test"), str(an4 / "graph_tri3"), str(decode)], exp / "log" / "score.log")
        (exp / "loglikes.ark").unlink()
    return outcome(exp)


def described(values: list[float]) -> str:
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with golden/ (default: ../shared)")
    parser.add_argument("--out", type=Path, help="folder for everything that is made")
    parser.add_argument("--runs", default=",".join(RUNS), help="which (default: all)")
    parser.add_argument("--seeds", default="0,1,2", help="of weights and frames (default: 0,1,2)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bf16"), help="of training and of RBMs (default: float32)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--delayed", type=boolean, default=False, help="true: updates of Fisher models as on a GPU (default: false)")
    parser.add_argument("--list", type=boolean, default=False, help="true: print what the runs are made of, and end")
    args = parser.parse_args()
    if args.list:
        for name, options in RUNS.items():
            print(f"{name:24s} {options}")
        return
    if args.out is None:
        parser.error("--out is needed")
    an4, out, seeds = args.shared / "golden" / "an4_kaldi", args.out, [int(seed) for seed in args.seeds.split(",")]
    if unknown := set(args.runs.split(",")) - set(RUNS):
        parser.error(f"there is no run {', '.join(sorted(unknown))}; --list true shows them")
    if not (out / "store" / "dev" / "manifest.json").exists():
        make_store(an4, out / "store")
    with ThreadPoolExecutor(args.jobs) as pool:
        dbns = [["pretrain-dbn", "--device", "cpu", "--num-threads", "1", "--dtype", args.dtype, *SHAPE, "--seed", str(seed),
                 "--randomizer-seed", str(seed), str(out / "store"), str(folder(out, "dbn", args.dtype, seed))] for seed in seeds]
        if any("--dbn" in RUNS[name] for name in args.runs.split(",")):
            list(pool.map(lambda command: run(command, out / "log" / f"{Path(command[-1]).name}.log"), dbns))
        results = {(name, seed): pool.submit(train, an4, out, name, args.dtype, seed, args.delayed)
                   for name in args.runs.split(",") for seed in seeds}
        print("| run | held-out frame accuracy, % | WER, % |\n| --- | --- | --- |")
        for name in args.runs.split(","):
            accuracies, rates_of_errors = zip(*(results[name, seed].result() for seed in seeds), strict=True)
            print(f"| {name} | {described(list(accuracies))} | {described(list(rates_of_errors))} |", flush=True)


if __name__ == "__main__":
    main()
