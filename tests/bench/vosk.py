"""A model's Vosk export beside the decoder here, on a test set: in how many utterances they find the same words, and both word error rates.

    PYKALDIST_VOSK_PYTHON=.../bin/python tests/bench/run.sh vosk MODEL GRAPH conf/mfcc_hires.conf DATA [--extractor DIR]

The Python has the package vosk. Both take a quarter of a second of audio at once, and know nothing of a speaker's other utterances.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import kaldialign
import numpy as np

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.paths import best_path
from pykaldist.decode.streaming import FirstUtterance, Recogniser
from pykaldist.decode.vosk import VoskOptions, export_vosk
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import read_extractor
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress

GRAPH_SCALE = 0.9  # by which Vosk multiplies the costs of the graph in its lattices
CHUNK = 4000  # samples


def vosks_words(model: Path, samples: dict[str, np.ndarray], folder: Path) -> dict[str, list[str]]:
    """The words that Vosk finds in recordings with its model directory."""
    for utt, one in samples.items():
        one.astype(np.int16).tofile(folder / f"{utt}.raw")
    script = Path(__file__).parents[1] / "decode/recognise_with_vosk.py"
    command = [os.environ.get("PYKALDIST_VOSK_PYTHON", sys.executable), script, model, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory of a chain model")
    parser.add_argument("graph", type=Path, help="directory of its graph")
    parser.add_argument("config", help="config of the features")
    parser.add_argument("data", help="data directory with wav.scp and text")
    parser.add_argument("--extractor", type=Path, help="directory of the i-vector extractor, for a network that takes i-vectors")
    args = parser.parse_args()
    data = DataDir(args.data)
    samples = {utt: read_audio(data.wav_scp[utt])[0] for utt in data.utterances()}
    with tempfile.TemporaryDirectory() as folder:
        export_vosk(args.model, args.graph, Path(folder) / "vosk", args.extractor, None, VoskOptions(args.config))
        (Path(folder) / "audio").mkdir()
        theirs = vosks_words(Path(folder) / "vosk", samples, Path(folder) / "audio")
    ivectors = read_extractor(args.extractor, OnlineOptions(max_count=100), PosteriorOptions()) if args.extractor else None  # as Vosk's
    features, decoding = Extractor(read_conf(MfccOptions, args.config)), DecoderOptions(15.0, 8.0, 7000, 200, 1.0)
    recogniser = Recogniser(args.model, args.graph, features, decoding, None, ivectors=ivectors)
    ours = {}
    for utt in progress(samples, "recognising", unit="utt"):
        lattice = FirstUtterance(recogniser, CHUNK).decode(samples[utt])
        words = [] if lattice is None else best_path(lattice, 1.0, GRAPH_SCALE).words
        ours[utt] = [recogniser.words.symbol(word) for word in words]
    total = sum(len(data.text[utt]) for utt in samples)
    for name, found in (("here", ours), ("Vosk", theirs)):
        errors = sum(kaldialign.edit_distance(list(data.text[utt]), found[utt])["total"] for utt in samples)
        print(f"{name}: {100 * errors / total:.2f} % of {total} words wrong")
    print(f"the same words in {sum(ours[utt] == theirs[utt] for utt in samples)} of {len(samples)} utterances")


if __name__ == "__main__":
    main()
