"""Pack denominator lattices and reference alignments for --objective smbr, mpe and mmi (what steps/nnet/train_mpe.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.denlats import pack_denlats
from pykaldist.decode.reference_path import ReferencePaths
from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir
from pykaldist.io.lock import locked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory, whose phones/silence.csl says which phones are silence")
    parser.add_argument("ali", type=Path, help="directory of the reference alignments")
    parser.add_argument("denlats", type=Path, help="directory with the lattices, lat.*.gz")
    parser.add_argument("store", type=Path, help="lattice store to write")
    parser.add_argument("--unkphonelist", default="", help="phones, with colons between them, that are treated as silence (default: none)")
    parser.add_argument("--reference-data", type=Path, help="data directory with the transcripts: where no path of a lattice has the words "
                        "of its transcript, the reference is added to the lattice (default: none is added)")
    parser.add_argument("--reference-graph", type=Path, help="HCLG.fst of the lattices, for the costs of references (default: that of "
                        "make_denlats.sh, <denlats>/dengraph/HCLG.fst)")


def run(args: argparse.Namespace) -> None:
    lang = LangDir(args.lang)
    path = lang.file("phones/silence.csl")
    phones = _phones(path.read_text(encoding="utf-8").strip(), str(path)) + _phones(args.unkphonelist, "--unkphonelist")
    references, made_of = None, list[Path]()
    if args.reference_data:
        made_of = [args.reference_graph or args.denlats / "dengraph/HCLG.fst", args.reference_data / "text"]
        transcripts = {utt: lang.word_ids(words)[0] for utt, words in DataDir(args.reference_data).text.items()}
        references = ReferencePaths(Fst.read(made_of[0]), transcripts)
    with locked(args.store):
        manifest = pack_denlats(args.ali, args.denlats, args.store, sorted(set(phones)), references, made_of)
    totals = manifest.totals
    text = (f"{args.store}: {manifest.num_utts} lattices, {totals['frames']} frames, {totals['arcs']} arcs "
            f"({totals['entries'] / totals['frames']:.1f} a frame)")
    if (missing := manifest.without_reference)["frames"]:
        text += f", {missing['frames']} frames of {missing['utterances']} utterances without a path that has the reference's pdf"
    if manifest.references:
        text += f", references: {', '.join(f'{count} {what}' for what, count in manifest.references.items())}"
    if manifest.skipped:
        first = next(iter(manifest.skipped))
        text += f", {len(manifest.skipped)} utterances skipped ({first}: {manifest.skipped[first]}, ...)"
    print(f"SUMMARY: {text}")


def _phones(text: str, where: str) -> list[int]:
    """Phones of a list with colons."""
    if not all(phone.isdecimal() for phone in text.split(":") if phone):
        raise UserError(f"{where}: expected numbers of phones with colons between them, found {text!r}.")
    return [int(phone) for phone in text.split(":") if phone]
