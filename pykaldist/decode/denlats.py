"""Packing of denominator lattices and reference alignments into a lattice store (`frames/lattice_store.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pykaldist.decode.lattice import Lattice, read_decode_dir
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.decode.pairs import check_decoding
from pykaldist.decode.reference_path import ReferencePaths
from pykaldist.errors import UserError
from pykaldist.frames.lattice_store import LatticeManifest, pack_lattices
from pykaldist.frames.lattices import Lattices
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.io import provenance
from pykaldist.progress import progress


def pack_denlats(ali_dir: Path, denlats: Path, store: Path, silence_phones: Sequence[int], references: ReferencePaths | None = None,
                 made_of: Sequence[Path] = ()) -> LatticeManifest:
    """Pack the lattices of `denlats` with the reference alignments of `ali_dir` into `store`.

    `references`, which were read from the files `made_of`, complete lattices without their words. An utterance without one of the two, or
    whose lattice does not fit its alignment, is left out and listed in the manifest. Raises UserError for lattices of another model, and
    where nothing is left.
    """
    ali = AlignmentDir(ali_dir, store)
    if ali.model is None or not ali.has_transition_ids:
        raise UserError(f"{ali_dir} has no transition-ids, which say what is right in a frame; align with steps/nnet/align.sh.")
    model = ali_dir / "final.mdl"
    check_decoding(denlats, model=model)
    skipped: dict[str, str] = {}
    labels = ali.labels

    def utterances() -> Iterator[tuple[str, Lattices, np.ndarray]]:
        seen = set()
        for utt, lattice in progress(read_decode_dir(denlats), f"packing {store.name}", len(labels), "utt"):
            seen.add(utt)
            arrays = _fitting(utt, lattice, labels.get(utt), ali.model.num_transition_ids if ali.model else 0, references)
            if isinstance(arrays, str):
                skipped[utt] = arrays
            else:
                yield utt, arrays, labels[utt]
        skipped.update({utt: "no lattice" for utt in labels if utt not in seen})

    provenance.forget(store)
    manifest = pack_lattices(utterances(), ali.model.tid2pdf, ali.model.tid2phone, silence_phones, skipped, store,
                             references.counts if references else {})
    lattices = sorted(denlats.glob("lat.*.gz"))
    provenance.record(store, "pykaldist pack-lattices", [*ali.archives, model, *lattices, *made_of], ["manifest.json"])
    return manifest


def _fitting(utt: str, lattice: Lattice, reference: np.ndarray | None, num_transition_ids: int,
             references: ReferencePaths | None) -> Lattices | str:
    """The lattice as arrays, with the reference if `references` add it, or why it cannot be taken."""
    if reference is None:
        return "no alignment"
    try:
        arrays = as_arrays(lattice)
    except ValueError as error:
        return str(error)
    if arrays.frames[-1] != len(reference):
        return f"{arrays.frames[-1]} frames of the lattice, {len(reference)} of the alignment"
    highest = int(arrays.transition_id.max(initial=0))
    if highest > num_transition_ids:
        return f"transition-id {highest}, the model has {num_transition_ids}"
    if references is None or (fuller := references.completed(utt, lattice, reference)) is lattice:
        return arrays
    return as_arrays(fuller)
