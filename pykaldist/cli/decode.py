"""Decode one job's share of a data directory into lattices (what steps/decode.sh runs).

The model is the one in the parent directory of <decode-dir>, as in Kaldi, unless options name another.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pykaldist.cli._nnet3_chunks import add_nnet3_options, nnet3_options
from pykaldist.decode.acoustic import AcousticModel, NetworkFiles, load_acoustic_model, read_subsampling
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.kept import KeptLattices, fingerprint
from pykaldist.decode.lazy_graph import BiglmDecoder
from pykaldist.decode.lookahead import read_decoder
from pykaldist.decode.lookahead_graph import graph_files, is_lookahead
from pykaldist.decode.pairs import check_graph, record_decoding
from pykaldist.decode.run import decode_all
from pykaldist.decode.search_graph import read_search_graph
from pykaldist.decode.sgmm import GSELECT, SgmmModel
from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.speaker_vectors import read_speaker_vectors
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import MatrixReader
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="directory with HCLG.fst, or HCLr.fst and Gr.fst, and words.txt")
    parser.add_argument("data", type=Path, help="data directory with features")
    parser.add_argument("decode_dir", type=Path, help="where lat.JOB.gz goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--srcdir", type=Path, help="directory of the model (default: that above <decode-dir>)")
    parser.add_argument("--model", type=Path, help="GMM to decode with, or the transition model beside a network (default: the directory's "
                                                   "final.mdl)")
    parser.add_argument("--nnet", type=Path, help="network to decode with, final.pt or nnet1's (default: the directory's)")
    parser.add_argument("--feature-transform", type=Path, help="of an nnet1 network (default: the directory's final.feature_transform)")
    parser.add_argument("--class-frame-counts", type=Path, help="counts of pdfs, for its priors (default: the directory's)")
    parser.add_argument("--transform-dir", type=Path, help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    parser.add_argument("--fmpe", type=Path, help="fMMI's transform of a GMM's features, such as final.fmpe (default: none)")
    parser.add_argument("--ngselect", type=int, default=2, help="Gaussians of its UBM in a frame, as in training (default: 2)")
    parser.add_argument("--gselect", type=int, default=GSELECT, help="Gaussians of a subspace model in a frame (default: 15)")
    parser.add_argument("--spk-vecs", type=Path, help="directory with the speakers' vectors, vecs.*, for a subspace model (default: none)")
    parser.add_argument("--resume", type=boolean, default=False, help="go on where a run of the same was ended; failed.JOB lists the "
                        "utterances without a lattice (default: false)")
    parser.add_argument("--post-decode-acwt", type=float, default=1.0,
                        help="factor of the lattices' acoustic costs; 10 for chain models, which are decoded with --acwt 1 (default: 1)")
    add_nnet3_options(parser)
    parser.add_argument("--old-lm", type=Path, help="G.fst of the graph, whose costs are taken off in the search; with --new-lm")
    parser.add_argument("--new-lm", type=Path, help="G.fst, of the same words, whose costs are put on in its place (default: neither)")
    parser.add_argument("--num-threads", type=int, default=1, help="utterances that are searched at a time, over one graph in memory "
                        "(default: 1)")
    parser.add_argument("--lookahead", type=boolean, default=False, help="compose HCLr.fst and Gr.fst in the search, although there is an "
                        "HCLG.fst (default: false)")
    add_options(parser, DecoderOptions)
    add_options(parser, ForwardOptions)


def run(args: argparse.Namespace) -> None:
    if not args.post_decode_acwt > 0:
        raise UserError(f"--post-decode-acwt {args.post_decode_acwt}: expected a number above 0.")
    if args.num_threads < 1:
        raise UserError(f"--num-threads {args.num_threads}: expected a positive number.")
    if (args.old_lm is None) != (args.new_lm is None):
        raise UserError("--old-lm and --new-lm belong together: the graph's G.fst and the one that takes its place.")
    if args.new_lm is not None and (args.lookahead or is_lookahead(args.graph_dir)):
        raise UserError(f"--old-lm and --new-lm go with HCLG.fst, and {args.graph_dir} is composed with Gr.fst in the search; make a graph "
                        "of the old language model with utils/mkgraph.sh.")
    folder = args.srcdir or args.decode_dir.parent
    mdl = args.model or folder / "final.mdl"
    check_graph(args.graph_dir, mdl)
    files = NetworkFiles(args.nnet, args.feature_transform, args.class_frame_counts)
    model = load_acoustic_model(folder, args.model, args.transform_dir, from_args(ForwardOptions, args), args.job, files,
                                args.fmpe, args.ngselect, nnet3_options(args), args.gselect)
    if args.spk_vecs is not None:
        if not isinstance(model, SgmmModel):
            raise UserError(f"--spk-vecs {args.spk_vecs}: {mdl} is no subspace model; leave it out.")
        model.take_vectors(read_speaker_vectors(args.spk_vecs))
    data = DataDir(args.data)
    utts, kept = data.part(args.job, args.nj), None
    if args.resume:
        kept = KeptLattices(args.decode_dir, args.job, _key(args, folder, mdl, data, utts))
        failed = f", {len(kept.failed)} have failed" * bool(kept.failed)
        print(f"{len(kept.done)} of {len(utts)} utterances have their lattices already{failed}")
    if args.job == 1:
        record_decoding(args.decode_dir, args.graph_dir, mdl, [path for path in (args.fmpe, args.old_lm, args.new_lm) if path])
    if kept is None or not kept.finished:
        words = SymbolTable.read(args.graph_dir / "words.txt")
        decoder = _decoder(args, model.tid2pdf, words)
        others = [decoder.another() for _ in range(args.num_threads - 1)]
        left = utts if kept is None else kept.left(utts)
        print(decode_all(decoder, _scored(model, data, left, kept), args.decode_dir / f"lat.{args.job}.gz", words, len(left), kept,
                         args.post_decode_acwt, read_subsampling(folder), others))
    if kept is not None:
        if not kept.finished:
            kept.finish()
        write_text(args.decode_dir / f"failed.{args.job}", "".join(f"{utt} {why}\n" for utt, why in kept.failed.items()))


def _decoder(args: argparse.Namespace, tid2pdf: np.ndarray, words: SymbolTable) -> LatticeDecoder:
    """The decoder of the graph; with another language model, the one that puts its costs on while it searches."""
    options = from_args(DecoderOptions, args)
    if args.new_lm is None:
        return read_decoder(args.graph_dir, tid2pdf, options, args.lookahead)
    graph = read_search_graph(args.graph_dir, tid2pdf)
    if "#0" not in words:
        raise UserError(f"{args.graph_dir}/words.txt has no #0, which back-off arcs of language models take; make the graph again "
                        "(utils/mkgraph.sh).")
    models = Fst.read(args.old_lm), Fst.read(args.new_lm)
    for path, fst in zip((args.old_lm, args.new_lm), models, strict=True):
        if fst.num_arcs and fst.ilabel.max() >= len(words):
            raise UserError(f"{path} has words up to number {fst.ilabel.max()} where {args.graph_dir}/words.txt has {len(words)}; make it "
                            "with the words.txt of the graph (utils/format_lm.sh).")
    return BiglmDecoder(graph, tid2pdf, options, *models, words["#0"])


def _scored(model: AcousticModel, data: DataDir, utts: Sequence[str], kept: KeptLattices | None) -> Iterator[tuple[str, np.ndarray]]:
    """The log-likelihoods of utterances; where lattices are kept, one that has none is left out, and kept as failed."""
    for utt in utts:
        try:
            feats = model.features(data, utt)
            scores = model.utterance_loglikes(data, utt, feats) if isinstance(model, SgmmModel) else model.loglikes(feats)
        except UserError as error:
            if kept is None:
                raise
            kept.fail(utt, str(error))
            print(f"WARNING: {error}")
            continue
        yield utt, scores


def _key(args: argparse.Namespace, folder: Path, mdl: Path, data: DataDir, utts: Sequence[str]) -> str:
    """The checksum of all that the lattices of a job depend on."""
    own = ("cmvn_opts", "delta_opts", "splice_opts", "final.mat", "final.pt", "final.nnet", "final.feature_transform",
           "ali_train_pdf.counts")
    ivectors = []
    if args.online_ivector_dir is not None:
        table = args.online_ivector_dir / "ivector_online.scp"
        ivectors = [args.online_ivector_dir / "ivector_period", *provenance.of_archives(MatrixReader(table).archives())]
    options = (args.nnet, args.feature_transform, args.class_frame_counts, args.fmpe, args.old_lm, args.new_lm)
    named = [path for path in options if path is not None]
    transforms = sorted(args.transform_dir.glob("trans.*")) if args.transform_dir is not None else []
    vectors = sorted(args.spk_vecs.glob("vecs.*")) if args.spk_vecs is not None else []
    files = [mdl, *graph_files(args.graph_dir), *(folder / name for name in own), *named, *transforms, *vectors, *ivectors,
             data.path / "cmvn.scp", *provenance.of_archives(data.feats.archives())]
    return fingerprint(files, utts, from_args(DecoderOptions, args), from_args(ForwardOptions, args), args.ngselect, args.gselect,
                       args.post_decode_acwt, args.frames_per_chunk, args.lookahead)
