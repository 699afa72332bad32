"""Milliseconds that Kaldi's programs of src/bin take to start, work on next to nothing, and end; usage: [--runs N]."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = """<TransitionModel> <Topology> <TopologyEntry> <ForPhones> 1 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State> </TopologyEntry> </Topology>
<Triples> 1 1 0 0 </Triples> <LogProbs> [ 0 -0.7 -0.7 ] </LogProbs> </TransitionModel>
<DIMENSION> 2 <NUMPDFS> 1 <DiagGMM> <WEIGHTS> [ 1 ] <MEANS_INVVARS> [ 0 0 ] <INV_VARS> [ 1 1 ] </DiagGMM>
"""
ARPA = "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-0.5 a\n\n\\end\\\n"
LINES = {  # a program of each kind; those before numpy need none
    "sh -c true": "true",
    "python -c pass": f"{sys.executable} -c pass",
    "fstprint": "fstprint a.fst",
    "fstcompile": "fstcompile a.txt b.fst",
    "fstarcsort": "fstarcsort a.fst b.fst",
    "fstisstochastic": "fstisstochastic a.fst",
    "arpa2fst": "arpa2fst lm c.fst",
    "tree-info": "tree-info tree",
    "gmm-info": "gmm-info model",
    "feat-to-dim": "feat-to-dim ark:f -",
    "feat-to-len": "feat-to-len ark:f ark,t:-",
    "copy-feats": "copy-feats ark:f ark:g",
    "copy-int-vector": "copy-int-vector ark:ali ark:ali2",
    "compute-wer": "compute-wer --mode=present ark:ali ark:ali",
    "python -c 'import numpy'": f"{sys.executable} -c 'import numpy'",
    "add-deltas": "add-deltas ark:f ark:g",
    "compute-cmvn-stats": "compute-cmvn-stats ark:f ark:g",
    "ali-to-pdf": "ali-to-pdf model ark:ali ark:ali2",
    "lattice-copy": "lattice-copy ark:lat ark:lat2",
    "nnet-copy": "nnet-copy n m",
    "compute-fbank-feats (a usage text)": "compute-fbank-feats --help",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each program, turn and turn about (default: 20)")
    runs = parser.parse_args().runs
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}"}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    taken: dict[str, list[float]] = {what: [] for what in LINES}
    cpu: dict[str, list[float]] = {what: [] for what in LINES}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"a.txt": "0 1 1 2\n1\n", "lm": ARPA, "tree": "ContextDependency 1 0 ToPdf CE 0 EndContextDependency ",
                           "f.txt": "u  [\n 1 2 ]\n", "model": MODEL, "ali": "u 1 1 2\n", "lat": "u \n0 1 3 1,2,4_5\n1 0,0,\n\n",
                           "proto": "<Sigmoid> <InputDim> 2 <OutputDim> 2\n"}.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        made = "fstcompile a.txt a.fst", "nnet-initialize proto n", "copy-feats ark:f.txt ark:f"
        for line in (*made, *LINES.values()):  # once, unmeasured
            subprocess.run(["sh", "-c", line], cwd=folder, env=env, check=True, capture_output=True)
        for _ in range(runs):
            for what, line in LINES.items():
                start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(["sh", "-c", line], cwd=folder, env=env, check=True, capture_output=True)
                taken[what].append(1000 * (time.perf_counter() - start))
                now = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu[what].append(1000 * (now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime))
    for what, found in taken.items():
        used = statistics.median(cpu[what])
        print(f"{statistics.median(found):5.0f} ms ({min(found):.0f} to {max(found):.0f}), {used:4.0f} ms of the CPU  {what}")


if __name__ == "__main__":
    main()
