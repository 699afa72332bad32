"""A network's forward pass in float32, bfloat16 and 8-bit integers, by turns in one run, and the word error rates that follow.

    tests/bench/run.sh int8 exp/dnn exp/tri3/graph data-fmllr/test            # one core
    tests/bench/run.sh int8 --runs 20 --decode-opts "--acwt 0.1" exp/dnn exp/tri3/graph data-fmllr/test

Measured is what the decoder asks for: log-likelihoods of every utterance of the data directory from its features, with splicing and the
softmax. Each run has every arithmetic once; ratios are of one run, and medians, with the spread, are printed. The network is that of
final.pt in the first folder, which stays as it is; lattices go to a folder of their own. What the CPU does not multiply, bf16 or int8,
is left out, and that is said.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import torch
from machine import machine, possible

from pykaldist.decode.acoustic import AcousticModel, load_acoustic_model
from pykaldist.io.datadir import DataDir
from pykaldist.nnet.forwarding import ForwardOptions

ROOT = Path(__file__).resolve().parents[2]
FILES = ("final.pt", "final.mdl", "tree", "cmvn_opts", "delta_opts", "splice_opts", "final.mat", "tokens.txt")


def word_error_rate(model_dir: Path, graph: Path, data: Path, dtype: str, decode_opts: str) -> str:
    """The line of best_wer after decoding in an arithmetic, beside a copy of the model."""
    with tempfile.TemporaryDirectory(prefix="pykaldist-int8-") as folder:
        for name in FILES:
            if (model_dir / name).is_file():
                shutil.copyfile(model_dir / name, Path(folder) / name)
        decode = Path(folder) / "decode"
        command = [ROOT / "steps/decode.sh", "--nj", "1", "--device", "cpu", "--forward-opts", f"--dtype {dtype}", *decode_opts.split(),
                   graph, data, decode]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        return (decode / "best_wer").read_text(encoding="utf-8").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path, help="folder with final.pt")
    parser.add_argument("graph", type=Path, help="folder with HCLG.fst")
    parser.add_argument("data", type=Path, help="data directory with feats.scp and text")
    parser.add_argument("--runs", type=int, default=11, help="runs (default: 11)")
    parser.add_argument("--decode-opts", default="--acwt 0.1", help='of steps/decode.sh (default: "--acwt 0.1")')
    parser.add_argument("--rates-only", action="store_true", help="do not decode")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    print(machine())

    def load(dtype: str) -> AcousticModel:
        return load_acoustic_model(args.model_dir, forwarding=ForwardOptions(device="cpu", dtype=dtype))

    models = {"float32": load("float32")}
    for dtype in ("bf16", "int8"):
        model = possible(dtype, functools.partial(load, dtype))
        if model is not None:
            models[dtype] = model
    data = DataDir(args.data)
    feats = [models["float32"].features(data, utt) for utt in data.utt2spk]
    frames = sum(map(len, feats))
    spent: dict[str, list[float]] = {dtype: [] for dtype in models}
    for _ in range(args.runs + 1):
        for dtype, model in models.items():
            begun = time.perf_counter()
            for one in feats:
                model.loglikes(one)
            spent[dtype].append(time.perf_counter() - begun)
    print(f"{len(feats)} utterances, {frames:,} frames; {args.runs} runs\n")
    print("| arithmetic | frames/s | over float32 | best WER |\n| --- | --- | --- | --- |")
    for dtype in models:
        seconds = spent[dtype][1:]
        ratios = [a / b for a, b in zip(spent["float32"][1:], seconds, strict=True)]
        folders = args.model_dir.resolve(), args.graph.resolve(), args.data.resolve()
        wer = "" if args.rates_only else word_error_rate(*folders, dtype, args.decode_opts)
        print(f"| {dtype} | {frames / statistics.median(seconds):,.0f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
              f"{max(ratios):.2f}) | {wer} |", flush=True)


if __name__ == "__main__":
    main()
