"""The frame store: a training set packed once into flat memory-mapped arrays.

    feats.bin      frames x dim, float16 or float32: features as the model's pipeline makes them (CMVN applied), not spliced
    targets.bin    frames, int32: the pdf of each frame
    offsets.npy    utterances + 1, int64: utterance u is rows offsets[u]:offsets[u + 1]
    utts           one utterance a line
    manifest.json  counts, dims, checksums, provenance; written last: a folder without it is no store

Splicing is a gather on these rows when a minibatch is made, so that the store is not 11 times its size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.archive import NUMPY_DAMAGE, reason
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.tables import read_lines
from pykaldist.progress import Progress

FORMAT = 1
MAX_PDFS = 10_000_000  # more are damage
TRIM_TOLERANCE = 5  # frames by which features and alignment may differ (nnet1's default)


@dataclass
class Manifest:
    """What a store holds and where it came from."""

    num_frames: int
    num_utts: int
    dim: int
    num_pdfs: int
    dtype: str
    checksums: dict[str, str]
    provenance: dict[str, Any]
    skipped: dict[str, str]  # utterance -> why
    trimmed: int
    format: int = FORMAT


class FrameStore:
    """A packed training set, memory-mapped; nothing is read until it is used.

    `feats` (frames, dim), `targets` (frames,), `offsets` (utterances + 1,) are numpy arrays over the files.
    Raises UserError where the folder is no finished store or a file has not the size that the manifest states.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "manifest.json").is_file():
            raise UserError(f"{path} is no frame store (it has no manifest.json); run steps/nnet/pack.sh again.")
        self.manifest = self._manifest()
        frames, dim = self.manifest.num_frames, self.manifest.dim
        self.feats = self._map("feats.bin", np.dtype(self.manifest.dtype), (frames, dim))
        self.targets = self._map("targets.bin", np.dtype(np.int32), (frames,))
        self.offsets = self._offsets()
        self.utts = read_lines(self.path / "utts")
        if len(self.utts) != self.manifest.num_utts:
            raise UserError(f"{self.path / 'utts'} has {len(self.utts)} utterances, the manifest says {self.manifest.num_utts}; pack the "
                            "store again.")

    def _manifest(self) -> Manifest:
        where = self.path / "manifest.json"
        try:
            fields = json.loads(where.read_text(encoding="utf-8"))
            found = fields.get("format")
            if found == FORMAT:
                manifest = Manifest(**fields)
                sizes = (manifest.num_frames, manifest.num_utts, manifest.dim, manifest.num_pdfs)
                sound = all(isinstance(n, int) and n > 0 for n in sizes) and manifest.num_pdfs <= MAX_PDFS
                if sound and manifest.dtype in ("float16", "float32") and manifest.checksums.keys() == {"feats.bin", "targets.bin"}:
                    return manifest
                raise ValueError("sizes, dtype or checksums make no sense")
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{where} is damaged ({error}); pack the store again.") from error
        raise UserError(f"{self.path} is a frame store of format {found}, this version reads {FORMAT}; pack it again.")

    def _offsets(self) -> np.ndarray:
        path = self.path / "offsets.npy"
        try:
            offsets = np.load(path, allow_pickle=False)
        except NUMPY_DAMAGE as error:
            raise UserError(f"{path} is missing or damaged ({reason(error)}); pack the store again.") from error
        sound = offsets.shape == (self.manifest.num_utts + 1,) and offsets.dtype == np.int64 and offsets[0] == 0
        if not sound or offsets[-1] != self.manifest.num_frames or (np.diff(offsets) < 0).any():
            raise UserError(f"{path} does not divide the {self.manifest.num_frames} frames of the manifest among its "
                            f"{self.manifest.num_utts} utterances; pack the store again.")
        return offsets

    def _map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        path, expected = self.path / name, dtype.itemsize * int(np.prod(shape))
        found = path.stat().st_size if path.is_file() else 0
        if found != expected:
            raise UserError(f"{path} has {found} bytes, its manifest says {expected}; pack the store again.")
        return np.memmap(path, dtype=dtype, mode="c", shape=shape)  # copy-on-write: torch wants it writable, the file stays as it is

    def __len__(self) -> int:
        return self.manifest.num_frames

    def verify(self) -> None:
        """Compare every file with its checksum; raises UserError at the first that differs."""
        for name, expected in self.manifest.checksums.items():
            size = (self.path / name).stat().st_size >> 20
            with open(self.path / name, "rb") as stream, Progress(f"checking {self.path / name}", size, "MiB") as bar:
                digest = hashlib.blake2b(digest_size=16)
                while chunk := stream.read(1 << 24):
                    digest.update(chunk)
                    bar.update(len(chunk) >> 20)
            if digest.hexdigest() != expected:
                raise UserError(f"{self.path / name} does not match its checksum: it was changed or is damaged; pack the store again.")

    def counts(self) -> np.ndarray:
        """Frames of each pdf, int64 (num_pdfs,): the numerators of the priors."""
        return np.bincount(self.targets, minlength=self.manifest.num_pdfs)


class _Sink:
    """An append-only file with a running checksum."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.digest = stream, hashlib.blake2b(digest_size=16)

    def append(self, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).data
        self.stream.write(data)
        self.digest.update(data)


def pack(utts: Iterable[str], features: Callable[[str], np.ndarray], alignment: Callable[[str], np.ndarray | None], num_pdfs: int,
         path: str | os.PathLike[str], dtype: str = "float32", provenance: dict[str, Any] | None = None) -> Manifest:
    """Pack utterances into a store at `path`; an older store there is replaced.

    `features(utt)` is float32 (T, dim); `alignment(utt)` the pdf of each frame, or None where there is none. An utterance without
    alignment, or whose lengths differ by more than 5 frames, is skipped and listed in the manifest; smaller differences are trimmed
    at the end. Raises UserError for a pdf out of range, features of changing dimension or not finite, and where nothing is left.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "manifest.json").unlink(missing_ok=True)
    offsets, kept, skipped, trimmed, dim = [0], [], {}, 0, None
    with atomic_open(path / "feats.bin", "wb") as feats_file, atomic_open(path / "targets.bin", "wb") as targets_file:
        feats_sink, targets_sink = _Sink(feats_file), _Sink(targets_file)
        for utt in utts:
            pdfs = alignment(utt)
            if pdfs is None:
                skipped[utt] = "no alignment"
                continue
            feats = features(utt)
            if abs(len(feats) - len(pdfs)) > TRIM_TOLERANCE:
                skipped[utt] = f"{len(feats)} frames of features, {len(pdfs)} of alignment"
                continue
            trimmed += len(feats) != len(pdfs)
            length = min(len(feats), len(pdfs))
            feats, pdfs = feats[:length], pdfs[:length]
            dim = feats.shape[1] if dim is None else dim
            _check(utt, feats, pdfs, dim, num_pdfs)
            feats_sink.append(feats.astype(dtype, copy=False))
            targets_sink.append(pdfs.astype(np.int32, copy=False))
            offsets.append(offsets[-1] + length)
            kept.append(utt)
        if not kept or dim is None:
            reason = f": {next(iter(skipped.values()))} for {next(iter(skipped))}" if skipped else ""
            raise UserError(f"no utterance of the data has both features and an alignment{reason}; are they of the same data directory?")
    with atomic_open(path / "offsets.npy", "wb") as stream:
        np.save(stream, np.asarray(offsets, dtype=np.int64))
    write_text(path / "utts", "".join(f"{utt}\n" for utt in kept))
    manifest = Manifest(num_frames=offsets[-1], num_utts=len(kept), dim=dim, num_pdfs=num_pdfs, dtype=dtype,
                        checksums={"feats.bin": feats_sink.digest.hexdigest(), "targets.bin": targets_sink.digest.hexdigest()},
                        provenance=provenance or {}, skipped=skipped, trimmed=trimmed)
    write_text(path / "manifest.json", json.dumps(dataclasses.asdict(manifest), indent=1) + "\n")
    return manifest


def _check(utt: str, feats: np.ndarray, pdfs: np.ndarray, dim: int, num_pdfs: int) -> None:
    if feats.shape[1] != dim:
        raise UserError(f"{utt}: features of dimension {feats.shape[1]}, those before had {dim}; make the features again with one config.")
    if not np.isfinite(feats).all():
        raise UserError(f"{utt}: features are not finite; look at its audio and make the features again.")
    if len(pdfs) and not 0 <= pdfs.min() <= pdfs.max() < num_pdfs:
        raise UserError(f"{utt}: alignment has pdf {pdfs.max()}, the model has {num_pdfs}; they are of different systems.")
