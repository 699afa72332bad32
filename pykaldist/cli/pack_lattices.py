"""Pack denominator lattices and reference alignments for --objective smbr, mpe and mmi (what steps/nnet/train_mpe.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.denlats import pack_denlats
from pykaldist.errors import UserError
from pykaldist.io.lang import LangDir
from pykaldist.io.lock import locked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory, whose phones/silence.csl says which phones are silence")
    parser.add_argument("ali", type=Path, help="directory of the reference alignments")
    parser.add_argument("denlats", type=Path, help="directory with the lattices, lat.*.gz")
    parser.add_argument("store", type=Path, help="lattice store to write")
    parser.add_argument("--unkphonelist", default="", help="phones, with colons between them, that are treated as silence (default: none)")


def run(args: argparse.Namespace) -> None:
    path = LangDir(args.lang).file("phones/silence.csl")
    phones = _phones(path.read_text(encoding="utf-8").strip(), str(path)) + _phones(args.unkphonelist, "--unkphonelist")
    with locked(args.store):
        manifest = pack_denlats(args.ali, args.denlats, args.store, sorted(set(phones)))
    totals = manifest.totals
    text = (f"{args.store}: {manifest.num_utts} lattices, {totals['frames']} frames, {totals['arcs']} arcs "
            f"({totals['entries'] / totals['frames']:.1f} a frame)")
    if (missing := manifest.without_reference)["frames"]:
        text += f", {missing['frames']} frames of {missing['utterances']} utterances without a path that has the reference's pdf"
    if manifest.skipped:
        first = next(iter(manifest.skipped))
        text += f", {len(manifest.skipped)} utterances skipped ({first}: {manifest.skipped[first]}, ...)"
    print(f"SUMMARY: {text}")


def _phones(text: str, where: str) -> list[int]:
    """Phones of a list with colons."""
    if not all(phone.isdecimal() for phone in text.split(":") if phone):
        raise UserError(f"{where}: expected numbers of phones with colons between them, found {text!r}.")
    return [int(phone) for phone in text.split(":") if phone]
