"""Make a folder of frame stores of several others, without a copy of their frames.

Each of <store>, as steps/nnet/pack.sh writes them, has the stores train and dev. Those of <out> have the utterances of all, in the order in
which they are given here. Their features and alignments are to be of one kind and one model. The frames stay where they are, which may be
another machine: <store> may be an address such as https://host/store or s3://bucket/store.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pykaldist.cli.pack import SYSTEM_FILES, TOKENS
from pykaldist.errors import UserError
from pykaldist.frames.shards import combine
from pykaldist.io import provenance
from pykaldist.io.atomic import atomic_open
from pykaldist.io.lock import locked
from pykaldist.io.remote import exists_remote, is_remote, read_remote
from pykaldist.usage import ended

PARTS = ("train", "dev")
OF_ALL = (*SYSTEM_FILES, TOKENS, "cmvn_opts", "delta_opts")  # what train and dev have in common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("stores", nargs="+", help="folders with the stores train and dev, or addresses of such")


def run(args: argparse.Namespace) -> None:
    own = [Path(store) for store in args.stores if not is_remote(store)]
    check_apart(args.out, own)
    for store in args.stores:
        if not is_remote(store):
            provenance.check(store)
        for name in OF_ALL:
            if _content(store, name) != _content(args.stores[0], name):
                raise UserError(f"{store}/{name} is not that of {args.stores[0]}; pack both with the same options and alignments of one "
                                "model (steps/nnet/pack.sh).")
    with locked(args.out):
        provenance.forget(args.out)
        for part in PARTS:
            manifest = combine(args.out / part, [f"{store}/{part}" for store in args.stores])
            print(f"{args.out / part}: {manifest.num_utts} utterances, {manifest.num_frames} frames in {len(manifest.shards)} shards")
        copy_files(args.out, args.stores[0])
        provenance.record(args.out, "pykaldist combine-stores", [store / part / "manifest.json" for store in own for part in PARTS],
                          [f"{part}/manifest.json" for part in PARTS] + list(OF_ALL), sources=own)
    print(ended(f"{args.out}: {len(args.stores)} stores combined"))


def check_apart(out: Path, stores: Sequence[Path]) -> None:
    """Check that a store is not to be made of itself; raises UserError."""
    if out.resolve() in [store.resolve() for store in stores]:
        raise UserError(f"{out} is to be written, and is one of the stores that are read; write to another folder (pack --append true adds "
                        "utterances to a store).")


def copy_files(out: Path, store: str | Path) -> None:
    """Copy what stores have beside train and dev."""
    for name in OF_ALL:
        (out / name).unlink(missing_ok=True)
        content = _content(store, name)
        if content is not None:
            with atomic_open(out / name, "wb") as stream:
                stream.write(content)


def _content(store: str | Path, name: str) -> bytes | None:
    """A file of a store; None where it has none."""
    if not is_remote(store):
        path = Path(store) / name
        return path.read_bytes() if path.is_file() else None
    return read_remote(f"{store}/{name}") if exists_remote(f"{store}/{name}") else None
