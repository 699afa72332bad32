"""Pack lhotse's cuts and an alignment into the frame stores <store>/train and <store>/dev.

<cuts> is a manifest of cuts (*.jsonl.gz) or a shar folder, read one cut after the other. What the cuts say is done while they are read:
other speeds and volumes, rooms, noises (CutSet.perturb_speed, reverb_rir, mix), so that no audio is written. Features are made as --kind
and --feats-config say, or with --stored-features true those that are stored with the cuts. A cut is an utterance with one supervision. It
is aligned under its own name, or as the utterance that it is a copy of with the same frames (its name without _vp, _rvb, _wpe; the first
track of a mix); at another speed it must be aligned by itself, as <name>_sp0.9 or Kaldi's sp0.9-<name>.

About --cv-percent of the utterances go to dev, as they are; their copies go nowhere. With --cv-cuts, train is all of <cuts>, and dev those.
Where --cmvn-opts asks for means, the features are made twice: for the speakers' statistics, and for the store.
"""

from __future__ import annotations

import argparse
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.cli.pack import SYSTEM_FILES
from pykaldist.errors import UserError
from pykaldist.feats.cuts import CutFeatures
from pykaldist.feats.extract import KINDS, Extractor
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.frames.shards import SHARDS
from pykaldist.frames.store import STORE_DTYPES, pack
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.conf import read_conf
from pykaldist.io.cuts import aligned_names, read_cuts, source, utterances
from pykaldist.io.lock import locked
from pykaldist.options import boolean
from pykaldist.progress import progress
from pykaldist.usage import heard, usage_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cuts", type=Path, help="lhotse's manifest of cuts, or a shar folder")
    parser.add_argument("ali", type=Path, help="alignment directory of the utterances")
    parser.add_argument("store", type=Path, help="folder to write")
    parser.add_argument("--kind", choices=tuple(KINDS), default="mfcc", help="features to make (default: mfcc)")
    parser.add_argument("--feats-config", type=Path, help="their options, one --option=value a line (default: Kaldi's defaults)")
    parser.add_argument("--stored-features", type=boolean, default=False, help="take those that the cuts have (default: false)")
    parser.add_argument("--cmvn-opts", default="--norm-vars=true", help="CMVN as a string of options (default: --norm-vars=true)")
    parser.add_argument("--delta-opts", default="--delta-order=0", help="deltas, likewise (default: --delta-order=0: none)")
    parser.add_argument("--cv-percent", type=float, default=10.0, help="percentage of utterances held out (default: 10)")
    parser.add_argument("--cv-cuts", type=Path, help="cuts that are held out, instead")
    parser.add_argument("--store-dtype", choices=STORE_DTYPES, default="float32", help="stored features (default: float32)")
    parser.add_argument("--seed", type=int, default=777, help="seed of the choice, and of the dither (default: 777)")


def run(args: argparse.Namespace) -> None:
    if args.cv_cuts is None and not 0 < args.cv_percent < 100:
        raise UserError(f"--cv-percent {args.cv_percent:g}: expected a percentage between 0 and 100.")
    if args.stored_features and args.feats_config:
        raise UserError("--stored-features true and --feats-config exclude each other: either says where features come from.")
    options = KINDS[args.kind]
    chosen = read_conf(options, args.feats_config) if args.feats_config else options()
    made = None if args.stored_features else Extractor(chosen, args.seed)
    features = CutFeatures(made, FeaturePipeline.from_options(args.cmvn_opts, args.delta_opts))
    origin = {"cuts": str(args.cuts), "ali": str(args.ali), "cmvn_opts": args.cmvn_opts, "delta_opts": args.delta_opts,
              "kind": "stored" if args.stored_features else args.kind, **({"cv_cuts": str(args.cv_cuts)} if args.cv_cuts else {})}
    with locked(args.store):
        alignment = AlignmentDir(args.ali, args.store)
        provenance.forget(args.store)
        if features.needs_statistics:
            for path in filter(None, (args.cuts, args.cv_cuts)):
                features.add_statistics(progress(utterances(read_cuts(path), path), "statistics of speakers", unit="cut"))
        for name in ("train", "dev"):
            stream = _Stream(features, alignment)
            cuts = progress(_chosen(args, name), f"packing {name}", unit="cut")
            manifest = pack(stream.names(cuts), stream.features, stream.pdfs, alignment.num_pdfs, args.store / name, args.store_dtype,
                            origin)
            shutil.rmtree(args.store / name / SHARDS, ignore_errors=True)
            print(f"{args.store / name}: {manifest.num_utts} utterances, {manifest.num_frames} frames, {len(manifest.skipped)} skipped; "
                  f"{usage_line(manifest.num_frames)}")
        features.pipeline.save(args.store, of_network=True)
        for name in SYSTEM_FILES:
            (args.store / name).unlink(missing_ok=True)
            if (args.ali / name).is_file():
                copy_file(args.ali / name, args.store / name)
        read = [path for path in (args.cuts, args.cv_cuts) if path and path.is_file()]
        provenance.record(args.store, "pykaldist pack-cuts", [*read, *alignment.archives, args.ali / "final.mdl"],
                          ("train/manifest.json", "dev/manifest.json", "cmvn_opts", "delta_opts", *SYSTEM_FILES))


def _chosen(args: argparse.Namespace, part: str) -> Iterator[Any]:
    """The cuts of train, or of dev. Which utterances are held out depends on their names and the seed, not on the order."""
    if args.cv_cuts:
        path = args.cuts if part == "train" else args.cv_cuts
        yield from utterances(read_cuts(path), path)
        return
    for cut in utterances(read_cuts(args.cuts), args.cuts):
        name = source(cut)
        held = zlib.crc32(f"{args.seed} {name}".encode()) % 10_000 < 100 * args.cv_percent
        if held == (part == "dev") and (not held or name == cut.id):
            yield cut


class _Stream:
    """The cuts as `pack` asks for them: by names, one after the other, of which only the last one is at hand."""

    def __init__(self, features: CutFeatures, alignment: AlignmentDir) -> None:
        self._features, self._alignment = features, alignment
        self._cut: Any = None

    def names(self, cuts: Iterator[Any]) -> Iterator[str]:
        for self._cut in cuts:
            yield str(self._cut.id)

    def features(self, name: str) -> np.ndarray:
        x = self._features.of(self._cut)
        heard(len(x))
        return x

    def pdfs(self, name: str) -> np.ndarray | None:
        return next((pdfs for one in aligned_names(self._cut) if (pdfs := self._alignment.pdfs(one)) is not None), None)
