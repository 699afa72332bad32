"""Make a folder of frame stores of some utterances of another, without a copy of their frames.

The store train of <out> has those utterances of <store>/train that are in the list, in the order of <store>. Its dev has all of
<store>/dev, or, with --dev-utt-list, those in that list. The frames stay where they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli.combine_stores import OF_ALL, PARTS, check_apart, copy_files
from pykaldist.frames.shards import combine, subset
from pykaldist.frames.store import FrameStore
from pykaldist.io import provenance
from pykaldist.io.lock import locked
from pykaldist.io.tables import read_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dev-utt-list", type=Path, help="the utterances of dev, likewise (default: all)")
    parser.add_argument("store", type=Path, help="folder with the stores train and dev")
    parser.add_argument("utt_list", type=Path, help="file with the utterances of train in its first column")
    parser.add_argument("out", type=Path, help="folder to write")


def run(args: argparse.Namespace) -> None:
    check_apart(args.out, [args.store])
    provenance.check(args.store)
    with locked(args.out):
        provenance.forget(args.out)
        for part, path in zip(PARTS, (args.utt_list, args.dev_utt_list), strict=True):
            if path is None:
                manifest = combine(args.out / part, [args.store / part])
            else:
                utts = [line.split()[0] for line in read_lines(path) if line.split()]
                manifest = subset(args.out / part, FrameStore(args.store / part), utts)
            print(f"{args.out / part}: {manifest.num_utts} utterances, {manifest.num_frames} frames in {len(manifest.shards)} shards")
        copy_files(args.out, args.store)
        lists = [path for path in (args.utt_list, args.dev_utt_list) if path is not None]
        provenance.record(args.out, "pykaldist subset-store", [*(args.store / part / "manifest.json" for part in PARTS), *lists],
                          [f"{part}/manifest.json" for part in PARTS] + list(OF_ALL), sources=[args.store])
