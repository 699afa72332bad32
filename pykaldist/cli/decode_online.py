"""Decode one job's share of a data directory from its audio, as if that still came (what steps/online/nnet3/decode.sh runs)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import add_endpoint_options, endpointing_from
from pykaldist.decode.online_dir import read_online_conf
from pykaldist.decode.pairs import record_decoding
from pykaldist.decode.run import decode_all
from pykaldist.decode.silence_weights import add_silence_weighting_options, silence_weighting_from
from pykaldist.decode.streaming import FirstUtterance, Recogniser
from pykaldist.errors import UserError
from pykaldist.io.audio import AudioError, read_utterances
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.options import add_options, boolean, from_args

ONE_PIECE = 1 << 40  # samples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="directory with HCLG.fst, or HCLr.fst and Gr.fst, and words.txt")
    parser.add_argument("data", type=Path, help="data directory with wav.scp")
    parser.add_argument("decode_dir", type=Path, help="where lat.JOB.gz goes, in a directory of "
                                                             "steps/online/nnet3/prepare_online_decoding.sh")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--iter", default="final", help="the model is ITER.mdl (default: final)")
    parser.add_argument("--online-config", type=Path, help="its options (default: conf/online.conf of the model's directory)")
    parser.add_argument("--frames-per-chunk", type=int, default=20, help="frames that come at once (default: 20)")
    parser.add_argument("--online", type=boolean, default=True, help="false: i-vectors are those of the whole utterance (default: true)")
    parser.add_argument("--per-utt", type=boolean, default=False,
                        help="a speaker's utterances tell nothing of the next for i-vectors (default: false)")
    parser.add_argument("--do-endpointing", type=boolean, default=False, help="an utterance ends at its first endpoint (default: false)")
    parser.add_argument("--post-decode-acwt", type=float, default=1.0, help="factor of the lattices' acoustic costs (default: 1)")
    add_options(parser, DecoderOptions, skip=("determinize_lattice",))
    add_endpoint_options(parser)
    add_silence_weighting_options(parser)


def run(args: argparse.Namespace) -> None:
    from pykaldist.feats.extract import Extractor

    folder = args.decode_dir.parent
    if args.frames_per_chunk < 1 or not args.post_decode_acwt > 0:
        raise UserError("expected --frames-per-chunk of at least 1 and --post-decode-acwt above 0.")
    conf = read_online_conf(args.online_config or folder / "conf/online.conf")
    endpointing = endpointing_from(args, conf.silence_phones) if args.do_endpointing else None
    model = folder / f"{args.iter}.mdl"
    recogniser = Recogniser(folder, args.graph_dir, Extractor(conf.features), from_args(DecoderOptions, args), endpointing, model=model,
                            ivectors=conf.ivectors, cmvn=conf.cmvn, weighting=silence_weighting_from(args, conf.silence_phones))
    chunk = args.frames_per_chunk * conf.features.samples_per_shift if args.online else ONE_PIECE
    decoder = FirstUtterance(recogniser, chunk)
    data = DataDir(args.data)
    utts = data.part(args.job, args.nj)
    if args.job == 1:
        record_decoding(args.decode_dir, args.graph_dir, model)
    items = _audio(data, utts, int(conf.features.sample_frequency), decoder, args.per_utt)
    print(decode_all(decoder, items, args.decode_dir / f"lat.{args.job}.gz", SymbolTable.read(args.graph_dir / "words.txt"), len(utts),
                     post_decode_acwt=args.post_decode_acwt, subsampling=recogniser.forward.subsampling))


def _audio(data: DataDir, utts: list[str], rate: int, decoder: FirstUtterance, per_utt: bool) -> Iterator[tuple[str, np.ndarray]]:
    """The samples of utterances; the decoder is told whose they are."""
    speaker = None
    for utt, samples in read_utterances(data, utts, rate):
        if isinstance(samples, AudioError):
            raise samples
        if per_utt or data.utt2spk[utt] != speaker:
            speaker = data.utt2spk[utt]
            decoder.new_speaker()
        yield utt, samples
