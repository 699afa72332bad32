"""Reader and writer of Kaldi's posteriors: for each frame, pairs of an id (transition_id or pdf) and a weight.

Archives are binary or text.

Binary: the number of frames; for each its number of pairs; for each pair an int32 and a float, all sized. Text: `[ 3 0.5 7 0.5 ] [ 3 1 ]`.
Source: Kaldi's hmm/posterior.cc.
"""

from __future__ import annotations

import io
import itertools
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from pykaldist.io.entries import read_entries, take
from pykaldist.io.scratch import StoredValues
from pykaldist.io.tables import output_archive

_NO_FRAMES = "expected frames, found none"
_PAIR = np.dtype([("id_size", "i1"), ("id", "<i4"), ("weight_size", "i1"), ("weight", "<f4")])


@dataclass
class Posterior:
    """The posteriors of one utterance of T frames, as flat arrays.

    Frame t has the pairs `offsets[t]:offsets[t + 1]` of `ids` (int32) and `weights` (float32); `offsets` is int64 (T + 1,).
    """

    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def from_alignment(cls, labels: np.ndarray) -> Posterior:
        """Posteriors with weight 1 for the one label of each frame (Kaldi's ali-to-post)."""
        return cls(np.arange(len(labels) + 1), labels.astype(np.int32), np.ones(len(labels), dtype=np.float32))


def posterior_bytes(posterior: Posterior, binary: bool = True) -> bytes:
    """The posteriors of one utterance as bytes."""
    return _to_binary(posterior) if binary else _to_text(posterior)


def read_posteriors(path: str | os.PathLike[str]) -> Iterator[tuple[str, Posterior]]:
    """(key, posterior) for each entry of an archive; raises UserError, naming the entry, for damage."""
    return read_entries(path, read_posterior)


def stored_posteriors(folder: Path) -> StoredValues[Posterior]:
    """Make a place for posteriors by their names, in a nameless file in `folder`; what is read of it is not to be changed."""
    return StoredValues(_of_arrays, _write_arrays, folder)


def write_posteriors(path: str | os.PathLike[str], items: Iterable[tuple[str, Posterior]], binary: bool = True) -> int:
    """Write an archive, as Kaldi does; returns the count."""
    count = 0
    with output_archive(path) as stream:
        for key, posterior in items:
            stream.write(key.encode("utf-8") + b" " + posterior_bytes(posterior, binary))
            count += 1
    return count


def read_posterior(stream: io.BufferedReader) -> Posterior:
    """Read the posteriors of one utterance; raises one of archive.DAMAGE."""
    if stream.peek(1)[:1] != b"\0":
        return _from_text(stream.readline().decode("utf-8"))
    if take(stream, 2) != b"\0B":
        raise ValueError("expected \\0B before a binary value")
    counts, parts = [], []
    frames = _sized_count(stream)
    if frames == 0:
        raise ValueError(_NO_FRAMES)
    for _ in range(frames):  # only reading on tells where a frame begins
        counts.append(_sized_count(stream))
        parts.append(take(stream, _PAIR.itemsize * counts[-1]))
    pairs = np.frombuffer(b"".join(parts), dtype=_PAIR)
    if (pairs["id_size"] != 4).any() or (pairs["weight_size"] != 4).any():
        raise ValueError("expected pairs of a sized int32 and a sized float")
    return Posterior(_offsets(counts), pairs["id"].astype(np.int32), pairs["weight"].astype(np.float32))


def _sized_count(stream: io.BufferedReader) -> int:
    size, count = struct.unpack("<bi", take(stream, 5))
    if size != 4 or count < 0:
        raise ValueError(f"expected a sized count, found size {size}, count {count}")
    return int(count)


def _from_text(line: str) -> Posterior:
    if not line.strip():
        raise ValueError(_NO_FRAMES)
    frames = [frame.split() for frame in line.strip().removesuffix("]").split("]")]
    if any(not frame or frame[0] != "[" or len(frame) % 2 == 0 for frame in frames):
        raise ValueError("expected [ id weight ... ] for each frame")
    ids = np.array([field for frame in frames for field in frame[1::2]], dtype=np.int64)
    weights = np.array([field for frame in frames for field in frame[2::2]], dtype=np.float64)
    return Posterior(_offsets([len(frame) // 2 for frame in frames]), ids.astype(np.int32), weights.astype(np.float32))


def _offsets(counts: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _to_binary(posterior: Posterior) -> bytes:
    pairs = np.empty(len(posterior.ids), dtype=_PAIR)
    pairs["id_size"] = pairs["weight_size"] = 4
    pairs["id"], pairs["weight"] = posterior.ids, posterior.weights
    content, bounds = pairs.tobytes(), (posterior.offsets * _PAIR.itemsize).tolist()
    frames = [struct.pack("<bi", 4, (end - start) // _PAIR.itemsize) + content[start:end]
              for start, end in itertools.pairwise(bounds)]
    return b"\0B" + struct.pack("<bi", 4, len(posterior)) + b"".join(frames)


def _to_text(posterior: Posterior) -> bytes:
    pairs = [f"{i} {w:.7g} " for i, w in zip(posterior.ids.tolist(), posterior.weights.tolist(), strict=True)]
    bounds = posterior.offsets.tolist()
    return ("".join(f"[ {''.join(pairs[a:b])}] " for a, b in itertools.pairwise(bounds)) + "\n").encode()


def _write_arrays(stream: IO[bytes], posterior: Posterior) -> None:
    """Write the number of frames, and the three arrays as they lie in memory: they are read faster than an archive's form."""
    for array, kind in ((np.array([len(posterior)]), np.int64), (posterior.offsets, np.int64), (posterior.ids, np.int32),
                        (posterior.weights, np.float32)):
        stream.write(np.ascontiguousarray(array, kind).data)


def _of_arrays(content: bytes) -> Posterior:
    bounds = np.frombuffer(content, np.int64, 1 + int.from_bytes(content[:8], sys.byteorder), 8)
    pairs, begin = int(bounds[-1]), 8 + bounds.nbytes
    return Posterior(bounds, np.frombuffer(content, np.int32, pairs, begin), np.frombuffer(content, np.float32, pairs, begin + 4 * pairs))
