"""Copy a data directory into other rooms and with noise, by lhotse; see utils/data/augment_data_dir.sh."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from pykaldist.io.augment import augment
from pykaldist.io.datadir import DataDir
from pykaldist.options import add_options, from_args, numbers, option


@dataclass
class AugmentOptions:
    """Rooms and noises."""

    rirs: str = option("", "folder of impulse responses, such as those of OpenSLR 28")
    noises: str = option("", "folder of noises, such as those of OpenSLR 17")
    snrs: str = option("15,10,5", "signal-to-noise ratios in dB, of which each recording gets one")
    prefix: str = option("aug", "what names begin with")
    seed: int = option(0, "of what each recording gets")
    nj: int = option(4, "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory")
    parser.add_argument("new_data", help="data directory to write")
    parser.add_argument("audio", help="folder of the audio to write")
    add_options(parser, AugmentOptions)


def run(args: argparse.Namespace) -> None:
    options = from_args(AugmentOptions, args)
    made = augment(DataDir(args.data), args.new_data, args.audio, options.rirs, options.noises, numbers("snrs", options.snrs),
                   options.prefix, options.seed, options.nj)
    print(f"{len(made.utt2spk)} utterances of {args.data} in {args.new_data}")
