"""A model's Vosk export beside the decoder here, on a test set: in how many utterances they find the same words, and both word error rates.

    PYKALDIST_VOSK_PYTHON=.../bin/python tests/bench/run.sh vosk MODEL GRAPH conf/mfcc_hires.conf DATA [--extractor DIR]

The Python has the package vosk. Both take a quarter of a second of audio at once, and know nothing of a speaker's other utterances. As Vosk
does, the decoder here goes on after 0.2 seconds, has the network compute 24 frames at once, and counts silence a thousandth for i-vectors.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from vosk_words import Words, both_ways, compare, of_vosk

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.silence_weights import SilenceWeighting
from pykaldist.decode.streaming import Recogniser, Recognition
from pykaldist.decode.vosk import VoskOptions, export_vosk
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import read_extractor
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress

SILENCE_WEIGHT = 1e-3  # of frames of silence for i-vectors, Vosk's
FRAMES_PER_CHUNK = 24  # of the network, Kaldi's
CHUNK = 4000  # samples
STEP = 3200  # of a chunk, that Vosk takes at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory of a chain model")
    parser.add_argument("graph", type=Path, help="directory of its graph")
    parser.add_argument("config", help="config of the features")
    parser.add_argument("data", help="data directory with wav.scp and text")
    parser.add_argument("--extractor", type=Path, help="directory of the i-vector extractor, for a network that takes i-vectors")
    parser.add_argument("--lexicon", type=Path, help="lexiconp.txt: the pronunciations, for words that sound alike")
    args = parser.parse_args()
    data = DataDir(args.data)
    samples = {utt: read_audio(data.wav_scp[utt])[0] for utt in data.utterances()}
    python = Path(os.environ.get("PYKALDIST_VOSK_PYTHON", sys.executable))
    with tempfile.TemporaryDirectory() as folder:
        export_vosk(args.model, args.graph, Path(folder), args.extractor, None, VoskOptions(args.config))
        theirs = of_vosk(python, Path(folder), samples)
    ivectors = read_extractor(args.extractor, OnlineOptions(max_count=100), PosteriorOptions()) if args.extractor else None  # as Vosk's
    features, decoding = Extractor(read_conf(MfccOptions, args.config)), DecoderOptions(15.0, 8.0, 7000, 200, 1.0)
    silence = {int(phone) for phone in (args.graph / "phones/silence.csl").read_text().strip().split(":")}
    recogniser = Recogniser(args.model, args.graph, features, decoding, None, ivectors=ivectors,
                            weighting=SilenceWeighting(silence, SILENCE_WEIGHT), frames_per_chunk=FRAMES_PER_CHUNK)
    best, least = Words(), Words()
    for utt, one in progress(samples.items(), "recognising", unit="utt"):
        recognition = Recognition(recogniser)
        for begin in range(0, len(one), CHUNK):
            for first, end in ((begin, begin + STEP), (begin + STEP, begin + CHUNK)):
                recognition.accept(one[first:min(end, len(one))])
        lattice = recognition.finish()[-1].lattice
        assert lattice is not None
        best[utt], least[utt] = both_ways(lattice, recogniser.words, decoding.lattice_beam)
    compare(data, samples, theirs, {"best path": best, "least expected errors": least}, args.lexicon)


if __name__ == "__main__":
    main()
