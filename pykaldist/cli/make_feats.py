"""MFCC, PLP or fbank features, with or without pitch, of one job's share of a data directory; see steps/make_mfcc.sh."""

from __future__ import annotations

import argparse

from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with wav.scp, utt2spk and, optionally, segments")
    parser.add_argument("feat_dir", help="where the archives go")
    parser.add_argument("--kind", choices=("mfcc", "plp", "fbank", "mfcc_pitch", "plp_pitch", "fbank_pitch"), default="mfcc")
    parser.add_argument("--feats-config", help="file with one --option=value a line (default: Kaldi's defaults)")
    parser.add_argument("--pitch-config", help="the same for the pitch (default: Kaldi's defaults)")
    parser.add_argument("--pitch-postprocess-config", help="the same for what is made of the pitch (default: Kaldi's defaults)")
    parser.add_argument("--online-pitch-config", help="options of both in one file, in place of these two")
    parser.add_argument("--paste-length-tolerance", type=int, default=2, help="frames by which pitch and the rest may differ (default: 2)")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--channel", type=int, default=-1, help="channel to read, from 0; -1 expects mono (default: -1)")
    parser.add_argument("--compress", type=boolean, default=False, help="one byte a value (default: false)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the dither, with each utterance's name (default: 0)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.feats.make import extract_part
    from pykaldist.io.datadir import DataDir

    extract_part(DataDir(args.data), args.feat_dir, args.feats_config, args.kind, args.job, args.nj, args.channel,
                 args.compress, args.seed, args.pitch_config, args.pitch_postprocess_config, args.paste_length_tolerance,
                 args.online_pitch_config)
