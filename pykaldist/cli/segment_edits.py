"""Make a data directory of the parts of utterances that say what is written (for steps/cleanup/clean_and_segment_data.sh)."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from pykaldist.io.datadir import DataDir
from pykaldist.io.datadir_copies import subsegment_data_dir
from pykaldist.io.durations import utt2dur
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_map
from pykaldist.options import add_options, from_args
from pykaldist.score.cleanup import edits_of_jobs, write_segments
from pykaldist.score.good_segments import SegmentOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory that was decoded (pykaldist decode-biased)")
    parser.add_argument("lang", type=Path, help="language directory")
    parser.add_argument("folder", type=Path, metavar="dir", help="directory with ctm_edits.*; gets segments, text, ctm_edits.segmented, "
                                                                 "word_stats.txt")
    parser.add_argument("new_data", type=Path, metavar="new-data", help="data directory to write")
    add_options(parser, SegmentOptions)


def run(args: argparse.Namespace) -> None:
    data, options = DataDir(args.data), from_args(SegmentOptions, args)
    edits = edits_of_jobs(args.folder, options.frame_length)
    made = write_segments(args.folder, edits, LangDir(args.lang).oov, len(data.utt2spk), options)
    seconds = utt2dur(data)
    padding, _ = Counter(round(seconds[utt] - row[-1].end * options.frame_length, 3) for utt, row in edits.items()).most_common(1)[0]
    segments = {new: (utt, float(begin), float(end))
                for new, (utt, begin, end) in ((new, rest.split()) for new, rest in read_map(args.folder / "segments").items())}
    subsegment_data_dir(data, segments, args.new_data, read_map(args.folder / "text"), max(0.0, padding))
    print(f"SUMMARY: {made}")
