"""The time of i-vectors, online and offline, beside that of the MFCCs that they are made of, one core, by turns, with reading and writing.

    tests/bench/run.sh ivectors DATA_HIRES EXTRACTOR conf/mfcc_hires.conf     # a data directory with features, an extractor's directory
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from pykaldist.feats.make import extract_part
from pykaldist.hmm.ivector.offline import OfflineOptions, extract_offline_part
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import extract_online_part, read_extractor
from pykaldist.io.datadir import DataDir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data directory with wav.scp and high-resolution features")
    parser.add_argument("extractor", help="directory of the extractor")
    parser.add_argument("config", help="config of the features")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement (default: 5)")
    args = parser.parse_args()
    data, options, posteriors = DataDir(args.data), OnlineOptions(), PosteriorOptions()
    model = read_extractor(args.extractor, options, posteriors).extractor
    times: dict[str, list[float]] = {"MFCC": [], "online": [], "offline": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.repeats + 1):  # the first run compiles kernels and fills caches
            for name, run in (("MFCC", lambda: extract_part(data, folder, args.config, "mfcc", 1, 1)),
                              ("online", lambda: extract_online_part(data.path, args.extractor, folder, options, posteriors)),
                              ("offline", lambda: extract_offline_part(data, read_extractor(args.extractor, options, posteriors),
                                                                       Path(folder), OfflineOptions()))):
                start = time.process_time()
                run()
                if number:
                    times[name].append(time.process_time() - start)
    print(f"{len(data.utterances())} utterances; {model.num_gauss} Gaussians, i-vectors of dimension {model.dim}; CPU seconds, "
          f"{args.repeats} runs")
    for name, values in times.items():
        print(f"{name:10s} {statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})")
    for name in ("online", "offline"):
        print(f"ratio of the medians, {name}: {statistics.median(times[name]) / statistics.median(times['MFCC']):.2f}")


if __name__ == "__main__":
    main()
