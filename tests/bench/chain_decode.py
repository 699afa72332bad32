"""Speed and word error rate of Kaldi's chain model on AN4, on one core: whole utterances, audio as it comes, ONNX, 8-bit integers.

    python tests/bench/chain_decode.py --shared ../shared [--repeat 3]

Times are seconds of CPU per second of speech, the best of the repetitions; Kaldi's nnet3-latgen-faster took 0.011 on such a core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import numpy as np
from decoding import Decoding, onnx_sessions

from pykaldist.decode.determinize import determinize
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.streaming import Recogniser, Recognition
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3.run import Nnet3Forward

SUBSAMPLING = 3
CHUNK = 1600  # samples that come at once


class Bench(Decoding):
    """The golden test set, the model and the graph."""

    def __init__(self, shared: Path, repeat: int) -> None:
        self.chain = shared / "golden/chain_an4"
        test = DataDir(shared / "golden/an4_kaldi/data/test")
        super().__init__(dict(read_archive(self.chain / "test_feats.ark.gz")), test, self.chain / "final.mdl", self.chain / "HCLG.fst",
                         self.chain / "decode/words.txt", repeat)
        self.audio = [read_audio(str(shared / test.wav_scp[utt]))[0] for utt in self.feats]

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
    forward = Nnet3Forward(bench.model.nnet, subsampling=SUBSAMPLING)
    outputs = bench.network("network", lambda utt: forward(bench.feats[utt]))
    bench.search(outputs)
    for name, _, session in onnx_sessions(bench.model, SUBSAMPLING):
        bench.network(name, lambda utt, session=session: session.run(None, {"feats": bench.feats[utt]})[0])
    bench.stream(extractor)


if __name__ == "__main__":
    main()
