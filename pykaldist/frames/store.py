"""The frame store: a training set packed once into flat memory-mapped arrays.

    feats.bin      frames x dim, float16, float32 or uint8: features as the model's pipeline makes them (CMVN applied), not spliced
    targets.bin    frames, int32: the pdf of each frame
    offsets.npy    utterances + 1, int64: utterance u is frames offsets[u]:offsets[u + 1]
    utts           one utterance a line
    statistics.npy sums over the features (frames/statistics.py)
    counts.npy     num_pdfs, int64 or float64: frames of each pdf, as weights and soft targets count them
    manifest.json  counts, dims, checksums, provenance; written last: a folder without it is no store
and where they were packed with it
    scales.bin           utterances x 4 x dim, float32: what features in 8 bits stand for (frames/compressed.py)
    weights.bin          frames, float32: what each frame counts
    posterior_pdfs.bin   frames x num_posteriors, int32: soft targets' pdfs, the likeliest first, and
    posterior_probs.bin  frames x num_posteriors, float32: their probabilities; places that a frame does not need are pdf 0 with 0
    target_feats.bin     frames x target_dim, float32: features as targets
    labels.bin, label_offsets.npy   label sequences for CTC, where there are such

A store may consist of others, its shards (frames/shards.py). Then it has no arrays of its own but

    pieces.npy     pieces x 4, int64: shard, its first utterance, the end of its utterances, its first frame, piece by piece

and the manifest names the shards. Their arrays are mapped into memory as one, with gaps between them: *rows* are places in these arrays,
*frames* are numbered without gaps.

Splicing is a gather on rows when a minibatch is made, so that the store is not 11 times its size.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shlex
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.frames.compressed import compress, expanded
from pykaldist.frames.items import load_array, load_utts
from pykaldist.frames.mapped import Manifest, Sink, aligned_starts, mapped, mapped_together, read_manifest, verify, write_manifest
from pykaldist.frames.remote_array import RemoteArray
from pykaldist.frames.runs import Runs
from pykaldist.frames.statistics import Statistics, of_utterances
from pykaldist.io.atomic import atomic_open
from pykaldist.io.npy import save_array
from pykaldist.io.posteriors import Posterior
from pykaldist.io.provenance import checksum
from pykaldist.io.remote import beside, cache_folder, is_remote, part_cache, read_remote
from pykaldist.io.schema import require

FORMAT = 4
CURE = "pack the store again (steps/nnet/pack.sh)"
MAX_PDFS = 10_000_000  # more are damage
DTYPES = {"targets.bin": np.int32, "weights.bin": np.float32, "posterior_pdfs.bin": np.int32, "posterior_probs.bin": np.float32,
          "target_feats.bin": np.float32, "labels.bin": np.int32, "scales.bin": np.float32}  # of the files besides the features
STORE_DTYPES = ("float32", "float16", "uint8")  # of the features
TRIM_TOLERANCE = 5  # frames by which features and alignment may differ (nnet1's default)


@dataclass
class Shard:
    """A store that is a part of another: its folder, relative to that one, the checksum in its manifest, and its frames and utterances."""

    path: str
    checksum: str
    num_frames: int
    num_utts: int


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
    weighted: bool = False  # whether frames have weights
    shards: list[Shard] = field(default_factory=list)  # of which the store consists; empty: it has arrays of its own
    format: int = FORMAT

    def __post_init__(self) -> None:
        for name in ("num_frames", "num_utts", "dim"):
            number = getattr(self, name)
            require(number >= 0 if self.empty else number > 0, name, number, "a positive number")
        require(self.num_pdfs > 0, "num_pdfs", self.num_pdfs, "a positive number")
        for name in ("num_posteriors", "target_dim", "num_labels", "num_tokens"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(self.num_pdfs <= MAX_PDFS, "num_pdfs", self.num_pdfs, f"at most {MAX_PDFS}")
        require(self.dtype in STORE_DTYPES, "dtype", repr(self.dtype), f"one of {', '.join(STORE_DTYPES)}")
        arrays = ["pieces.npy"] if self.shards else [] if self.empty else self.arrays()
        files = [*arrays, "offsets.npy", "utts", "statistics.npy", "counts.npy", *["label_offsets.npy"] * (self.num_labels > 0)]
        require(sorted(self.checksums) == sorted(files), "checksums", f"of {', '.join(self.checksums) or 'nothing'}",
                f"those of {', '.join(files)}")

    @property
    def empty(self) -> bool:
        """Whether it is of no utterance, as a shard may be."""
        return not (self.num_utts or self.num_frames or self.dim)

    def arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The type and shape of each array, by the name of its file."""
        frames: dict[str, tuple[int, ...]] = {"feats.bin": (self.dim,), "targets.bin": ()}
        if self.weighted:
            frames["weights.bin"] = ()
        if self.num_posteriors:
            frames["posterior_pdfs.bin"] = frames["posterior_probs.bin"] = (self.num_posteriors,)
        if self.target_dim:
            frames["target_feats.bin"] = (self.target_dim,)
        arrays = {name: (np.dtype(DTYPES.get(name, self.dtype)), (self.num_frames, *shape)) for name, shape in frames.items()}
        if self.num_labels:
            arrays["labels.bin"] = np.dtype(DTYPES["labels.bin"]), (self.num_labels,)
        if self.dtype == "uint8":
            arrays["scales.bin"] = np.dtype(DTYPES["scales.bin"]), (self.num_utts, 4, self.dim)
        return arrays

    def identity(self) -> dict[str, str]:
        """The checksums of all that the store holds, by name."""
        return {**self.checksums, **{f"{shard.path}/manifest.json": shard.checksum for shard in self.shards}}


Place = Path | str  # a folder of this machine, or the address of a remote one


def index_of(url: str) -> Path:
    """A folder with the small files of a remote store, which are read from there now."""
    folder = cache_folder() / "stores" / hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
    names = ["manifest.json"]
    for name in names:
        with atomic_open(folder / name, "wb") as stream:
            stream.write(read_remote(f"{url}/{name}"))
        if name == "manifest.json":
            small = {name: value for name, value in read_store_manifest(folder).checksums.items() if not name.endswith(".bin")}
            names += small
    verify(folder, small)
    return folder


def read_store_manifest(path: Path) -> StoreManifest:
    """Read the manifest of the store in a folder; raises UserError where there is none."""
    if not (path / "manifest.json").is_file():
        raise UserError(f"{path} is no frame store (it has no manifest.json); run steps/nnet/pack.sh again.")
    return read_manifest(path / "manifest.json", StoreManifest, CURE, FORMAT)


class FrameStore:
    """A packed training set, memory-mapped; nothing is read until it is used.

    `feats` (rows, dim) and `targets` (rows,) are numpy arrays over the files, and so are `weights`, `posterior_pdfs`, `posterior_probs`
    and `target_feats`, or None. `offsets` (utterances + 1,): the frames of each utterance; `runs`: the rows of frames, `starts`
    (utterances,): those of utterances' first frames. `scales`: of features in 8 bits, of the rows `scale_rows` (utterances,).
    `remote`: frames are on other machines, and slices of the arrays are read when asked for (frames/remote_array.py). `origin`: the address
    of a remote store whose small files are in the folder.
    Raises UserError where the folder is no finished store or a file has not the size that the manifest states.
    """

    def __init__(self, path: str | os.PathLike[str], origin: str = "") -> None:
        self.path, self._origin = Path(path), origin
        self.manifest = manifest = read_store_manifest(self.path)
        if manifest.empty:
            raise UserError(f"{path} is a shard without utterances; train on the store that it belongs to.")
        self.offsets = self._offsets("offsets.npy", manifest.num_frames, "frames")
        self.pieces = self._pieces()
        self.remote = any(map(is_remote, self.shard_folders()))
        arrays = self._joined() if manifest.shards or self.remote else \
            {name: mapped(self.path / name, *form) for name, form in manifest.arrays().items()}
        self.feats, self.targets = arrays["feats.bin"], arrays["targets.bin"]
        self.weights, self.target_feats, self.scales = (arrays.get(f"{name}.bin") for name in ("weights", "target_feats", "scales"))
        self.posterior_pdfs, self.posterior_probs = arrays.get("posterior_pdfs.bin"), arrays.get("posterior_probs.bin")
        self.labels, self.label_offsets = arrays.get("labels.bin"), None
        self.starts, self.scale_rows = self.runs.rows(self.offsets[:-1]), self._of_utts.rows(np.arange(manifest.num_utts))
        if self.labels is not None:
            self.label_offsets = self._offsets("label_offsets.npy", manifest.num_labels, "labels")
        self.utts = load_utts(self.path, manifest.num_utts, manifest.checksums, CURE)

    def _pieces(self) -> np.ndarray:
        """The pieces of which the store consists, int64 (pieces, 4): shard, its first utterance and its end, its first frame."""
        shards = self.manifest.shards
        if not shards:
            return np.array([[0, 0, self.manifest.num_utts, 0]])
        path = self.path / "pieces.npy"
        pieces = load_array(self.path, path.name, self.manifest.checksums, CURE)
        sound = pieces.dtype == np.int64 and pieces.ndim == 2 and pieces.shape[1] == 4 and len(pieces) > 0
        if sound:
            shard, first, end, frame = pieces.T
            sound = (pieces >= 0).all() and shard.max() < len(shards) and (first < end).all() and \
                (end - first).sum() == self.manifest.num_utts
        if sound:
            lengths = np.diff(self.offsets[np.cumsum(np.append(0, end - first))])
            utts, frames = (np.array([getattr(one, name) for one in shards])[shard] for name in ("num_utts", "num_frames"))
            sound = (end <= utts).all() and (frame + lengths <= frames).all()
        if not sound:
            raise UserError(f"{path} does not divide the manifest's {self.manifest.num_utts} utterances among its {len(shards)} shards; "
                            f"{self._combining()}.")
        return pieces

    def _joined(self) -> dict[str, Any]:
        """The arrays of all shards, by name, each as one; labels lie in memory, in the order of the store's utterances."""
        whole = Shard("", self.manifest.checksum, self.manifest.num_frames, self.manifest.num_utts)
        shards, folders = self.manifest.shards or [whole], self.shard_folders()
        for folder, shard in zip(folders, shards, strict=True):
            if isinstance(folder, Path) and read_store_manifest(folder).checksum != shard.checksum:
                raise UserError(f"{folder} was packed again, with another result, since {self.path} was made of it; "
                                f"{self._combining()}.")
        arrays: dict[str, Any] = {}
        versions = [shard.checksum for shard in shards]
        for name, (dtype, shape) in self.manifest.arrays().items():
            if name != "labels.bin":
                rows = [shard.num_utts if name == "scales.bin" else shard.num_frames for shard in shards]
                files: list[tuple[Place, int]] = [(_within(folder, name), n) for folder, n in zip(folders, rows, strict=True)]
                arrays[name] = RemoteArray(files, versions, dtype, shape[1:], part_cache()) if self.remote else \
                    mapped_together([(Path(file), n) for file, n in files], dtype, shape[1:])
        if self.manifest.num_labels:
            if self.remote:
                raise UserError(f"{self.path} has label sequences, and shards on other machines; copy these here.")
            shards_labels = [FrameStore(folder).labels_of for folder in folders]
            arrays["labels.bin"] = np.concatenate([shards_labels[n](first, end) for n, first, end in self.pieces[:, :3].tolist()])
        return arrays

    def labels_of(self, first: int, end: int) -> np.ndarray:
        """The labels of utterances number `first` to `end` - 1, one behind the other."""
        assert self.labels is not None and self.label_offsets is not None
        return self.labels[self.label_offsets[first] : self.label_offsets[end]]

    def _offsets(self, name: str, total: int, what: str) -> np.ndarray:
        path = self.path / name
        offsets = load_array(self.path, name, self.manifest.checksums, CURE)
        sound = offsets.shape == (self.manifest.num_utts + 1,) and offsets.dtype == np.int64 and offsets[0] == 0
        if not sound or offsets[-1] != total or (np.diff(offsets) < 0).any():
            raise UserError(f"{path} does not divide the {total} {what} of the manifest among its {self.manifest.num_utts} utterances; "
                            "pack the store again (steps/nnet/pack.sh).")
        return offsets

    def shard_folders(self) -> list[Place]:
        """The folders of the shards, or their addresses; its own where it has none."""
        if self._origin:
            return [beside(self._origin, shard.path) for shard in self.manifest.shards] or [self._origin]
        return [shard.path if is_remote(shard.path) else Path(os.path.normpath(self.path / shard.path)) for shard in self.manifest.shards] \
            or [self.path]

    def _combining(self) -> str:
        """The cure of a store of shards that are not as they were."""
        folders = [folder.parent if isinstance(folder, Path) else folder.rpartition("/")[0] for folder in self.shard_folders()]
        return f"combine them again: pykaldist combine-stores {shlex.join([str(self.path.parent), *map(str, folders)])}"

    @functools.cached_property
    def runs(self) -> Runs:
        """The rows in which the frames lie."""
        starts = aligned_starts([shard.num_frames for shard in self.manifest.shards] or [0])
        edges = self.offsets[np.cumsum(np.append(0, self.pieces[:, 2] - self.pieces[:, 1]))]
        return Runs(edges[:-1], edges[1:], starts[self.pieces[:, 0]] + self.pieces[:, 3])

    @functools.cached_property
    def _of_utts(self) -> Runs:
        """The rows that utterances have in arrays with a row an utterance."""
        starts = aligned_starts([shard.num_utts for shard in self.manifest.shards] or [0])
        edges = np.cumsum(np.append(0, self.pieces[:, 2] - self.pieces[:, 1]))
        return Runs(edges[:-1], edges[1:], starts[self.pieces[:, 0]] + self.pieces[:, 1])

    def __len__(self) -> int:
        return self.manifest.num_frames

    def statistics(self, reach: int) -> Statistics:
        """The sums from which the statistics of splices within `reach` follow; those of wider ones than pack has kept are read anew."""
        path = self.path / "statistics.npy"
        limbs = load_array(self.path, path.name, self.manifest.checksums, CURE)
        like = Statistics.empty(self.manifest.dim).limbs
        if limbs.shape != like.shape or limbs.dtype != like.dtype:
            raise UserError(f"{path} is {limbs.dtype} {limbs.shape}, expected {like.dtype} {like.shape}; {CURE}.")
        kept = Statistics(limbs)
        return kept if reach <= kept.reach else of_utterances(map(self.features, range(len(self.utts))), self.manifest.dim, reach)

    def features(self, utt: int) -> np.ndarray:
        """The features of an utterance, by its number: float32 (T, dim)."""
        feats = self.feats[self.starts[utt] : self.starts[utt] + self.offsets[utt + 1] - self.offsets[utt]]
        return np.asarray(feats, np.float32) if self.scales is None else expanded(feats, self.scales[self.scale_rows[utt]])

    def verify(self) -> None:
        """Compare every file with its checksum, those of shards on this machine too; raises UserError at the first that differs.

        Of shards on other machines, whether they are still those that the store was made of.
        """
        verify(self.path, self.manifest.checksums)
        if self.manifest.shards:
            for folder in self._own_shards():
                verify(folder, read_store_manifest(folder).checksums)
            for place, shard in zip(self.shard_folders(), self.manifest.shards, strict=True):
                if isinstance(place, str) and read_store_manifest(index_of(place)).checksum != shard.checksum:
                    raise UserError(f"{place} was packed again, with another result, since {self.path} was made of it; "
                                    f"{self._combining()}.")

    def _own_shards(self) -> list[Path]:
        return [folder for folder in self.shard_folders() if isinstance(folder, Path)]

    def files(self) -> list[Path]:
        """All files that have checksums, those of shards too."""
        own = [self.path / name for name in self.manifest.checksums]
        shards = self._own_shards() if self.manifest.shards else []
        return own + [folder / name for folder in shards for name in read_store_manifest(folder).checksums]

    def counts(self) -> np.ndarray:
        """The number of frames of each pdf, (num_pdfs,), from which priors are made: int64, or float64 where they are no whole numbers.

        Soft targets and frame weights count where the store has them.
        """
        counts = load_array(self.path, "counts.npy", self.manifest.checksums, CURE)
        if counts.shape != (self.manifest.num_pdfs,) or counts.dtype not in (np.int64, np.float64):
            raise UserError(f"{self.path / 'counts.npy'} is {counts.dtype} {counts.shape}, the manifest has {self.manifest.num_pdfs} pdfs; "
                            f"{CURE}.")
        return counts


def _within(folder: Place, name: str) -> Place:
    return folder / name if isinstance(folder, Path) else f"{folder}/{name}"


def no_counts(num_pdfs: int, weighted: bool, soft: bool) -> np.ndarray:
    """Counts of pdfs before any frame: whole numbers, unless frames are weighted or targets soft."""
    return np.zeros(num_pdfs, np.float64 if weighted or soft else np.int64)


def count(counts: np.ndarray, pdfs: np.ndarray, weights: np.ndarray | None, probs: np.ndarray | None) -> None:
    """Add the pdfs of frames, (T,) or (T, number), to counts, one frame after the other."""
    if weights is None and probs is None:
        counts += np.bincount(pdfs.ravel(), minlength=len(counts))
        return
    amounts = np.ones((len(pdfs), 1)) if weights is None else weights[:, None].astype(np.float64)
    np.add.at(counts, pdfs.ravel(), (amounts if probs is None else amounts * probs).ravel())


@dataclass
class Extras:
    """The optional contents of a store, by utterance: frame weights (T,), soft targets, target features (T, dim)."""

    frame_weights: Mapping[str, np.ndarray] | None = None
    posteriors: Mapping[str, Posterior] | None = None
    target_feats: Mapping[str, np.ndarray] | None = None
    max_posteriors: int = 0  # pdfs of a frame's soft target that are kept; 0: all
    labels: Mapping[str, np.ndarray] | None = None  # label sequences for CTC, of 1 .. num_tokens - 1
    num_tokens: int = 0
    most_posteriors: int | None = None  # pairs of the frame that has most, where `posteriors` are not all that there are

    def of(self, utt: str) -> dict[str, np.ndarray | Posterior | None]:
        """The optional contents of an utterance, by their names in words."""
        found = {"frame weights": self.frame_weights, "posteriors": self.posteriors, "target features": self.target_feats}
        return {name: table.get(utt) for name, table in found.items() if table is not None}

    def num_posteriors(self) -> int:
        """The largest number of pairs of a frame, within the limit; 0 without soft targets."""
        if self.posteriors is None:
            return 0
        most = self.most_posteriors
        if most is None:
            most = max(map(most_pairs, self.posteriors.values()), default=1)
        return min(most, self.max_posteriors or most)


def most_pairs(posterior: Posterior) -> int:
    """The number of pairs of the frame that has most, at least 1."""
    return int(np.diff(posterior.offsets).max(initial=1))


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
        self._make, self.posteriors, self.num_pdfs = features, posteriors, num_pdfs
        self._last: tuple[str, np.ndarray] | None = None

    def features(self, utt: str) -> np.ndarray:
        """The features of an utterance (T, dim)."""
        if self._last is None or self._last[0] != utt:
            self._last = utt, self._make(utt)
        return self._last[1]

    def pdfs(self, utt: str) -> np.ndarray | None:
        """The pdf of each frame (T,), int32; None where the utterance has no soft target, though others have."""
        if self.posteriors is None:
            return np.zeros(len(self.features(utt)), np.int32)
        posterior = self.posteriors.get(utt)
        return None if posterior is None else padded(posterior, len(posterior), 1)[0][:, 0]


def pack(utts: Iterable[str], features: Callable[[str], np.ndarray | str], alignment: Callable[[str], np.ndarray | None], num_pdfs: int,
         path: str | os.PathLike[str], dtype: str = "float32", provenance: dict[str, Any] | None = None,
         extras: Extras | None = None, may_be_empty: bool = False) -> StoreManifest:
    """Pack utterances into a store at `path`; an older store there is replaced. A shard of a store may be without utterances.

    `features(utt)` is float32 (T, dim), or says in words why there are none; `alignment(utt)` is the pdf of each frame, or None where there
    is none. An utterance without features, alignment or one of the `extras`, or whose lengths differ by more than 5 frames, is skipped and
    listed in the manifest; smaller differences are trimmed at the end. Raises UserError for a pdf out of range, features of changing
    dimension or not finite, and where nothing is left.
    """
    path, extras = Path(path), extras or Extras()
    path.mkdir(parents=True, exist_ok=True)
    for old in ("manifest.json", "label_offsets.npy", "pieces.npy", *DTYPES):
        (path / old).unlink(missing_ok=True)
    for unfinished in path.glob(".*.tmp"):  # of a run that was killed
        unfinished.unlink(missing_ok=True)
    offsets, label_offsets, trimmed = array("q", [0]), array("q", [0]), 0
    skipped: dict[str, str] = {}
    dim = target_dim = 0
    statistics, counts = Statistics.empty(0), no_counts(num_pdfs, extras.frame_weights is not None, extras.posteriors is not None)
    num_posteriors = extras.num_posteriors()
    with contextlib.ExitStack() as stack:
        sinks: dict[str, Sink] = {}
        names = stack.enter_context(atomic_open(path / "utts"))
        for utt in utts:
            parts: dict[str, Any] = {"alignment": alignment(utt), **extras.of(utt)}
            if missing := [name for name, part in parts.items() if part is None]:
                skipped[utt] = f"no {missing[0]}"
                continue
            feats = features(utt)
            if isinstance(feats, str):
                skipped[utt] = feats
                continue
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
            stored, as_read = _stored(utt, arrays.pop("feats.bin"), dtype)
            if len(offsets) == 1:
                statistics = Statistics.empty(dim)
            if length:
                statistics.add(as_read)
            arrays = {name: array.astype(DTYPES[name], copy=False) for name, array in arrays.items()}
            soft = arrays.get("posterior_probs.bin")
            count(counts, arrays["targets.bin"] if soft is None else arrays["posterior_pdfs.bin"], arrays.get("weights.bin"), soft)
            for name, rows in {**stored, **arrays}.items():
                if name not in sinks:
                    sinks[name] = Sink(stack.enter_context(atomic_open(path / name, "wb")))
                sinks[name].append(rows)
            offsets.append(offsets[-1] + length)
            label_offsets.append(label_offsets[-1] + len(arrays.get("labels.bin", ())))
            names.write(f"{utt}\n")
        if len(offsets) == 1 and not may_be_empty:
            reason = f": {next(iter(skipped.values()))} for {next(iter(skipped))}" if skipped else ""
            raise UserError(f"no utterance of the data has both features and an alignment{reason}; are they of the same data directory?")
    labelled = np.frombuffer(label_offsets, np.int64) if label_offsets[-1] else None
    checksums = {name: sink.digest.hexdigest() for name, sink in sinks.items()}
    checksums |= write_index(path, np.frombuffer(offsets, np.int64), labelled, statistics, counts)
    manifest = StoreManifest(num_frames=offsets[-1], num_utts=len(offsets) - 1, dim=dim, num_pdfs=num_pdfs, num_posteriors=num_posteriors,
                             target_dim=target_dim, dtype=dtype, checksums=checksums, provenance=provenance or {}, skipped=skipped,
                             trimmed=trimmed, num_labels=label_offsets[-1], num_tokens=extras.num_tokens,
                             weighted=extras.frame_weights is not None)
    write_manifest(path / "manifest.json", manifest)
    return manifest


def write_index(path: Path, offsets: np.ndarray, label_offsets: np.ndarray | None, statistics: Statistics,
                counts: np.ndarray) -> dict[str, str]:
    """Write the small files of a store, in which `utts` is already; returns the checksums of all of them, by name."""
    arrays = {"offsets.npy": offsets, "statistics.npy": statistics.limbs, "counts.npy": counts}
    if label_offsets is not None:
        arrays["label_offsets.npy"] = label_offsets
    for name, numbers in arrays.items():
        save_array(path / name, numbers)
    return {name: checksum(path / name) for name in (*arrays, "utts")}


def _stored(utt: str, feats: np.ndarray, dtype: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Features as a store keeps them, by the names of its files, and as they are read from there."""
    if dtype == "uint8":
        values, scales = compress(feats) if len(feats) else (feats.astype(np.uint8), np.zeros((4, feats.shape[1]), np.float32))
        return {"feats.bin": values, "scales.bin": scales[None]}, expanded(values, scales)
    with np.errstate(over="ignore"):
        stored = feats.astype(dtype, copy=False)
    if not np.isfinite(stored).all():
        raise UserError(f"{utt}: features up to {np.abs(feats).max():.3g} are more than {dtype} holds; look at its audio, or pack with "
                        "--store-dtype float32.")
    return {"feats.bin": stored}, stored


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
        raise UserError(f"{utt}: {name} of dimension {feats.shape[-1]}, those before had {dim}; make the {name} again with one config "
                        f"({FEATURES}).")
    if not np.isfinite(feats).all():
        raise UserError(f"{utt}: {name} are not finite; look at its audio and make the {name} again ({FEATURES}).")


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
