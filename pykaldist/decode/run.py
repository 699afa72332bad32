"""Decoding a list of utterances into a lattice archive, with Kaldi's messages."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

import numpy as np

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.determinize import determinize
from pykaldist.decode.kept import KeptLattices
from pykaldist.decode.lattice import Lattice, write_lattices
from pykaldist.decode.paths import LatticePath, best_path
from pykaldist.errors import UserError
from pykaldist.io.lang import SymbolTable
from pykaldist.progress import progress

FRAMES_PER_SECOND = 100  # Kaldi's assumption where it reports real-time factors


@dataclass
class DecodeSummary:
    """The counts and times of `decode_all`; `score` is the sum over utterances of log-likelihoods (scaled) plus graph scores."""

    done: int = 0
    failed: int = 0
    partial: int = 0
    frames: int = 0
    score: float = 0.0
    seconds: float = 0.0
    search_seconds: float = 0.0
    subsampling: int = 1  # frames of features for each of the log-likelihoods

    def __str__(self) -> str:
        speech = max(self.frames, 1) * self.subsampling / FRAMES_PER_SECOND
        return (f"Done {self.done} utterances ({self.partial} partial), failed for {self.failed}; real-time factor assuming "
                f"{FRAMES_PER_SECOND} frames/sec is {self.seconds / speech:.4f} (search {self.search_seconds / speech:.4f}); "
                f"overall log-likelihood per frame is {self.score / max(self.frames, 1):.5f} over {self.frames} frames.")


class Decodes(Protocol):
    """What decodes an utterance from an array: log-likelihoods, or samples."""

    options: DecoderOptions

    def decode(self, utterance: np.ndarray, /) -> Lattice | None:
        """The lattice of an utterance; None where no path survives the beam."""
        ...


@dataclass
class _Decoded:
    """What became of an utterance: its lattice and best path, or none; the error that ended it; seconds of the search alone."""

    lattice: Lattice | None = None
    path: LatticePath | None = None
    frames: int = 0
    seconds: float = 0.0
    error: UserError | None = None


def _decoded(decoder: Decodes, utterance: np.ndarray) -> _Decoded:
    """Decode an utterance, and determinise its lattice where the options ask for it."""
    start = time.perf_counter()
    try:
        lattice = decoder.decode(utterance)
    except UserError as error:
        return _Decoded(error=error)
    seconds = time.perf_counter() - start
    if lattice is None:
        return _Decoded(seconds=seconds)
    options, frames = decoder.options, lattice.num_frames
    path = best_path(lattice, options.acwt)
    if options.determinize_lattice:
        lattice = determinize(lattice, options.acwt, options.lattice_beam)
    return _Decoded(lattice, path, frames, seconds)


def _in_order(decoders: Sequence[Decodes], items: Iterable[tuple[str, np.ndarray]]) -> Iterator[tuple[str, _Decoded]]:
    """Decode utterances by several decoders at a time, each in a thread; with one, by this thread. No more than two a decoder wait."""
    if len(decoders) == 1:
        for utt, utterance in items:
            yield utt, _decoded(decoders[0], utterance)
        return
    free: SimpleQueue[Decodes] = SimpleQueue()
    for decoder in decoders:
        free.put(decoder)

    def by_a_free_one(utterance: np.ndarray) -> _Decoded:
        decoder = free.get()
        try:
            return _decoded(decoder, utterance)
        finally:
            free.put(decoder)

    waiting: deque[tuple[str, Future[_Decoded]]] = deque()
    with ThreadPoolExecutor(len(decoders)) as pool:
        for utt, utterance in items:
            waiting.append((utt, pool.submit(by_a_free_one, utterance)))
            if len(waiting) > 2 * len(decoders):
                name, future = waiting.popleft()
                yield name, future.result()
        for name, future in waiting:
            yield name, future.result()


def decode_all(decoder: Decodes, items: Iterable[tuple[str, np.ndarray]], lattice_path: str | os.PathLike[str],
               words: SymbolTable | None = None, total: int | None = None, kept: KeptLattices | None = None, post_decode_acwt: float = 1.0,
               subsampling: int = 1, others: Sequence[Decodes] = ()) -> DecodeSummary:
    """Decode `items`, pairs (utterance, what the decoder takes), `total` of them, into the archive `lattice_path`.

    The lattices are determinised on their words, within the lattice beam, unless the decoder's options say otherwise; then their acoustic
    costs are multiplied by `post_decode_acwt`, so that scoring finds those of a chain model where it looks for a GMM's. `subsampling`
    is the number of feature frames for each of the log-likelihoods, for the real-time factor. Prints each
    hypothesis (in words, or in word ids) and its log-likelihood per frame. An utterance on which no path survives is named and left out.
    Raises UserError where that is so of every one. With `kept` the lattices go there, one by one, and so does why others fail.

    `others` are decoders with the same graph and options, each of which searches in a thread of its own at the same time, as `decoder` then
    does; utterances stay in order, and are read, scored by the model and written by this thread.
    """
    summary = DecodeSummary(subsampling=subsampling)
    begin = time.perf_counter()

    def lattices() -> Iterator[tuple[str, Lattice]]:
        for utt, found in _in_order([decoder, *others], progress(items, "decoding", total, unit="utt")):
            summary.search_seconds += found.seconds
            if found.error is not None:
                if kept is None:
                    raise UserError(f"utterance {utt}: {found.error}") from found.error
                summary.failed += 1
                kept.fail(utt, str(found.error))
                print(f"WARNING: {utt}: {found.error}")
                continue
            lattice, path = found.lattice, found.path
            if lattice is None or path is None:
                summary.failed += 1
                if kept is not None:
                    kept.fail(utt, "no path survived the beam")
                print(f"WARNING: {utt}: no path survived the beam; left out (is --beam too narrow, or the utterance empty?)")
                continue
            if not lattice.reached_final:
                summary.partial += 1
                print(f"WARNING: {utt}: no final state was reached; the output is partial")
            frames = found.frames
            score = -(path.graph + decoder.options.acwt * path.acoustic)
            summary.done += 1
            summary.frames += frames
            summary.score += score
            print(utt, *(words.symbol(w) if words else w for w in path.words))
            print(f"LOG Log-like per frame for utterance {utt} is {score / frames:.6g} over {frames} frames.")
            if lattice.narrowed:
                print(f"WARNING: {utt}: a lattice of --lattice-beam {decoder.options.lattice_beam:g} would be too large; the worst of "
                      "its paths are left out, as with a narrower beam")
            yield utt, lattice if post_decode_acwt == 1 else lattice.scale_acoustic(post_decode_acwt)

    if kept is None:
        write_lattices(lattice_path, lattices())
    else:
        for utt, lattice in lattices():
            kept.add(utt, lattice)
    summary.seconds = time.perf_counter() - begin
    if summary.failed and not (summary.done or (kept is not None and kept.done)):
        raise UserError(f"none of the {summary.failed} utterances could be decoded; do the graph, the model and the features belong "
                        "together?")
    return summary
