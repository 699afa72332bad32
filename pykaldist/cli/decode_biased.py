"""Decode one job's share of a data directory with language models biased towards its transcripts (for steps/cleanup)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.acoustic import GmmModel
from pykaldist.decode.biased_lm import BiasedGraphs, BiasedLmOptions, common_words
from pykaldist.decode.ctm import WordTimer
from pykaldist.decode.decoder import DecoderOptions
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, from_args
from pykaldist.score.cleanup import decoded, edited, write_edits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with features and transcripts")
    parser.add_argument("lang", type=Path, help="language directory")
    parser.add_argument("src", type=Path, help="directory of a GMM system")
    parser.add_argument("folder", type=Path, metavar="dir", help="where ctm_edits.JOB goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--transform-dir", type=Path, help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    parser.add_argument("--frame-length", type=float, default=0.01, help="seconds from frame to frame (default: 0.01)")
    add_options(parser, BiasedLmOptions)
    add_options(parser, DecoderOptions, skip=("determinize_lattice",))


def run(args: argparse.Namespace) -> None:
    data, lang, lm_options = DataDir(args.data), LangDir(args.lang), from_args(BiasedLmOptions, args)
    model = read_transition_model(args.src / "final.mdl")
    common = common_words((lang.word_ids(words)[0] for words in data.text.values()), lm_options.top_n_words)
    graphs = BiasedGraphs(lang, read_tree(args.src / "tree"), model, common, lm_options)
    acoustic = GmmModel(args.src, None, args.transform_dir)
    found = decoded(data, data.part(args.job, args.nj), lang, graphs, acoustic, WordTimer(lang, model), lm_options,
                    from_args(DecoderOptions, args))
    count = write_edits(args.folder / f"ctm_edits.{args.job}", edited(found, data, lang), args.frame_length)
    print(f"{count} utterances in {args.folder}/ctm_edits.{args.job}")
