"""The lattice store: lattices of a training set and their reference alignments, packed once into flat memory-mapped arrays.

    states.npy, arcs.npy, cells.npy, frames.npy, entries.npy   utterances + 1, int64: where each utterance's begin
    source.bin, target.bin, word.bin   arcs, int32; graph.bin, acoustic.bin   arcs, float32; length.bin   arcs, int32: their frames
    entry.bin                entries, int32
    frame.bin, transition_id.bin   cells, int32
    reference.bin            frames, int32: the transition-id of the reference alignment
    tid2pdf.npy, tid2phone.npy     int32, by transition-id
    utts                     one utterance a line
    manifest.json            counts, checksums, provenance; written last: a folder without it is no store

What the arrays are says `frames/lattices.py`; numbers count within an utterance.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.frames.items import Items, ItemsWriter, load_array, load_utts
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.mapped import Manifest, read_manifest, verify, write_manifest
from pykaldist.io.atomic import write_text
from pykaldist.io.npy import save_array
from pykaldist.io.provenance import checksum
from pykaldist.io.schema import require

FORMAT = 3
CURE = "make it again, as with pykaldist pack-lattices data/lang exp/dnn_ali exp/dnn_denlats exp/dnn_mpe/denlats"
OFFSETS = ("states", "arcs", "cells", "frames", "entries")
ARRAYS = {"source": ("arcs", np.int32), "target": ("arcs", np.int32), "graph": ("arcs", np.float32), "acoustic": ("arcs", np.float32),
          "length": ("arcs", np.int32), "word": ("arcs", np.int32),
          "entry": ("entries", np.int32), "frame": ("cells", np.int32), "transition_id": ("cells", np.int32),
          "reference": ("frames", np.int32)}


@dataclass
class LatticeManifest(Manifest):
    """The content and the origin of a lattice store, as `manifest.json` has them."""

    num_utts: int
    totals: dict[str, int]  # states, arcs, cells, frames, entries
    num_pdfs: int
    silence_phones: list[int]
    checksums: dict[str, str]
    skipped: dict[str, str]  # utterance -> why
    without_reference: dict[str, int]  # frames in which no path has the reference's pdf, and utterances with such frames
    references: dict[str, int] = field(default_factory=dict)  # added to their lattices, not in the graph; empty: none was to be added
    format: int = FORMAT

    def __post_init__(self) -> None:
        require(self.num_utts > 0, "num_utts", self.num_utts, "a positive number")
        files = [*(f"{name}.bin" for name in ARRAYS), *(f"{name}.npy" for name in (*OFFSETS, "tid2pdf", "tid2phone")), "utts"]
        require(sorted(self.checksums) == sorted(files), "checksums", f"of {', '.join(self.checksums) or 'nothing'}",
                f"those of {', '.join(files)}")
        expected = f"those of {', '.join(OFFSETS)}"
        require(sorted(self.totals) == sorted(OFFSETS), "totals", f"of {', '.join(self.totals) or 'nothing'}", expected)
        require(min(self.totals.values()) >= 0, "totals", self.totals, "0 or more")


class LatticeStore:
    """Packed lattices, memory-mapped; nothing is read until it is used. `number` gives an utterance's.

    Raises UserError where the folder is no finished store or a file has not the size that the manifest states.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "manifest.json").is_file():
            raise UserError(f"{path} is no lattice store (it has no manifest.json); {CURE}.")
        self.manifest = read_manifest(self.path / "manifest.json", LatticeManifest, CURE, FORMAT)
        checksums = self.manifest.checksums
        self._items = Items(self.path, ARRAYS, self.manifest.num_utts, self.manifest.totals, checksums, CURE)
        self.tid2pdf, self.tid2phone = (load_array(self.path, f"{name}.npy", checksums, CURE) for name in ("tid2pdf", "tid2phone"))
        self.utts = load_utts(self.path, self.manifest.num_utts, checksums, CURE)
        self.number = {utt: number for number, utt in enumerate(self.utts)}

    def __len__(self) -> int:
        return len(self.utts)

    def verify(self) -> None:
        """Compare every file with its checksum; raises UserError at the first that differs."""
        verify(self.path, self.manifest.checksums)

    def files(self) -> list[Path]:
        """All files that have checksums."""
        return [self.path / name for name in self.manifest.checksums]

    def lattices(self, numbers: Sequence[int]) -> tuple[Lattices, np.ndarray]:
        """The lattices of these utterances as one set, and the reference's transition-ids in their frames, (T,)."""
        self._items.note(numbers)
        parts = [self._one(number) for number in numbers]
        reference = [np.zeros(0, np.int32), *(self._items.array("reference", number) for number in numbers)]
        return Lattices.joined(parts), np.concatenate(reference)

    def passed(self, first: int, end: int) -> None:
        """Let go of the memory of utterances `first` to `end` - 1, whose lattices were read one behind the other."""
        self._items.passed(first, end)

    def _one(self, number: int) -> Lattices:
        states, arcs, cells, frames = (np.array([0, self._items.size(unit, number)]) for unit in OFFSETS[:4])
        own = self._items.arrays(number)
        string = np.concatenate([np.zeros(1, np.int64), np.cumsum(own["length"], dtype=np.int64)])
        return Lattices(states, arcs, cells, frames, own["source"], own["target"], own["graph"],
                        own["acoustic"], string, own["entry"], own["frame"], own["transition_id"], own["word"])


def pack_lattices(utterances: Iterable[tuple[str, Lattices, np.ndarray]], tid2pdf: np.ndarray, tid2phone: np.ndarray,
                  silence_phones: Sequence[int], skipped: dict[str, str], path: str | os.PathLike[str],
                  references: dict[str, int] | None = None) -> LatticeManifest:
    """Pack lattices into a store at `path`; an older store there is replaced.

    `utterances` gives (utterance, its lattice, the transition-ids of its reference); `skipped` says why others are left out, `references`
    how many references were added to lattices; both may grow while these come. Raises UserError where there is none.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "manifest.json").unlink(missing_ok=True)
    without: list[int] = []
    utts: list[str] = []
    with ItemsWriter(path, ARRAYS, OFFSETS) as writer:
        for utt, lattice, reference in utterances:
            arrays = {**{name: getattr(lattice, name) for name in ARRAYS if name not in ("length", "reference", "word")},
                      "length": np.diff(lattice.string), "reference": reference,
                      "word": np.zeros(len(lattice.source)) if lattice.word is None else lattice.word}
            writer.append(arrays, {"states": int(lattice.states[-1]), "arcs": len(lattice.source), "cells": len(lattice.frame),
                                   "frames": len(reference), "entries": len(lattice.entry)})
            utts.append(utt)
            there = np.zeros(len(reference), bool)
            there[lattice.frame[tid2pdf[lattice.transition_id] == tid2pdf[reference[lattice.frame]]]] = True
            without.append(int((~there).sum()))
        if not utts:
            why = f": {next(iter(skipped.values()))} ({next(iter(skipped))})" if skipped else ""
            raise UserError(f"no utterance has a lattice and a reference alignment{why}; are both of the same data directory?")
    checksums = dict(writer.checksums)
    for name, array in (("tid2pdf", tid2pdf), ("tid2phone", tid2phone)):
        save_array(path / f"{name}.npy", np.ascontiguousarray(array))
        checksums[f"{name}.npy"] = checksum(path / f"{name}.npy")
    write_text(path / "utts", "".join(f"{utt}\n" for utt in utts))
    checksums["utts"] = checksum(path / "utts")
    manifest = LatticeManifest(len(utts), writer.totals, int(tid2pdf.max()) + 1,
                               list(map(int, silence_phones)), checksums, skipped,
                               {"frames": sum(without), "utterances": sum(map(bool, without))}, references or {})
    write_manifest(path / "manifest.json", manifest)
    return manifest
