"""Time of forward-backward over lattices on one core: Kaldi's dense lattices of AN4, for MMI and for sMBR.

    tests/bench/run.sh lattices --shared ../shared

Beside forward-backward alone it times what an objective makes of a minibatch of all of them: acoustic costs from the outputs of a network,
accuracies or boosts, posteriors or gains of all frames, and the derivative.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.sampler import Minibatch
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.forward_backward import forward_backward
from pykaldist.nnet.frame_accuracy import Phones
from pykaldist.nnet.init import INITS
from pykaldist.nnet.kinds import default_init, init_nnet
from pykaldist.nnet.lattice_objective import Mmi, Smbr
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy


def milliseconds(work: Callable[[], object], repeats: int) -> str:
    """Median and range of the time that `work` takes, after two rounds of warming up."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return f"{statistics.median(times[2:]):8.2f} ({min(times[2:]):.2f}-{max(times[2:]):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with golden/ (default: ../shared)")
    parser.add_argument("--repeats", type=int, default=30, help="runs of each measurement (default: 30)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = args.shared / "golden" / "seq"
    model = TransitionModel.read(KaldiReader.open(folder / "trans.mdl.txt.gz"))
    phones = Phones.of(model.tid2pdf, model.tid2phone, map(int, (folder / "silence.csl").read_text().strip().split(":")))
    alignments = {utt: ids for utt, *ids in (line.split() for line in (folder / "ref_ali.txt").read_text().splitlines())}
    read = list(read_lattices(folder / "dense_lat.gz"))
    lattices = Lattices.joined([as_arrays(lattice) for _, lattice in read])
    reference = np.concatenate([np.array(alignments[utt], np.int64) for utt, _ in read])
    frames, rows = len(reference), np.arange(len(reference))
    print(f"{len(read)} lattices, {frames} frames, {len(lattices.source)} arcs that stand for {len(lattices.entry)} of a frame each, "
          f"{len(lattices.frame)} cells; {args.repeats} runs, one core")
    print("                                              ms: median (min-max)")
    cost = lattices.graph + 0.1 * lattices.acoustic.astype(np.float64)
    right = phones.accuracy("smbr", lattices.transition_id, reference[lattices.frame], True)

    def posteriors() -> None:
        lattices.cell_sums(forward_backward(lattices, cost).posterior)

    def gains() -> None:
        lattices.cell_sums(forward_backward(lattices, cost, lattices.entry_sums(right)).gain)

    print(f"forward-backward, posteriors of frames      {milliseconds(posteriors, args.repeats)}")
    print(f"forward-backward, gains of frames (sMBR)    {milliseconds(gains, args.repeats)}")
    parts = [as_arrays(lattice) for _, lattice in read]
    print(f"joining the lattices of a minibatch         {milliseconds(lambda: Lattices.joined(parts), args.repeats)}")
    outputs = torch.randn(frames, model.num_pdfs, generator=torch.Generator().manual_seed(0))
    for kind, options in ((Mmi, {"boost": 0.1}), (Smbr, {})):
        objective = kind(kind.options_class(denlats="none", **options))
        objective.phones = phones
        objective.set_priors(np.zeros(model.num_pdfs))
        totals = torch.zeros(objective.num_totals, dtype=torch.float64)

        def derivative(objective: Mmi | Smbr = objective, totals: torch.Tensor = totals) -> None:
            objective.derivative(lattices, reference, rows, outputs.clone(), totals)

        print(f"derivative of {kind.name:4s} for {model.num_pdfs} outputs        {milliseconds(derivative, args.repeats)}")
    dnn = DnnOptions(hid_layers=4, hid_dim=512)
    learner = Supervised(make_dnn(dnn, 440, model.num_pdfs), CrossEntropy())
    init_nnet(learner.model, dnn, torch.Generator().manual_seed(0), INITS[default_init(dnn)]())
    inputs = torch.randn(frames, 440, generator=torch.Generator().manual_seed(1))
    minibatch = Minibatch(inputs, torch.zeros(frames, dtype=torch.int32), 0, False)
    grads, sums = torch.zeros_like(learner.model.params), torch.zeros(learner.num_totals, dtype=torch.float64)
    with torch.no_grad():
        step = milliseconds(lambda: learner.gradient(minibatch, grads, 0.0, sums), args.repeats)
    print(f"for comparison: the gradient of cross-entropy, 440-512x4 {step}")
    print(f"arrays of a lattice (once, when it is packed) {milliseconds(lambda: [as_arrays(lattice) for _, lattice in read], 3)}")


if __name__ == "__main__":
    main()
