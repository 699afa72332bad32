"""Stores that consist of others, without a copy of them: shards that jobs have packed, several stores together, a part of one.

Such a store has no arrays of its own. It is a list of pieces, runs of utterances of its shards, whose frames are numbered one piece after
the other. Its utterances, offsets and statistics are those of a store that was packed in this order, byte for byte, and so is what is
trained on it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.frames.mapped import write_manifest
from pykaldist.frames.statistics import Statistics, of_utterances
from pykaldist.frames.store import FrameStore, Place, Shard, StoreManifest, count, index_of, no_counts, read_store_manifest, write_index
from pykaldist.io.atomic import write_text
from pykaldist.io.npy import save_array
from pykaldist.io.provenance import checksum
from pykaldist.io.remote import is_remote
from pykaldist.io.tables import read_lines
from pykaldist.progress import progress

SHARDS = "shards"  # the folder of a store's own shards
JOBS = "jobs"  # in the provenance of a shard: of how many jobs it is one's
SAME = ("dim", "num_pdfs", "num_posteriors", "target_dim", "dtype", "num_tokens", "weighted")  # in all shards of a store
_ARRAYS = ("feats.bin", "targets.bin", "scales.bin", "weights.bin", "posterior_pdfs.bin", "posterior_probs.bin", "target_feats.bin",
           "labels.bin")


@dataclass
class _Part:
    """Utterances that are to be in a store: of which store, and their numbers there, ascending."""

    store: FrameStore
    utts: np.ndarray


def combine(path: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]],
            provenance: dict[str, Any] | None = None) -> StoreManifest:
    """Make a store at `path` of the utterances of others, in this order; those without utterances add what they have skipped.

    A source may be the address of a remote store (io/remote.py), whose frames stay where they are.

    Raises UserError where two have the same utterance, or are of different systems.
    """
    places = [(index_of(str(source)), str(source)) if is_remote(source) else (Path(source), "")
              for source in progress(sources, f"stores of {Path(path).name}", unit="store")]
    manifests = [read_store_manifest(folder) for folder, _ in places]
    stores = [FrameStore(*place) for place, manifest in zip(places, manifests, strict=True) if not manifest.empty]
    if not stores:
        raise UserError(f"none of {', '.join(map(str, sources))} has an utterance; are the features and alignments of the same data?")
    skipped = {utt: why for manifest in manifests for utt, why in manifest.skipped.items()}
    statistics = Statistics.empty(stores[0].manifest.dim)
    for store in stores:
        _check_same(stores[0], store)
        statistics.merge(store.statistics(0))
    return _write(Path(path), [_Part(store, np.arange(len(store.utts))) for store in stores], statistics, skipped,
                  sum(manifest.trimmed for manifest in manifests), provenance or {})


def shard_name(batch: int, job: int) -> str:
    """The folder of a job's shard: `1.<job>` of those that a store is first packed into, `2.<job>` of what is appended, and so on."""
    return f"{batch}.{job}"


def next_batch(path: Path) -> int:
    """The number that the shards have which are appended next to a store; the shards of a store that is whole count as its first."""
    shards = read_store_manifest(path).shards
    return 1 + max((int(Path(shard.path).name.split(".")[0]) for shard in shards if Path(shard.path).parent.name == SHARDS), default=1)


def join(path: Path, batch: int, jobs: int, provenance: dict[str, Any] | None = None) -> StoreManifest:
    """Make the store at `path` of the shards of all jobs; those of a later batch are appended to what it has.

    Shards whose utterances it has already are left out, as when the same is appended again. Raises UserError where one is missing.
    """
    folders = [path / SHARDS / shard_name(batch, job) for job in range(1, jobs + 1)]
    if missing := [job for job, folder in enumerate(folders, 1) if not (folder / "manifest.json").is_file()]:
        raise UserError(f"{path} lacks the shard of job {missing[0]} of {jobs} ({len(missing)} are missing); run pack with --nj {jobs} "
                        f"--job {missing[0]} again, then without --job.")
    _check_one_run(path, folders, jobs)
    if batch == 1:
        made = combine(path, folders, provenance)
        for old in set((path / SHARDS).iterdir()) - set(folders):
            shutil.rmtree(old)  # of an older store
        return made
    known, listed = set(read_lines(path / "utts")), {path / shard.path for shard in read_store_manifest(path).shards}
    fresh = [folder for folder in folders if not known.issuperset(read_lines(folder / "utts"))]
    for folder in set(folders) - set(fresh) - listed:
        shutil.rmtree(folder)
    return combine(path, [_as_shard(path), *fresh], provenance) if fresh else read_store_manifest(path)


def _check_one_run(path: Path, folders: Sequence[Path], jobs: int) -> None:
    """Check that shards are of one run of so many jobs; raises UserError where one is left of another."""
    origins = [read_store_manifest(folder).provenance for folder in folders]
    for job, origin in enumerate(origins, 1):
        number = origin.get(JOBS, jobs)
        if number != jobs:
            raise UserError(f"{path}: the shard of job {job} is one of {number} jobs, not of {jobs}; join with --nj {number}, or pack all "
                            f"shards with --nj {jobs}.")
        if differing := [name for name in {*origin, *origins[0]} if origin.get(name) != origins[0].get(name)]:
            name = min(differing)
            raise UserError(f"{path}: the shards of jobs 1 and {job} are not of one run ({name} {origins[0].get(name)}, "
                            f"{origin.get(name)}); pack the older one again with --nj {jobs} --job <job>.")


def _as_shard(path: Path) -> Path:
    """What a store is combined of beside others: itself, or, where it has arrays of its own, these in the folder of its first shard."""
    manifest = read_store_manifest(path)
    if manifest.shards:
        return path
    shard = path / SHARDS / shard_name(1, 1)
    shard.mkdir(parents=True, exist_ok=True)
    for name in (*manifest.checksums, "manifest.json"):
        (shard / name).unlink(missing_ok=True)
        os.link(path / name, shard / name)
    return shard


def subset(path: str | os.PathLike[str], store: FrameStore, utts: Collection[str],
           provenance: dict[str, Any] | None = None) -> StoreManifest:
    """Make a store at `path` of some of a store's utterances, in its order. Raises UserError where it has not all of them."""
    if missing := set(utts) - set(store.utts):
        raise UserError(f"{store.path} has not {len(missing)} of the {len(set(utts))} utterances, such as {min(missing)}.")
    wanted = set(utts)
    chosen = np.array([number for number, utt in enumerate(store.utts) if utt in wanted], np.int64)
    if not len(chosen):
        raise UserError(f"no utterance of {store.path} was chosen; look at the list.")
    statistics = of_utterances(map(store.features, chosen.tolist()), store.manifest.dim)
    return _write(Path(path), [_Part(store, chosen)], statistics, {}, 0, provenance or {})


def _check_same(one: FrameStore, other: FrameStore) -> None:
    for name in SAME:
        expected, found = getattr(one.manifest, name), getattr(other.manifest, name)
        if expected != found:
            raise UserError(f"{other.path} has {name} {found}, {one.path} {expected}; pack both with the same options, features and model "
                            "(steps/nnet/pack.sh).")


def _write(path: Path, parts: list[_Part], statistics: Statistics, skipped: dict[str, str], trimmed: int,
           provenance: dict[str, Any]) -> StoreManifest:
    """Write a store that consists of parts of others; an older one at `path` is replaced."""
    utts = [part.store.utts[number] for part in parts for number in part.utts.tolist()]
    if len(set(utts)) < len(utts):
        seen: set[str] = set()
        twice = next(utt for utt in utts if utt in seen or seen.add(utt))  # type: ignore[func-returns-value]  # add gives None
        raise UserError(f"{twice} is in several of the stores; an utterance can be in a store once. Rename it, or leave one of them out.")
    shards, pieces = _pieces(path, parts)
    if any(not is_remote(shard.path) and Path(os.path.normpath(path.absolute() / shard.path)) == path.absolute() for shard in shards):
        raise UserError(f"{path} would be made of itself, and its frames would be lost; write to another folder.")
    offsets = np.cumsum(np.concatenate([[0], *(np.diff(part.store.offsets)[part.utts] for part in parts)]))
    labels = None
    if parts[0].store.label_offsets is not None:
        labels = np.cumsum(np.concatenate([[0], *(np.diff(part.store.label_offsets)[part.utts] for part in parts
                                                  if part.store.label_offsets is not None)]))
    path.mkdir(parents=True, exist_ok=True)
    write_text(path / "utts", "".join(f"{utt}\n" for utt in utts))
    checksums = write_index(path, offsets, labels, statistics, _counts(parts))
    save_array(path / "pieces.npy", pieces)
    like = parts[0].store.manifest
    manifest = StoreManifest(num_frames=int(offsets[-1]), num_utts=len(utts), skipped=skipped, trimmed=trimmed, provenance=provenance,
                             checksums={**checksums, "pieces.npy": checksum(path / "pieces.npy")}, shards=shards,
                             num_labels=0 if labels is None else int(labels[-1]), **{name: getattr(like, name) for name in SAME})
    write_manifest(path / "manifest.json", manifest)
    for name in _ARRAYS:
        (path / name).unlink(missing_ok=True)  # of an older store with arrays of its own
    return manifest


def _counts(parts: list[_Part]) -> np.ndarray:
    """The counts of pdfs of all parts; sums of fractions are made anew, frame by frame in the new order."""
    if all(len(part.utts) == len(part.store.utts) and part.store.counts().dtype == np.int64 for part in parts):
        return sum((part.store.counts() for part in parts[1:]), parts[0].store.counts())
    manifest = parts[0].store.manifest
    counts = no_counts(manifest.num_pdfs, manifest.weighted, manifest.num_posteriors > 0)
    for part in parts:
        store = part.store
        pdfs = store.targets if store.posterior_pdfs is None else store.posterior_pdfs
        frames = zip(store.starts[part.utts], np.diff(store.offsets)[part.utts], strict=True)
        for start, length in progress(frames, f"counting pdfs of {store.path}", len(part.utts), "utt"):
            chosen = slice(start, start + length)
            count(counts, pdfs[chosen], *(array if array is None else array[chosen] for array in (store.weights, store.posterior_probs)))
    return counts


def _pieces(path: Path, parts: list[_Part]) -> tuple[list[Shard], np.ndarray]:
    """The shards that parts of stores lie in, as seen from `path`, and the pieces."""
    numbers: dict[Place, int] = {}
    shards: list[Shard] = []
    pieces = []
    for part in parts:
        shard, first, end, frame = part.store.pieces.T
        edges = np.cumsum(np.append(0, end - first))  # of its pieces, in its utterances
        piece = np.searchsorted(edges, part.utts, side="right") - 1
        number = first[piece] + part.utts - edges[piece]  # within the shard
        frames = frame[piece] + part.store.offsets[part.utts] - part.store.offsets[edges[piece]]
        begins = np.flatnonzero(np.concatenate([[True], (np.diff(part.utts) != 1) | (np.diff(piece) != 0)]))
        folders = [folder.absolute() if isinstance(folder, Path) else folder for folder in part.store.shard_folders()]
        for begin, last in zip(begins, np.append(begins[1:], len(part.utts)) - 1, strict=True):
            folder = folders[shard[piece[begin]]]
            if folder not in numbers:
                numbers[folder] = len(numbers)
                known = read_store_manifest(folder if isinstance(folder, Path) else index_of(folder))
                where = os.path.relpath(folder, path.absolute()) if isinstance(folder, Path) else folder
                shards.append(Shard(where, known.checksum, known.num_frames, known.num_utts))
            pieces.append((numbers[folder], number[begin], number[last] + 1, frames[begin]))
    return shards, np.array(pieces, np.int64)
