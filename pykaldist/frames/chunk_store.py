"""The chunk store: the chunks of a frame store's utterances, with the numerators of the chain objective, packed once.

    chunks.npy               chunks x 3, int64: utterance's number, first frame within it, frames
    source.bin, target.bin   arcs of the numerators, int32; graph.bin: arcs, float32
    entry.bin                entries, int32: the cells of arcs
    frame.bin, pdf.bin       cells, int32
    weight.bin               output frames, float32: what a frame counts, less than 1 where chunks overlap
    ivector.bin              float32, where there are i-vectors: one of each chunk
    states.npy, arcs.npy, cells.npy, frames.npy, entries.npy, ivectors.npy   chunks + 1, int64: where each chunk's begin
    manifest.json            counts, checksums, provenance; written last: a folder without it is no store

What the arrays of numerators are says `frames/lattices.py`. Features are not here: they are cut from the frame store.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pykaldist.errors import IVECTORS, UserError
from pykaldist.frames.chunk_widths import ChunkSpan
from pykaldist.frames.items import Items, ItemsWriter, load_array
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.mapped import Manifest, read_manifest, verify, write_manifest
from pykaldist.frames.store import FrameStore
from pykaldist.io.npy import save_array
from pykaldist.io.provenance import checksum
from pykaldist.io.schema import require

FORMAT = 1
CURE = "make the chunks again (steps/nnet3/chain/train.py)"
UNITS = ("states", "arcs", "cells", "frames", "entries", "ivectors")
LATTICE_ARRAYS = {"source": ("arcs", np.int32), "target": ("arcs", np.int32), "graph": ("arcs", np.float32), "entry": ("entries", np.int32),
                  "frame": ("cells", np.int32), "pdf": ("cells", np.int32)}
LAYOUT = {**LATTICE_ARRAYS, "weight": ("frames", np.float32), "ivector": ("ivectors", np.float32)}


@dataclass
class ChunkManifest(Manifest):
    """The content and the origin of a chunk store, as `manifest.json` has them."""

    num_chunks: int
    num_pdfs: int
    frame_subsampling_factor: int
    widths: list[int]  # of chunks, the primary one first
    ivector_dim: int  # 0: no i-vectors
    totals: dict[str, int]
    frame_store: dict[str, str]  # checksums of the frame store's utterances and offsets
    checksums: dict[str, str]
    skipped: dict[str, str]  # utterance, or utterance and first frame, -> why
    provenance: dict[str, Any]
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("num_chunks", "num_pdfs", "frame_subsampling_factor"):
            require(getattr(self, name) > 0, name, getattr(self, name), "a positive number")
        require(self.ivector_dim >= 0, "ivector_dim", self.ivector_dim, "0 or more")
        files = [*(f"{name}.bin" for name in LAYOUT), *(f"{name}.npy" for name in (*UNITS, "chunks"))]
        require(sorted(self.checksums) == sorted(files), "checksums", f"of {', '.join(self.checksums) or 'nothing'}",
                f"those of {', '.join(files)}")
        require(sorted(self.totals) == sorted(UNITS), "totals", f"of {', '.join(self.totals) or 'nothing'}", f"those of {', '.join(UNITS)}")
        require(self.totals["ivectors"] == self.num_chunks * self.ivector_dim, "ivectors", self.totals["ivectors"],
                "num_chunks x ivector_dim")


def _identity(store: FrameStore) -> dict[str, str]:
    """What says that chunks are of this frame store: its utterances and their lengths."""
    return {name: store.manifest.checksums[name] for name in ("utts", "offsets.npy")}


@dataclass(eq=False)
class Chunks:
    """What a minibatch of chunks has beside its inputs: `sequences` chunks of `output_frames` frames after subsampling.

    `weights` (output_frames x sequences,): what each output frame counts, frame by frame. `ivectors` (sequences, dim) or None.
    `frames`: input frames, without context; `context`: the frames before the first output's, and behind the last one's.
    """

    sequences: int
    output_frames: int
    frames: int
    numerators: list[Lattices]
    weights: Tensor
    context: tuple[int, int]
    ivectors: Tensor | None = None


class ChunkStore:
    """Packed chunks, memory-mapped; nothing is read until it is used. `utt`, `first`, `frames`: of each chunk, int64 (C,).

    Raises UserError where the folder is no finished store, or its chunks are not of `store`.
    """

    def __init__(self, path: str | os.PathLike[str], store: FrameStore) -> None:
        self.path = Path(path)
        if not (self.path / "manifest.json").is_file():
            raise UserError(f"{path} is no chunk store (it has no manifest.json); make the chunks again (steps/nnet3/chain/train.py).")
        self.manifest = manifest = read_manifest(self.path / "manifest.json", ChunkManifest, CURE, FORMAT)
        if manifest.frame_store != _identity(store):
            raise UserError(f"{path} has chunks of other utterances than {store.path}; {CURE}.")
        self._items = Items(self.path, LAYOUT, manifest.num_chunks, manifest.totals, manifest.checksums, CURE)
        chunks = load_array(self.path, "chunks.npy", manifest.checksums, CURE)
        if chunks.shape != (manifest.num_chunks, 3) or chunks.dtype != np.int64:
            raise UserError(f"{self.path / 'chunks.npy'} is {chunks.dtype} {chunks.shape}, expected int64 ({manifest.num_chunks}, 3); "
                            f"{CURE}.")
        self.utt, self.first, self.frames = np.ascontiguousarray(chunks.T)
        lengths = np.diff(store.offsets)
        if not ((self.utt >= 0) & (self.utt < len(lengths))).all() or not ((self.first >= 0) & (self.frames > 0)).all() or \
                (self.first >= lengths[self.utt]).any():
            raise UserError(f"{self.path / 'chunks.npy'} has chunks beyond the utterances of {store.path}; {CURE}.")

    def __len__(self) -> int:
        return self.manifest.num_chunks

    def verify(self) -> None:
        """Compare every file with its checksum; raises UserError at the first that differs."""
        verify(self.path, self.manifest.checksums)

    def files(self) -> list[Path]:
        """All files that have checksums."""
        return [self.path / name for name in self.manifest.checksums]

    def numerators(self, chunks: np.ndarray) -> list[Lattices]:
        """The numerators of chunks, lattices of one sequence each, whose transition-ids are pdfs."""
        self._items.note(chunks)
        return [self._numerator(chunk) for chunk in chunks]

    def weights(self, chunks: np.ndarray) -> np.ndarray:
        """The weights of the output frames of chunks of one length, float32 (B, T)."""
        return np.stack([self._items.array("weight", chunk) for chunk in chunks])

    def ivectors(self, chunks: np.ndarray) -> np.ndarray | None:
        """The i-vectors of chunks, float32 (B, dim), where the store has them."""
        return np.stack([self._items.array("ivector", chunk) for chunk in chunks]) if self.manifest.ivector_dim else None

    def _numerator(self, chunk: int) -> Lattices:
        own = {name: self._items.array(name, chunk) for name in LATTICE_ARRAYS}
        states, arcs, cells, frames = (np.array([0, self._items.size(unit, chunk)]) for unit in UNITS[:4])
        string = np.minimum(np.arange(arcs[1] + 1), len(own["entry"]))
        return Lattices(states, arcs, cells, frames, own["source"], own["target"], own["graph"], np.zeros(arcs[1], np.float32), string,
                        own["entry"], own["frame"], own["pdf"])


@dataclass(frozen=True)
class PackedChunk:
    """A chunk on its way into a store: its utterance's number in the frame store, its place, its numerator, its i-vector."""

    utt: int
    span: ChunkSpan
    numerator: Lattices
    ivector: np.ndarray | None = None


def pack_chunks(chunks: Iterable[PackedChunk], store: FrameStore, num_pdfs: int, factor: int, widths: list[int], skipped: dict[str, str],
                path: str | os.PathLike[str], provenance: dict[str, Any] | None = None) -> ChunkManifest:
    """Pack chunks of a frame store into a chunk store at `path`; an older one there is replaced.

    `skipped` says why utterances or parts of them are left out, and may grow while chunks come. Raises UserError where none comes.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "manifest.json").unlink(missing_ok=True)
    places = array("q")
    dim = 0
    with ItemsWriter(path, LAYOUT, UNITS) as writer:
        for chunk in chunks:
            lattice, ivector = chunk.numerator, np.zeros(0) if chunk.ivector is None else chunk.ivector
            dim = dim or len(ivector)
            if len(ivector) != dim:
                raise UserError(f"{store.utts[chunk.utt]}: an i-vector of dimension {len(ivector)}, those before had {dim}; extract all "
                                f"with one extractor ({IVECTORS}).")
            arrays = {name: getattr(lattice, name) for name in LATTICE_ARRAYS if name != "pdf"}
            writer.append({**arrays, "pdf": lattice.transition_id, "weight": chunk.span.weights, "ivector": ivector},
                          {"states": int(lattice.states[-1]), "arcs": len(lattice.source), "cells": len(lattice.frame),
                           "frames": len(chunk.span.weights), "entries": len(lattice.entry), "ivectors": len(ivector)})
            places.extend((chunk.utt, chunk.span.first, chunk.span.frames))
    if not places:
        why = f": {next(iter(skipped.values()))} ({next(iter(skipped))})" if skipped else ""
        raise UserError(f"no utterance of {store.path} gives a chunk{why}; look at the chunk widths and at the alignment.")
    save_array(path / "chunks.npy", np.frombuffer(places, np.int64).reshape(-1, 3))
    manifest = ChunkManifest(num_chunks=len(places) // 3, num_pdfs=num_pdfs, frame_subsampling_factor=factor, widths=widths,
                             ivector_dim=dim, totals=writer.totals, frame_store=_identity(store), skipped=skipped,
                             provenance=provenance or {},
                             checksums={**writer.checksums, "chunks.npy": checksum(path / "chunks.npy")})
    write_manifest(path / "manifest.json", manifest)
    return manifest
