"""Real-time factor of feature extraction on one core, without and with the reading of the audio.

    tests/bench/run.sh mfcc CORPUS/an4/wav        # any folder with wav, flac or sph files of one rate
"""

from __future__ import annotations

import argparse
import statistics
import time

from pykaldist.feats.extract import BATCH_S, Extractor, FbankOptions, MfccOptions
from pykaldist.feats.make import batches
from pykaldist.io.audio import find_audio, read_audio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder with audio")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement (default: 5)")
    args = parser.parse_args()
    paths = find_audio(args.folder)
    rate = read_audio(str(next(iter(paths.values()))))[1]
    audio = [(name, read_audio(str(path))[0]) for name, path in paths.items()]
    seconds = sum(len(samples) for _, samples in audio) / rate
    print(f"{len(audio)} files, {seconds / 60:.1f} min, {rate} Hz, one core, {args.repeats} runs")
    print("features       extraction: median (min-max)   with reading: median (min-max)")
    for name, options in (("mfcc 13", MfccOptions(sample_frequency=rate, use_energy=False)),
                          ("fbank 40", FbankOptions(sample_frequency=rate, num_mel_bins=40))):
        extractor = Extractor(options)
        columns = []
        for source in (lambda: iter(audio), lambda: ((name, read_audio(str(path))[0]) for name, path in paths.items())):
            factors = []
            for _ in range(args.repeats):
                start = time.perf_counter()
                for batch in batches(source(), BATCH_S * rate):
                    extractor.extract(batch)
                factors.append((time.perf_counter() - start) / seconds)
            columns.append(f"{statistics.median(factors):.5f} ({min(factors):.5f}-{max(factors):.5f})")
        print(f"{name:14s} {columns[0]:30s} {columns[1]}")


if __name__ == "__main__":
    main()
