"""The frame store: a training set packed once into flat memory-mapped arrays.

    feats.bin      frames x dim, float16 or float32: features as the model's pipeline makes them (CMVN applied), not spliced
    labels.bin, label_offsets.npy   label sequences for CTC, where there are such
    targets.bin    frames, int32: the pdf of each frame
    offsets.npy    utterances + 1, int64: utterance u is rows offsets[u]:offsets[u + 1]
    utts           one utterance a line
    manifest.json  counts, dims, checksums, provenance; written last: a folder without it is no store
and where they were packed with it
    weights.bin          frames, float32: what each frame counts
    posterior_pdfs.bin   frames x num_posteriors, int32: soft targets' pdfs, the likeliest first, and
    posterior_probs.bin  frames x num_posteriors, float32: their probabilities; places that a frame does not need are pdf 0 with 0
    target_feats.bin     frames x target_dim, float32: features as targets

Splicing is a gather on these rows when a minibatch is made, so that the store is not 11 times its size.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError, named, of_the_machine
from pykaldist.frames.mapped import Manifest, Sink, mapped, read_manifest, verify, write_manifest
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.entries import numpy_damage, reason
from pykaldist.io.npy import save_array
from pykaldist.io.posteriors import Posterior
from pykaldist.io.provenance import checksum
from pykaldist.io.schema import require
from pykaldist.io.tables import read_lines

FORMAT = 3
CURE = "pack the store again"
MAX_PDFS = 10_000_000  # more are damage
DTYPES = {"targets.bin": np.int32, "weights.bin": np.float32, "posterior_pdfs.bin": np.int32, "posterior_probs.bin": np.float32,
          "target_feats.bin": np.float32, "labels.bin": np.int32}  # of the files besides the features
COUNTED = 1 << 20  # frames whose pdfs are counted at once
TRIM_TOLERANCE = 5  # frames by which features and alignment may differ (nnet1's default)


@dataclass
class StoreManifest(Manifest):
    """The content and the origin of a store, as `manifest.json` has them."""

    num_frames: int
    num_utts: int
    dim: int
    num_pdfs: int
    num_posteriors: int  # pairs of pdf and probability a frame; 0: no soft targets
    target_dim: int  # 0: no target features
    dtype: str
    checksums: dict[str, str]
    provenance: dict[str, Any]
    skipped: dict[str, str]  # utterance -> why
    trimmed: int
    num_labels: int = 0  # of all label sequences; 0: there are none
    num_tokens: int = 0  # labels that there can be, and blank
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("num_frames", "num_utts", "dim", "num_pdfs"):
            require(getattr(self, name) > 0, name, getattr(self, name), "a positive number")
        for name in ("num_posteriors", "target_dim", "num_labels", "num_tokens"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(self.num_pdfs <= MAX_PDFS, "num_pdfs", self.num_pdfs, f"at most {MAX_PDFS}")
        require(self.dtype in ("float16", "float32"), "dtype", repr(self.dtype), "float16 or float32")
        files = [*self.arrays(), "offsets.npy", *["label_offsets.npy"] * (self.num_labels > 0), "utts"]
        require(sorted(self.checksums) == sorted(files), "checksums", f"of {', '.join(self.checksums) or 'nothing'}",
                f"those of {', '.join(files)}")

    def arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The type and shape of each array's file, by name."""
        shapes: dict[str, tuple[int, ...]] = {"feats.bin": (self.dim,), "targets.bin": ()}
        if "weights.bin" in self.checksums:
            shapes["weights.bin"] = ()
        if self.num_posteriors:
            shapes["posterior_pdfs.bin"] = shapes["posterior_probs.bin"] = (self.num_posteriors,)
        if self.target_dim:
            shapes["target_feats.bin"] = (self.target_dim,)
        arrays = {name: (np.dtype(DTYPES.get(name, self.dtype)), (self.num_frames, *shape)) for name, shape in shapes.items()}
        if self.num_labels:
            arrays["labels.bin"] = np.dtype(DTYPES["labels.bin"]), (self.num_labels,)
        return arrays


class FrameStore:
    """A packed training set, memory-mapped; nothing is read until it is used.

    `feats` (frames, dim), `targets` (frames,), `offsets` (utterances + 1,) are numpy arrays over the files, and so are `weights`,
    `posterior_pdfs`, `posterior_probs` and `target_feats`, or None.
    Raises UserError where the folder is no finished store or a file has not the size that the manifest states.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "manifest.json").is_file():
            raise UserError(f"{path} is no frame store (it has no manifest.json); run steps/nnet/pack.sh again.")
        self.manifest = read_manifest(self.path / "manifest.json", StoreManifest, CURE, FORMAT)
        arrays = {name.removesuffix(".bin"): mapped(self.path / name, *form) for name, form in self.manifest.arrays().items()}
        self.feats, self.targets = arrays["feats"], arrays["targets"]
        self.weights, self.target_feats = arrays.get("weights"), arrays.get("target_feats")
        self.posterior_pdfs, self.posterior_probs = arrays.get("posterior_pdfs"), arrays.get("posterior_probs")
        self.offsets = self._offsets("offsets.npy", self.manifest.num_frames, "frames")
        self.labels, self.label_offsets = arrays.get("labels"), None
        if self.labels is not None:
            self.label_offsets = self._offsets("label_offsets.npy", self.manifest.num_labels, "labels")
        self.utts = read_lines(self.path / "utts")
        if len(self.utts) != self.manifest.num_utts:
            raise UserError(f"{self.path / 'utts'} has {len(self.utts)} utterances, the manifest says {self.manifest.num_utts}; pack the "
                            "store again.")

    def _offsets(self, name: str, total: int, what: str) -> np.ndarray:
        path = self.path / name
        try:
            with named(path):
                offsets = np.load(path, allow_pickle=False)
        except numpy_damage() as error:
            if of_the_machine(error):
                raise
            raise UserError(f"{path} is missing or damaged ({reason(error)}); pack the store again.") from error
        sound = offsets.shape == (self.manifest.num_utts + 1,) and offsets.dtype == np.int64 and offsets[0] == 0
        if not sound or offsets[-1] != total or (np.diff(offsets) < 0).any():
            raise UserError(f"{path} does not divide the {total} {what} of the manifest among its "
                            f"{self.manifest.num_utts} utterances; pack the store again.")
        return offsets

    def __len__(self) -> int:
        return self.manifest.num_frames

    def verify(self) -> None:
        """Compare every file with its checksum; raises UserError at the first that differs."""
        verify(self.path, self.manifest.checksums)

    def counts(self) -> np.ndarray:
        """The number of frames of each pdf, (num_pdfs,), from which priors are made.

        Soft targets and frame weights count where the store has them.
        """
        pdfs = self.targets if self.posterior_pdfs is None else self.posterior_pdfs
        plain = self.weights is None and self.posterior_probs is None
        counts = np.zeros(self.manifest.num_pdfs, np.int64 if plain else np.float64)
        for first in range(0, len(self), COUNTED):  # a part at a time: of all frames at once, the numbers would take more than the store
            chosen = slice(first, first + COUNTED)
            if plain:
                counts += np.bincount(pdfs[chosen].ravel(), minlength=len(counts))
                continue
            amounts = np.ones((len(pdfs[chosen]), 1)) if self.weights is None else self.weights[chosen, None].astype(np.float64)
            amounts = amounts if self.posterior_probs is None else amounts * self.posterior_probs[chosen]
            np.add.at(counts, pdfs[chosen].ravel(), amounts.ravel())
        return counts


@dataclass
class Extras:
    """The optional contents of a store, by utterance: frame weights (T,), soft targets, target features (T, dim)."""

    frame_weights: Mapping[str, np.ndarray] | None = None
    posteriors: Mapping[str, Posterior] | None = None
    target_feats: Mapping[str, np.ndarray] | None = None
    max_posteriors: int = 0  # pdfs of a frame's soft target that are kept; 0: all
    labels: Mapping[str, np.ndarray] | None = None  # label sequences for CTC, of 1 .. num_tokens - 1
    num_tokens: int = 0

    def of(self, utt: str) -> dict[str, np.ndarray | Posterior | None]:
        """The optional contents of an utterance, by their names in words."""
        found = {"frame weights": self.frame_weights, "posteriors": self.posteriors, "target features": self.target_feats}
        return {name: table.get(utt) for name, table in found.items() if table is not None}

    def num_posteriors(self) -> int:
        """The largest number of pairs of a frame, within the limit; 0 without soft targets."""
        if self.posteriors is None:
            return 0
        most = max((int(np.diff(p.offsets).max(initial=1)) for p in self.posteriors.values()), default=1)
        return min(most, self.max_posteriors or most)


def padded(posterior: Posterior, frames: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Soft targets as (pdfs, probabilities), each (frames, width), the likeliest first.

    Where pairs are left out, the rest are scaled to the same sum.
    """
    offsets = posterior.offsets[: frames + 1]
    ids, probs, lengths = posterior.ids[: offsets[-1]], posterior.weights[: offsets[-1]], np.diff(offsets)
    frame = np.repeat(np.arange(frames), lengths)
    order = np.lexsort((-probs, frame))
    rank = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    kept = rank < width
    pdfs, amounts = np.zeros((frames, width), np.int32), np.zeros((frames, width), np.float32)
    pdfs[frame[kept], rank[kept]], amounts[frame[kept], rank[kept]] = ids[order][kept], probs[order][kept]
    if not kept.all():
        total, rest = np.bincount(frame, probs, frames), amounts.sum(1, dtype=np.float64)
        amounts *= np.divide(total, rest, out=np.ones(frames), where=rest > 0)[:, None].astype(np.float32)
    return pdfs, amounts


class Unlabelled:
    """What stands in the place of an alignment where there is none: the likeliest pdf of each frame's soft target, else pdf 0.

    `features` makes the features of an utterance; those asked for last are kept, as their number is wanted before they are.
    """

    provenance: Mapping[str, Any] = {}

    def __init__(self, features: Callable[[str], np.ndarray], posteriors: Mapping[str, Posterior] | None, num_pdfs: int) -> None:
        self._make, self._posteriors, self.num_pdfs = features, posteriors, num_pdfs
        self._last: tuple[str, np.ndarray] | None = None

    def features(self, utt: str) -> np.ndarray:
        """The features of an utterance (T, dim)."""
        if self._last is None or self._last[0] != utt:
            self._last = utt, self._make(utt)
        return self._last[1]

    def pdfs(self, utt: str) -> np.ndarray | None:
        """The pdf of each frame (T,), int32; None where the utterance has no soft target, though others have."""
        if self._posteriors is None:
            return np.zeros(len(self.features(utt)), np.int32)
        posterior = self._posteriors.get(utt)
        return None if posterior is None else padded(posterior, len(posterior), 1)[0][:, 0]


def pack(utts: Iterable[str], features: Callable[[str], np.ndarray], alignment: Callable[[str], np.ndarray | None], num_pdfs: int,
         path: str | os.PathLike[str], dtype: str = "float32", provenance: dict[str, Any] | None = None,
         extras: Extras | None = None) -> StoreManifest:
    """Pack utterances into a store at `path`; an older store there is replaced.

    `features(utt)` is float32 (T, dim); `alignment(utt)` the pdf of each frame, or None where there is none. An utterance without
    alignment or one of the `extras`, or whose lengths differ by more than 5 frames, is skipped and listed in the manifest; smaller
    differences are trimmed at the end. Raises UserError for a pdf out of range, features of changing dimension or not finite, and where
    nothing is left.
    """
    path, extras = Path(path), extras or Extras()
    path.mkdir(parents=True, exist_ok=True)
    for old in ("manifest.json", "label_offsets.npy", *DTYPES):
        (path / old).unlink(missing_ok=True)
    offsets, label_offsets, kept, skipped, trimmed = [0], [0], [], {}, 0
    dim = target_dim = 0
    num_posteriors = extras.num_posteriors()
    with contextlib.ExitStack() as stack:
        sinks: dict[str, Sink] = {}
        for utt in utts:
            parts: dict[str, Any] = {"alignment": alignment(utt), **extras.of(utt)}
            if missing := [name for name, part in parts.items() if part is None]:
                skipped[utt] = f"no {missing[0]}"
                continue
            feats = features(utt)
            lengths = {name: len(part) for name, part in parts.items()}
            if far := [name for name, length in lengths.items() if abs(len(feats) - length) > TRIM_TOLERANCE]:
                skipped[utt] = f"{len(feats)} frames of features, {lengths[far[0]]} of {far[0]}"
                continue
            length = min(len(feats), *lengths.values())
            trimmed += length != max(len(feats), *lengths.values())
            arrays = {"feats.bin": feats[:length], "targets.bin": parts["alignment"][:length]}
            dim = dim or feats.shape[1]
            _check(utt, arrays["feats.bin"], arrays["targets.bin"], dim, num_pdfs)
            if "frame weights" in parts:
                arrays["weights.bin"] = _frame_weights(utt, parts["frame weights"])[:length]
            if "posteriors" in parts:
                _check_posterior(utt, parts["posteriors"], num_pdfs)
                arrays["posterior_pdfs.bin"], arrays["posterior_probs.bin"] = padded(parts["posteriors"], length, num_posteriors)
            if "target features" in parts:
                target_dim = target_dim or parts["target features"].shape[-1]
                arrays["target_feats.bin"] = parts["target features"][:length]
                _check_features(utt, "target features", arrays["target_feats.bin"], target_dim)
            if extras.labels is not None:
                labels = extras.labels.get(utt)
                if unfit := _unfit(labels, length, extras.num_tokens):
                    skipped[utt] = unfit
                    continue
                arrays["labels.bin"] = labels
            for name, array in arrays.items():
                if name not in sinks:
                    sinks[name] = Sink(stack.enter_context(atomic_open(path / name, "wb")))
                with np.errstate(over="ignore"):
                    stored = array.astype(DTYPES.get(name, dtype), copy=False)
                if name == "feats.bin" and not np.isfinite(stored).all():
                    raise UserError(f"{utt}: features up to {np.abs(array).max():.3g} are more than {dtype} holds; look at its audio, or "
                                    "pack with --store-dtype float32.")
                sinks[name].append(stored)
            offsets.append(offsets[-1] + length)
            label_offsets.append(label_offsets[-1] + len(arrays.get("labels.bin", ())))
            kept.append(utt)
        if not kept:
            reason = f": {next(iter(skipped.values()))} for {next(iter(skipped))}" if skipped else ""
            raise UserError(f"no utterance of the data has both features and an alignment{reason}; are they of the same data directory?")
    save_array(path / "offsets.npy", np.asarray(offsets, dtype=np.int64))
    if extras.labels is not None:
        save_array(path / "label_offsets.npy", np.asarray(label_offsets, dtype=np.int64))
    write_text(path / "utts", "".join(f"{utt}\n" for utt in kept))
    checksums = {name: sink.digest.hexdigest() for name, sink in sinks.items()}
    checksums |= {name: checksum(path / name) for name in ("offsets.npy", "label_offsets.npy", "utts") if (path / name).is_file()}
    manifest = StoreManifest(num_frames=offsets[-1], num_utts=len(kept), dim=dim, num_pdfs=num_pdfs, num_posteriors=num_posteriors,
                        target_dim=target_dim, dtype=dtype, checksums=checksums,
                        provenance=provenance or {}, skipped=skipped, trimmed=trimmed, num_labels=label_offsets[-1],
                        num_tokens=extras.num_tokens)
    write_manifest(path / "manifest.json", manifest)
    return manifest


def _unfit(labels: np.ndarray | None, frames: int, num_tokens: int) -> str:
    """Why an utterance of so many frames cannot have this label sequence; empty where it can.

    A label takes a frame, and so does a blank between equal labels.
    """
    if labels is None or not len(labels):
        return "no labels"
    if not 1 <= labels.min() <= labels.max() < num_tokens:
        return f"a label {labels.max()} where there are 1 to {num_tokens - 1}"
    needed = len(labels) + int((labels[1:] == labels[:-1]).sum())
    return f"{frames} frames, too few for its {len(labels)} labels" if frames < needed else ""


def _check(utt: str, feats: np.ndarray, pdfs: np.ndarray, dim: int, num_pdfs: int) -> None:
    _check_features(utt, "features", feats, dim)
    if len(pdfs) and not 0 <= pdfs.min() <= pdfs.max() < num_pdfs:
        raise UserError(f"{utt}: alignment has pdf {pdfs.max()}, the model has {num_pdfs}; they are of different systems.")


def _check_features(utt: str, name: str, feats: np.ndarray, dim: int) -> None:
    if feats.ndim != 2 or feats.shape[1] != dim:
        raise UserError(f"{utt}: {name} of dimension {feats.shape[-1]}, those before had {dim}; make the {name} again with one config.")
    if not np.isfinite(feats).all():
        raise UserError(f"{utt}: {name} are not finite; look at its audio and make the {name} again.")


def _frame_weights(utt: str, weights: np.ndarray) -> np.ndarray:
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise UserError(f"{utt}: frame weights are to be a vector of numbers that are not negative.")
    return weights


def _check_posterior(utt: str, posterior: Posterior, num_pdfs: int) -> None:
    ids, probs = posterior.ids, posterior.weights
    if len(ids) and not 0 <= ids.min() <= ids.max() < num_pdfs:
        raise UserError(f"{utt}: posteriors of pdf {ids.max()}, the model has {num_pdfs}; turn transition-ids into pdfs, or take the "
                        "alignment's model.")
    if not (np.isfinite(probs) & (probs >= 0)).all():
        raise UserError(f"{utt}: posteriors are to be numbers that are not negative.")
