"""Pack features and an alignment into the frame stores <store>/train and <store>/dev.

The features are those of the data directory after CMVN (and deltas), as --cmvn-opts and --delta-opts say; targets are the pdfs of
the alignment. About --cv-percent of the utterances, or those of --cv-utts, go to dev, as
they are; their perturbed copies (utt2uniq) go nowhere. With --cv-data, train is all of <data>, and dev that data directory.

With --nj and --job a job packs its share of the utterances into shards of the stores. --nj alone, when all jobs are done, makes the two
stores of these. --append adds the utterances of another data directory to the stores that are there.

Without <ali> the store is for RBMs, which look at no target: all utterances are in train, and those that would be held out in dev too. With
--posteriors it can be trained on; --num-pdfs says how many outputs there are.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.feats.ivector_dir import IvectorDir
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.frames.holdout import hold_out, versions
from pykaldist.frames.shards import JOBS, SHARDS, join, next_batch, shard_name
from pykaldist.frames.store import STORE_DTYPES, Extras, StoreManifest, Unlabelled, most_pairs, pack, read_store_manifest
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.io.line_index import Keys, ParsedLines
from pykaldist.io.lock import locked
from pykaldist.io.posteriors import Posterior, read_posteriors, stored_posteriors
from pykaldist.io.scratch import stored_integers
from pykaldist.io.specifiers import read_matrices, read_paths
from pykaldist.io.tables import MatrixReader, read_lines
from pykaldist.progress import progress
from pykaldist.usage import usage_line

SYSTEM_FILES = ("final.mdl", "tree", "phones.txt")  # that decoding needs beside a network
TOKENS = "tokens.txt"  # of label sequences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with feats.scp and cmvn.scp")
    parser.add_argument("ali", type=Path, nargs="?",
                        help="alignment directory, of steps/align_si.sh, steps/import_ali.sh or Kaldi (default: no alignment)")
    parser.add_argument("store", type=Path, help="folder to write")
    parser.add_argument("--cmvn-opts", default="--norm-vars=true", help="CMVN as a string of options (default: --norm-vars=true)")
    parser.add_argument("--delta-opts", default="--delta-order=0", help="deltas, likewise (default: --delta-order=0: none)")
    parser.add_argument("--cv-percent", type=float, default=10.0, help="percentage of utterances held out (default: 10)")
    parser.add_argument("--cv-utts", type=Path, help="file with the utterances to hold out, one a line, instead")
    parser.add_argument("--cv-data", type=Path, help="data directory that is held out, instead")
    parser.add_argument("--cv-ali", type=Path, help="its alignment directory (default: that of <data>)")
    parser.add_argument("--num-pdfs", type=int, help="outputs of a network where there is no alignment (default: 1)")
    parser.add_argument("--seed", type=int, default=777, help="seed of the choice (default: 777)")
    parser.add_argument("--store-dtype", choices=STORE_DTYPES, default="float32", help="stored features; uint8: 8 bits "
                        "a value, by the rule of Kaldi's compressed matrices (default: float32)")
    parser.add_argument("--nj", type=int, default=1, help="jobs that pack (default: 1)")
    parser.add_argument("--job", type=int, help="pack the share of this job alone (default: join the shards of all jobs)")
    parser.add_argument("--append", choices=("true", "false"), default="false", help="add to the stores that are there (default: false)")
    parser.add_argument("--batch", type=int, help="with --append, pack again what was appended so many-th, for shards that are damaged: "
                                                  "2 for what was appended first, whose shards are 2.1, 2.2 ... (default: append)")
    parser.add_argument("--frame-weights", help="weight of each frame in training: vectors, scp:FILE or ark:FILE")
    parser.add_argument("--posteriors", help="soft targets: posteriors of pdfs, ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("--max-posteriors", type=int, default=0, help="likeliest pdfs of a frame that are kept; 0: all (default: 0)")
    parser.add_argument("--target-feats", help="features to be trained towards with --objective mse: matrices, scp:FILE or ark:FILE "
                                               "(an archive is read into memory)")
    parser.add_argument("--online-ivector-dir", type=Path, help="directory of online i-vectors, which go behind the features of "
                                                                "each frame, for nnet3 networks with the input ivector (default: none)")
    parser.add_argument("--ctc", choices=("phones", "chars"), help="pack label sequences too, for --objective ctc: the alignment's phones, "
                                                                   "or the transcripts' characters")


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.data)
    pipeline = FeaturePipeline.from_options(args.cmvn_opts, args.delta_opts)
    if args.max_posteriors < 0 or (args.max_posteriors and not args.posteriors):
        raise UserError(f"--max-posteriors {args.max_posteriors}: expected a number of pdfs, and --posteriors.")
    _check_jobs(args)
    batch = (args.batch or next_batch(args.store / "train")) if args.append == "true" else 1
    parts = _parts(args, data, pipeline)
    alignment = next(iter(parts.values())).ali
    ivectors = IvectorDir(args.online_ivector_dir) if args.online_ivector_dir else None
    origin = {"data": str(args.data), "ali": str(args.ali) if args.ali else None, "cmvn_opts": args.cmvn_opts,
              "delta_opts": args.delta_opts, "alignment": alignment.provenance, "frame_weights": args.frame_weights,
              "posteriors": args.posteriors, "max_posteriors": args.max_posteriors, "target_feats": args.target_feats,
              "online_ivector_dir": str(args.online_ivector_dir) if args.online_ivector_dir else None,
              **({"cv_data": str(args.cv_data), "cv_ali": str(args.cv_ali or args.ali)} if args.cv_data else {})}
    packing = _Packing(args, pipeline, parts, origin, batch, ivectors)
    if batch > 1:
        packing.check_same_system()
    if args.job:
        with locked(args.store / "train" / SHARDS / shard_name(batch, args.job)):
            packing.pack_shards(args.job)
        return
    with locked(args.store):
        if args.nj == 1 and batch > 1:
            packing.pack_shards(1)
        packing.pack_whole() if args.nj == 1 and batch == 1 else packing.join()
        packing.finish()


def _check_jobs(args: argparse.Namespace) -> None:
    if args.nj < 1 or (args.job is not None and not 1 <= args.job <= args.nj):
        raise UserError(f"--nj {args.nj}, --job {args.job}: expected a positive number of jobs, and one of them.")
    if args.job and args.nj == 1:
        raise UserError("--job 1: one job alone packs the stores whole; leave it out, or give --nj.")
    if args.batch is not None and (args.append != "true" or args.batch < 2):
        raise UserError(f"--batch {args.batch}: expected --append true, and 2 or more; the shards that a store began with are packed again "
                        "without both.")
    if args.append == "true" and not (args.store / "train/manifest.json").is_file():
        raise UserError(f"--append true: there is no store in {args.store}; pack without --append first.")
    if args.ctc and not args.ali:
        raise UserError(f"--ctc {args.ctc} needs an alignment; give <ali>.")
    if args.ctc and args.cv_data:
        raise UserError("--ctc and --cv-data exclude each other: one set of labels is made of one data directory; use --cv-utts.")


@dataclass
class _Part:
    """What goes into one of the two stores."""

    data: DataDir
    ali: AlignmentDir | Unlabelled
    utts: Keys

    def __post_init__(self) -> None:
        if isinstance(self.ali, AlignmentDir):
            self.ali.check_texts(self.data)


def _parts(args: argparse.Namespace, data: DataDir, pipeline: FeaturePipeline) -> dict[str, _Part]:
    """What goes into train and into dev: of all utterances, or of the share of a job."""
    if args.num_pdfs is not None and (args.ali or args.num_pdfs < 1):
        raise UserError(f"--num-pdfs {args.num_pdfs}: expected a positive number, and no alignment, which says how many there are.")
    if args.cv_ali and not (args.cv_data and args.ali):
        raise UserError(f"--cv-ali {args.cv_ali} is the alignment of --cv-data, beside that of <data>; give all of them, or leave it out.")
    chosen = {name: (of, _share(utts, args)) for name, (of, utts) in _chosen(args, data).items()}
    wanted = _in_any(utts for _, utts in chosen.values())

    def alignment(path: Path | None, of: DataDir) -> AlignmentDir | Unlabelled:
        return AlignmentDir(path, args.store, wanted) if path else Unlabelled(lambda utt: pipeline.apply(of, utt), None, args.num_pdfs or 1)

    ali = alignment(args.ali, data)
    if not args.cv_data:
        return {name: _Part(of, ali, utts) for name, (of, utts) in chosen.items()}
    held_out = chosen["dev"][0]
    same = args.cv_ali in (None, args.ali) and isinstance(ali, AlignmentDir)
    cv_ali = ali if same else alignment(args.cv_ali or args.ali, held_out)
    if cv_ali.num_pdfs != ali.num_pdfs:
        raise UserError(f"{args.cv_ali} has {cv_ali.num_pdfs} pdfs, {args.ali} {ali.num_pdfs}; align both with the same model "
                        f"({ALIGNING}).")
    return {"train": _Part(data, ali, chosen["train"][1]), "dev": _Part(held_out, cv_ali, chosen["dev"][1])}


def _chosen(args: argparse.Namespace, data: DataDir) -> dict[str, tuple[DataDir, Keys]]:
    """The utterances of train and of dev, and the data directories that they are of."""
    if args.cv_data:
        if args.cv_utts:
            raise UserError("--cv-data and --cv-utts exclude each other: either says what is held out.")
        return {name: (of, of.utt2spk.chosen(lambda _: True)) for name, of in (("train", data), ("dev", DataDir(args.cv_data)))}
    if args.cv_utts:
        held = {line.split()[0] for line in read_lines(args.cv_utts) if line.split()}
    else:
        held = set() if args.append == "true" and args.cv_percent == 0 else hold_out(data, args.cv_percent, args.seed)
    if unknown := [utt for utt in held if utt not in data.utt2spk]:
        raise UserError(f"{args.cv_utts} lists {len(unknown)} utterances that {data.path} does not have, such as {min(unknown)}; take them "
                        "out of it.")
    watched = args.ali is None and args.posteriors is None
    kept_out = versions(data, held)
    train = data.utt2spk.chosen(lambda utt: watched or not kept_out(utt))
    return {"train": (data, train), "dev": (data, data.utt2spk.chosen(held.__contains__))}


def _share(utts: Keys, args: argparse.Namespace) -> Keys:
    """The utterances of a job: those of all jobs, one after the other, are all."""
    if not args.job:
        return utts
    return utts[len(utts) * (args.job - 1) // args.nj : len(utts) * args.job // args.nj]


def _in_any(lists: Iterable[Keys]) -> Callable[[str], bool]:
    """A function that says whether an utterance is in one of the lists."""
    together = list(lists)
    return lambda utt: any(utt in utts for utts in together)


def _phone_labels(ali: AlignmentDir, folder: Path) -> tuple[Mapping[str, np.ndarray], dict[str, int]]:
    """The label sequences of phones: each utterance's in the order of its alignment, and what stands for the numbers.

    The sequences lie in a nameless file in `folder`.
    """
    if not ali.has_transition_ids or ali.model is None:
        raise UserError(f"--ctc phones: {ali.path} has pdfs without transition-ids, which do not say what the phones are; use --ctc chars.")
    if not (ali.path / "phones.txt").is_file():
        raise UserError(f"--ctc phones: {ali.path}/phones.txt does not exist; copy it from the lang directory of the alignment's model.")
    names = SymbolTable.read(ali.path / "phones.txt")
    phones = sorted({int(phone) for phone in ali.model.tid2phone[1:]})
    labels = stored_integers(folder)
    for utt, tids in ali.labels.items():
        labels.add(utt, phone_segments(tids, ali.model)[0])
    return labels, {"<blk>": 0, **{names.symbol(phone): phone for phone in phones}}


def _char_labels(data: DataDir) -> tuple[Mapping[str, np.ndarray], dict[str, int]]:
    """The label sequences of characters: each utterance's, words parted by <space>, and what stands for the numbers.

    A sequence is made of its transcript when it is asked for.
    """
    characters = {character for words in data.text.values() for word in words for character in word}
    tokens = {"<blk>": 0, "<space>": 1, **{character: number for number, character in enumerate(sorted(characters), 2)}}

    def labels(_: str, line: str) -> np.ndarray:
        return np.array([tokens["<space>" if c == " " else c] for c in " ".join(line.split())], np.int32)

    return ParsedLines(data.lines("text"), labels), tokens


def _table(rspecifier: str | None, wanted: Callable[[str], bool]) -> Mapping[str, np.ndarray] | None:
    if rspecifier is None:
        return None
    path = rspecifier.removeprefix("scp:")
    if path != rspecifier or path.endswith(".scp"):
        return MatrixReader(path)
    return {utt: matrix for utt, matrix in read_matrices(rspecifier) if wanted(utt)}


def _files(rspecifier: str) -> list[str]:
    """The files that a table is in."""
    path = rspecifier.removeprefix("scp:")
    return MatrixReader(path).archives() if path != rspecifier or path.endswith(".scp") else [str(p) for p in read_paths(rspecifier)]


def _posteriors(rspecifier: str, wanted: Callable[[str], bool], folder: Path) -> tuple[Mapping[str, Posterior], int]:
    """The posteriors of some utterances, and the number of pairs of the frame of all utterances that has most.

    The posteriors lie in a nameless file in `folder`.
    """
    kept, most = stored_posteriors(folder), 1
    for utt, posterior in (item for path in read_paths(rspecifier) for item in read_posteriors(path)):
        most = max(most, most_pairs(posterior))
        if wanted(utt):
            kept.add(utt, posterior)
    return kept, most


@dataclass
class _Packing:
    """The packing of stores' parts: by one job, or by several into shards, which are joined. `batch`: 1, or more of what is appended."""

    args: argparse.Namespace
    pipeline: FeaturePipeline
    parts: dict[str, _Part]
    origin: dict[str, object]
    batch: int
    ivectors: IvectorDir | None = None

    def pack_whole(self) -> None:
        """Pack both stores."""
        provenance.forget(self.args.store)
        for name, manifest in self._pack({name: self.args.store / name for name in self.parts}):
            shutil.rmtree(self.args.store / name / SHARDS, ignore_errors=True)
            self._report(self.args.store / name, manifest)

    def pack_shards(self, job: int) -> None:
        """Pack a job's shards of both stores."""
        folders = {name: self.args.store / name / SHARDS / shard_name(self.batch, job) for name in self.parts}
        for name, manifest in self._pack(folders, may_be_empty=True, origin={**self.origin, JOBS: self.args.nj}):
            self._report(folders[name], manifest)

    def join(self) -> None:
        """Make both stores of the shards of all jobs."""
        if self.batch == 1:
            provenance.forget(self.args.store)
        for name in self.parts:
            join(self.args.store / name, self.batch, self.args.nj, self.origin)
            self._report(self.args.store / name, read_store_manifest(self.args.store / name))

    def check_same_system(self) -> None:
        """Check that what is appended is of the features and the model of the stores that are there; raises UserError otherwise."""
        store = self.args.store
        if FeaturePipeline.from_dir(store, nnet3=True) != self.pipeline:
            raise UserError(f"{store} was packed with other --cmvn-opts or --delta-opts; append with the same.")
        if (dtype := read_store_manifest(store / "train").dtype) != self.args.store_dtype:
            raise UserError(f"{store} was packed with --store-dtype {dtype}; append with the same.")
        for name in SYSTEM_FILES:
            own, other = store / name, self.args.ali and self.args.ali / name
            if own.is_file() and other and other.is_file() and provenance.checksum(own) != provenance.checksum(other):
                raise UserError(f"{other} is not that of {store}; align what is appended with the model of the store ({ALIGNING}).")

    def finish(self) -> None:
        """Write what belongs to both stores."""
        args, parts = self.args, self.parts
        self.pipeline.save(args.store, of_network=True)
        for name in SYSTEM_FILES:
            if self.batch == 1:
                (args.store / name).unlink(missing_ok=True)
            if args.ali and (args.ali / name).is_file():
                copy_file(args.ali / name, args.store / name)
        if not args.ctc:
            (args.store / TOKENS).unlink(missing_ok=True)
        tables = (args.frame_weights, args.posteriors, args.target_feats)
        read = [path for rspecifier in tables if rspecifier for path in _files(rspecifier)]
        for part in parts.values():
            read += [*part.data.feats.archives(), *(part.data.cmvn.archives() if part.data.has("cmvn.scp") else [])]
        alignments = [path for ali in {id(part.ali): part.ali for part in parts.values()}.values() if isinstance(ali, AlignmentDir)
                      for path in (*ali.archives, ali.path / "final.mdl")]
        provenance.record(args.store, "steps/nnet/pack.sh", [*provenance.of_archives(read), *alignments],
                          ("train/manifest.json", "dev/manifest.json", TOKENS, "cmvn_opts", "delta_opts", *SYSTEM_FILES),
                          sources=[args.store] if self.batch > 1 else [])

    def _pack(self, folders: Mapping[str, Path], may_be_empty: bool = False,
              origin: dict[str, object] | None = None) -> Iterator[tuple[str, StoreManifest]]:
        """Pack each part into a folder: (its name, its manifest)."""
        extras = self._extras()
        for name, part in self.parts.items():
            stored: Callable[[str], np.ndarray] = partial(self.pipeline.apply, part.data)
            if isinstance(part.ali, Unlabelled):
                part.ali.posteriors, stored = extras.posteriors, part.ali.features
            features = stored if self.ivectors is None else partial(_with_ivectors, stored, self.ivectors)
            yield name, pack(progress(part.utts, f"packing {name}", unit="utt"), features, part.ali.pdfs, part.ali.num_pdfs,
                             folders[name], self.args.store_dtype, origin or self.origin, extras, may_be_empty)

    def _extras(self) -> Extras:
        """What is packed beside features and pdfs."""
        args, wanted = self.args, _in_any(part.utts for part in self.parts.values())
        posteriors, most = _posteriors(args.posteriors, wanted, args.store) if args.posteriors else (None, 0)
        extras = Extras(_table(args.frame_weights, wanted), posteriors, _table(args.target_feats, wanted), args.max_posteriors,
                        most_posteriors=most)
        if args.ctc:
            part = self.parts["train"]
            assert isinstance(part.ali, AlignmentDir)
            extras.labels, tokens = _phone_labels(part.ali, args.store) if args.ctc == "phones" else _char_labels(part.data)
            extras.num_tokens = max(tokens.values()) + 1
            self._write_tokens("".join(f"{name} {number}\n" for name, number in tokens.items()))
        return extras

    def _write_tokens(self, text: str) -> None:
        path = self.args.store / TOKENS
        if self.batch > 1 and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            raise UserError(f"{path} has other labels than what is appended; pack all of it again, with --append false.")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)

    def _report(self, path: Path, manifest: StoreManifest) -> None:
        print(f"{path}: {_summary(manifest)}; {usage_line(manifest.num_frames)}")


def _with_ivectors(features: Callable[[str], np.ndarray], ivectors: IvectorDir, utt: str) -> np.ndarray | str:
    """The features of an utterance (T, dim), with each frame's i-vector behind it; where it has no i-vectors, these words."""
    if utt not in ivectors:
        return f"no i-vectors in {ivectors.path}"
    x = features(utt)
    return np.concatenate([x, ivectors.at_each(utt, len(x))], axis=1)


def _summary(manifest: StoreManifest) -> str:
    text = f"{manifest.num_utts} utterances, {manifest.num_frames} frames of {manifest.dim}, {manifest.num_pdfs} pdfs"
    text += ", frame weights" * manifest.weighted
    text += f", posteriors, up to {manifest.num_posteriors} a frame" * bool(manifest.num_posteriors)
    text += f", target features of {manifest.target_dim}" * bool(manifest.target_dim)
    text += f", {manifest.num_labels} labels of {manifest.num_tokens - 1}" * bool(manifest.num_labels)
    text += f", in {len(manifest.shards)} shards" * bool(manifest.shards)
    if manifest.trimmed:
        text += f", {manifest.trimmed} trimmed by up to 5 frames"
    if manifest.skipped:
        first = next(iter(manifest.skipped))
        text += f", {len(manifest.skipped)} skipped ({first}: {manifest.skipped[first]}, ...)"
    return text
