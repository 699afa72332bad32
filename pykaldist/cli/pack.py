"""Pack features and an alignment into the frame stores <store>/train and <store>/dev.

The features are those of the data directory after CMVN (and deltas), as --cmvn-opts and --delta-opts say; targets are the pdfs of
the alignment. About --cv-percent of the utterances, or those of --cv-utts, go to dev, as
they are; their perturbed copies (utt2uniq) go nowhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.frames.holdout import hold_out
from pykaldist.frames.store import Extras, Manifest, pack
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.io.lock import locked
from pykaldist.io.posteriors import Posterior, read_posteriors
from pykaldist.io.specifiers import read_matrices, read_paths
from pykaldist.io.tables import MatrixReader, read_lines
from pykaldist.progress import progress

SYSTEM_FILES = ("final.mdl", "tree", "phones.txt")  # that decoding needs beside a network


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with feats.scp and cmvn.scp")
    parser.add_argument("ali", type=Path, help="alignment directory, of steps/align_si.sh, steps/import_ali.sh or Kaldi")
    parser.add_argument("store", type=Path, help="folder to write")
    parser.add_argument("--cmvn-opts", default="--norm-vars=true", help="CMVN as a string of options (default: --norm-vars=true)")
    parser.add_argument("--delta-opts", default="--delta-order=0", help="deltas, likewise (default: --delta-order=0: none)")
    parser.add_argument("--cv-percent", type=float, default=10.0, help="percentage of utterances held out (default: 10)")
    parser.add_argument("--cv-utts", type=Path, help="file with the utterances to hold out, one a line, instead")
    parser.add_argument("--seed", type=int, default=777, help="seed of the choice (default: 777)")
    parser.add_argument("--store-dtype", choices=("float32", "float16"), default="float32", help="stored features (default: float32)")
    parser.add_argument("--frame-weights", help="weight of each frame in training: vectors, scp:FILE or ark:FILE")
    parser.add_argument("--posteriors", help="soft targets: posteriors of pdfs, ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("--max-posteriors", type=int, default=0, help="likeliest pdfs of a frame that are kept; 0: all (default: 0)")
    parser.add_argument("--target-feats", help="features to be trained towards with --objective mse: matrices, scp:FILE or ark:FILE "
                                               "(an archive is read into memory)")
    parser.add_argument("--ctc", choices=("phones", "chars"), help="pack label sequences too, for --objective ctc: the alignment's phones, "
                                                                   "or the transcripts' characters")


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.data)
    ali = AlignmentDir(args.ali)
    pipeline = FeaturePipeline.from_options(args.cmvn_opts, args.delta_opts)
    held = {line.split()[0] for line in read_lines(args.cv_utts) if line.split()} if args.cv_utts else \
        hold_out(data, args.cv_percent, args.seed)
    if unknown := held - set(data.utt2spk):
        raise UserError(f"{args.cv_utts} lists {len(unknown)} utterances that {data.path} does not have, such as {min(unknown)}.")
    uniq = data.utt2uniq
    chosen = {"train": [u for u in data.utterances() if uniq[u] not in held], "dev": [u for u in data.utterances() if u in held]}
    origin = {"data": str(args.data), "ali": str(args.ali), "cmvn_opts": args.cmvn_opts, "delta_opts": args.delta_opts,
              "alignment": ali.provenance, "frame_weights": args.frame_weights, "posteriors": args.posteriors,
              "max_posteriors": args.max_posteriors, "target_feats": args.target_feats}
    if args.max_posteriors < 0 or (args.max_posteriors and not args.posteriors):
        raise UserError(f"--max-posteriors {args.max_posteriors}: expected a number of pdfs, and --posteriors.")
    extras = Extras(_table(args.frame_weights), _posteriors(args.posteriors), _table(args.target_feats), args.max_posteriors)
    if args.ctc:
        extras.labels, tokens = _phone_labels(ali) if args.ctc == "phones" else _char_labels(data)
        extras.num_tokens = max(tokens.values()) + 1
    with locked(args.store):
        provenance.forget(args.store)
        if args.ctc:
            args.store.mkdir(parents=True, exist_ok=True)
            write_text(args.store / "tokens.txt", "".join(f"{name} {number}\n" for name, number in tokens.items()))
        else:
            (args.store / "tokens.txt").unlink(missing_ok=True)
        _pack(args, pipeline, data, ali, extras, chosen, origin)


def _phone_labels(ali: AlignmentDir) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The label sequences of phones: each utterance's in the order of its alignment, and what stands for the numbers."""
    if not ali.has_transition_ids or ali.model is None:
        raise UserError(f"--ctc phones: {ali.path} has pdfs without transition-ids, which do not say what the phones are; use --ctc chars.")
    if not (ali.path / "phones.txt").is_file():
        raise UserError(f"--ctc phones: {ali.path}/phones.txt does not exist; copy it from the lang directory of the alignment's model.")
    names = SymbolTable.read(ali.path / "phones.txt")
    phones = sorted({int(phone) for phone in ali.model.tid2phone[1:]})
    model = ali.model
    return ({utt: phone_segments(tids, model)[0] for utt, tids in ali.labels.items()},
            {"<blk>": 0, **{names.symbol(phone): phone for phone in phones}})


def _char_labels(data: DataDir) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The label sequences of characters: each utterance's, words parted by <space>, and what stands for the numbers."""
    texts = {utt: [c if c != " " else "<space>" for c in " ".join(words)] for utt, words in data.text.items()}
    tokens = {"<blk>": 0, "<space>": 1}
    for name in sorted({c for text in texts.values() for c in text} - {"<space>"}):
        tokens[name] = len(tokens)
    return {utt: np.array([tokens[c] for c in text], np.int32) for utt, text in texts.items()}, tokens


def _table(rspecifier: str | None) -> Mapping[str, np.ndarray] | None:
    if rspecifier is None:
        return None
    path = rspecifier.removeprefix("scp:")
    return MatrixReader(path) if path != rspecifier or path.endswith(".scp") else dict(read_matrices(rspecifier))


def _files(rspecifier: str) -> list[str]:
    """The files that a table is in."""
    path = rspecifier.removeprefix("scp:")
    return MatrixReader(path).archives() if path != rspecifier or path.endswith(".scp") else [str(p) for p in read_paths(rspecifier)]


def _posteriors(rspecifier: str | None) -> Mapping[str, Posterior] | None:
    return None if rspecifier is None else dict(item for path in read_paths(rspecifier) for item in read_posteriors(path))


def _pack(args: argparse.Namespace, pipeline: FeaturePipeline, data: DataDir, ali: AlignmentDir, extras: Extras,
          chosen: dict[str, list[str]], origin: dict[str, object]) -> None:
    for name, utts in chosen.items():
        manifest = pack(progress(utts, f"packing {name}", unit="utt"), lambda utt: pipeline.apply(data, utt), ali.pdfs, ali.num_pdfs,
                        args.store / name, args.store_dtype, origin, extras)
        print(f"{args.store / name}: {_summary(manifest)}")
    pipeline.save(args.store)
    for name in SYSTEM_FILES:
        if (args.ali / name).is_file():
            copy_file(args.ali / name, args.store / name)
    read = [path for rspecifier in (args.frame_weights, args.posteriors, args.target_feats) if rspecifier for path in _files(rspecifier)]
    cmvn = data.cmvn.archives() if data.has("cmvn.scp") else []
    provenance.record(args.store, "steps/nnet/pack.sh",
                      [*provenance.of_archives([*data.feats.archives(), *cmvn, *read]), *ali.archives, args.ali / "final.mdl"],
                      ("train/manifest.json", "dev/manifest.json", "tokens.txt", "cmvn_opts", "delta_opts", *SYSTEM_FILES))


def _summary(manifest: Manifest) -> str:
    text = f"{manifest.num_utts} utterances, {manifest.num_frames} frames of {manifest.dim}, {manifest.num_pdfs} pdfs"
    text += ", frame weights" * ("weights.bin" in manifest.checksums)
    text += f", posteriors, up to {manifest.num_posteriors} a frame" * bool(manifest.num_posteriors)
    text += f", target features of {manifest.target_dim}" * bool(manifest.target_dim)
    text += f", {manifest.num_labels} labels of {manifest.num_tokens - 1}" * bool(manifest.num_labels)
    if manifest.trimmed:
        text += f", {manifest.trimmed} trimmed by up to 5 frames"
    if manifest.skipped:
        first = next(iter(manifest.skipped))
        text += f", {len(manifest.skipped)} skipped ({first}: {manifest.skipped[first]}, ...)"
    return text
