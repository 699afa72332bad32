"""Real-time factor of pitch extraction on one core.

    tests/bench/run.sh pitch CORPUS/an4/wav 100        # any folder with wav, flac or sph files of one rate; how many of them
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from pykaldist.feats.pitch import PitchExtractor, PitchOptions
from pykaldist.io.audio import read_audio


def main() -> None:
    paths = sorted(path for path in Path(sys.argv[1]).rglob("*") if path.suffix in (".wav", ".flac", ".sph"))
    audio = [read_audio(str(path)) for path in paths[:int(sys.argv[2]) if len(sys.argv) > 2 else 200]]
    rate = audio[0][1]
    pitch = PitchExtractor(PitchOptions(sample_frequency=rate))
    pitch.extract("warm", audio[0][0])
    factors = []
    for _ in range(5):
        begin = time.process_time()
        for number, (samples, _) in enumerate(audio):
            pitch.extract(str(number), samples)
        factors.append((time.process_time() - begin) / (sum(len(samples) for samples, _ in audio) / rate))
    print(f"pitch, {rate:g} Hz, {len(audio)} utterances: real-time factor {statistics.median(factors):.5f} ({min(factors):.5f} to "
          f"{max(factors):.5f}), CPU time of one core")


main()
