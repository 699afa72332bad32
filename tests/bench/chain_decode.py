"""Speed and word error rate of Kaldi's chain model on AN4, on one core: whole utterances, audio as it comes, ONNX, 8-bit integers.

    python tests/bench/chain_decode.py --shared ../shared [--repeat 3]

Times are seconds of CPU per second of speech, the best of the repetitions; Kaldi's nnet3-latgen-faster took 0.011 on such a core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import kaldialign
import numpy as np
import onnxruntime

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.paths import best_path
from pykaldist.decode.streaming import Recogniser, Recognition
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.onnx_export import export_nnet3_onnx, quantised
from pykaldist.nnet.nnet3.run import Nnet3Forward

SUBSAMPLING, SCALE = 3, 10 / 8  # LMWT 8 of lattices whose acoustic costs are ten times
CHUNK = 1600  # samples that come at once


class Bench:
    """The test set, the model and the graph."""

    def __init__(self, shared: Path, repeat: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.chain, self.repeat = shared / "golden/chain_an4", repeat
        self.test = DataDir(shared / "golden/an4_kaldi/data/test")
        self.feats = dict(read_archive(self.chain / "test_feats.ark.gz"))
        self.seconds = sum(map(len, self.feats.values())) / 100
        self.audio = [read_audio(str(shared / self.test.wav_scp[utt]))[0] for utt in self.feats]
        self.words = SymbolTable.read(self.chain / "decode/words.txt")
        self.model = Nnet3Model.read(self.chain / "final.mdl")
        self.options = DecoderOptions(15.0, 8.0, 7000, 200, 1.0)
        self.decoder = LatticeDecoder(Fst.read(self.chain / "HCLG.fst"), self.model.transition_model.tid2pdf, self.options)

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

    def network(self, name: str, forward: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
        """Print the speed and the word error rate of a network's outputs; returns them."""
        speed = self.speed(lambda: [forward(x) for x in self.feats.values()])
        outputs = {utt: forward(x) for utt, x in self.feats.items()}
        print(f"| {name} | {speed:.5f} | {self.wer(outputs):.2f} |", flush=True)
        return outputs

    def search(self, outputs: dict[str, np.ndarray]) -> None:
        """Print the speed of the search, and of determinising its lattices."""
        print(f"| search | {self.speed(lambda: [self.decoder.decode(matrix) for matrix in outputs.values()]):.5f} | |")
        lattices = [lattice for matrix in outputs.values() if (lattice := self.decoder.decode(matrix)) is not None]
        print(f"| determinisation | {self.speed(lambda: [determinize(x, 1.0, 8.0) for x in lattices]):.5f} | |", flush=True)

    def features(self, extractor: Extractor) -> None:
        """Print the speed of the features."""
        print(f"| features | {self.speed(lambda: [extractor.extract([('', one)]) for one in self.audio]):.5f} | |")

    def stream(self, extractor: Extractor) -> None:
        """Print the speed of recognition as the audio comes, and after how much audio the first result comes."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for source, target in (("final_global_mean.mdl", "final.mdl"), ("HCLG.fst", "HCLG.fst"), ("decode/words.txt", "words.txt")):
                (folder / target).symlink_to((self.chain / source).resolve())
            (folder / "frame_subsampling_factor").write_text(f"{SUBSAMPLING}\n", encoding="utf-8")
            recogniser = Recogniser(folder, folder, extractor, self.options, Endpointing(range(1, 11)))
        firsts: list[float] = []

        def all_of_it() -> None:
            for samples in self.audio:
                recognition, first = Recognition(recogniser), 0.0
                for start in range(0, len(samples), CHUNK):
                    if recognition.accept(samples[start:start + CHUNK]) and not first:
                        first = min(start + CHUNK, len(samples)) / 16000
                recognition.finish()
                firsts.append(first)

        speed = self.speed(all_of_it)
        print(f"| as the audio comes, {CHUNK / 16:g} ms at once: features, network, search | {speed:.5f} | |")
        print(f"\nThe first result of an utterance comes after {np.median(firsts):.2f} s of audio (at most {max(firsts):.2f} s).")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with golden/ (default: ../shared)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts (default: 3)")
    args = parser.parse_args()
    bench = Bench(args.shared, args.repeat)
    extractor = Extractor(read_conf(MfccOptions, bench.chain / "mfcc_hires.conf"))
    print(f"{len(bench.feats)} utterances, {bench.seconds:.0f} s of speech")
    print("| what | CPU s / s of speech | WER at LMWT 8 |\n| --- | --- | --- |")
    bench.features(extractor)
    outputs = bench.network("network", Nnet3Forward(bench.model.nnet, subsampling=SUBSAMPLING))
    bench.search(outputs)
    one_thread = onnxruntime.SessionOptions()
    one_thread.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        for name, change in (("network, ONNX", None), ("network, ONNX, int8", quantised)):
            path = f"{folder}/model.onnx"
            export_nnet3_onnx(bench.model.nnet, path, SUBSAMPLING, change=change)
            session = onnxruntime.InferenceSession(path, one_thread)
            bench.network(name, lambda x, session=session: session.run(None, {"feats": x})[0])
    bench.stream(extractor)


if __name__ == "__main__":
    main()
