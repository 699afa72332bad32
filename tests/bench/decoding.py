"""What benchmarks of decoding with nnet3 networks have in common: a test set, a graph, speed and word error rate; ONNX sessions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kaldialign
import numpy as np
import onnxruntime

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.paths import best_path
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.onnx_export import export_nnet3_onnx, quantised

SCALE = 10 / 8  # LMWT 8 of lattices whose acoustic costs are ten times


class Decoding:
    """A test set, the model and the graph."""

    def __init__(self, feats: dict[str, np.ndarray], test: DataDir, model: Path, graph: Path, words: Path, repeat: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.feats, self.test, self.repeat = feats, test, repeat
        self.seconds = sum(map(len, feats.values())) / 100
        self.words, self.model = SymbolTable.read(words), Nnet3Model.read(model)
        self.options = DecoderOptions(15.0, 8.0, 7000, 200, 1.0)
        self.decoder = LatticeDecoder(Fst.read(graph), self.model.transition_model.tid2pdf, self.options)

    def speed(self, work: Callable[[], object]) -> float:
        """The real-time factor of `work`, once for all utterances; a first run compiles or loads."""
        times = []
        for _ in range(self.repeat + 1):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        return min(times[1:]) / self.seconds

    def wer(self, outputs: dict[str, np.ndarray]) -> float:
        """The word error rate at LMWT 8, in per cent."""
        errors = total = 0
        for utt, matrix in outputs.items():
            lattice = self.decoder.decode(matrix)
            assert lattice is not None
            path = best_path(determinize(lattice, 1.0, 8.0), SCALE)
            found, reference = [self.words.symbol(word) for word in path.words], list(self.test.text[utt])
            errors, total = errors + kaldialign.edit_distance(reference, found)["total"], total + len(reference)
        return 100 * errors / total

    def network(self, name: str, forward: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
        """Print the speed and the word error rate of a network's outputs of utterances; returns them."""
        speed = self.speed(lambda: [forward(utt) for utt in self.feats])
        outputs = {utt: forward(utt) for utt in self.feats}
        print(f"| {name} | {speed:.5f} | {self.wer(outputs):.2f} |", flush=True)
        return outputs


def onnx_sessions(model: Nnet3Model, subsampling: int) -> Iterator[tuple[str, int, onnxruntime.InferenceSession]]:
    """A model's network in ONNX, plain and with 8-bit integers, on one thread: what it is called, its bytes, and a session that runs it."""
    one_thread = onnxruntime.SessionOptions()
    one_thread.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        for name, change in (("network, ONNX", None), ("network, ONNX, int8", quantised)):
            path = Path(folder) / "model.onnx"
            export_nnet3_onnx(model.nnet, path, subsampling, change=change)
            yield name, path.stat().st_size, onnxruntime.InferenceSession(str(path), one_thread)
