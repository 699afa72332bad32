"""The data of chain training: chunks of a frame store with the numerators that an alignment, or lattices, give them.

The phones of each utterance and their lengths come from an alignment directory. It may be at the input frame rate, as one that
steps/align_fmllr.sh makes, or at that of the outputs, as that of a tree directory: a frame of it then stands for several input frames. Or
they come from lattices of the transcript (steps/align_fmllr_lats.sh), which have all pronunciations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.ivector_dir import IvectorDir
from pykaldist.frames.chunk_store import ChunkManifest, PackedChunk, pack_chunks
from pykaldist.frames.chunk_widths import ChunkSpan, UtteranceSplitter, parse_widths
from pykaldist.frames.sampler import CUTS, generator_of
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.chain.supervision import (
    Normalizer,
    PhoneLattice,
    SupervisionOptions,
    frame_range,
    phone_supervision,
    state_times,
    supervision_of_lattice,
)
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_objective import numerator
from pykaldist.options import option
from pykaldist.progress import progress

LENGTH_TOLERANCE = 1  # output frames by which an alignment and the features may differ


@dataclass
class ChunkOptions(SupervisionOptions):
    """How utterances are cut into chunks, and what their numerators allow."""

    chunk_width: str = option("150,110,100", "frames of a chunk; the first length is taken as often as it fits, the others at the ends")
    seed: int = option(777, "seed of the cuts")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.widths()

    def widths(self) -> list[int]:
        """The lengths of chunks, multiples of the frame subsampling factor."""
        return parse_widths(self.chunk_width, self.frame_subsampling_factor)


class AlignedPhones:
    """The phones of utterances and their lengths in input frames, from an alignment of which a frame stands for `step` input frames."""

    def __init__(self, ali: AlignmentDir, step: int = 1) -> None:
        if not ali.has_transition_ids or ali.model is None:
            raise UserError(f"{ali.path} has pdfs without transition-ids, which do not say what the phones are; align with a model "
                            "(steps/align_fmllr.sh, steps/align_si.sh).")
        self.path, self._ali, self._model, self._step = ali.path, ali, ali.model, step

    def sequences(self) -> Iterator[list[int]]:
        """The phones of each utterance, for a phone language model."""
        for tids in self._ali.labels.values():
            yield phone_segments(tids, self._model)[0].tolist()

    def of(self, utt: str) -> tuple[list[int], list[int]] | None:
        """(phones, lengths) of an utterance; None where it has no alignment."""
        tids = self._ali.labels.get(utt)
        if tids is None:
            return None
        phones, _, lengths = phone_segments(tids, self._model)
        return phones.tolist(), (lengths * self._step).tolist()


class Supervisions(Protocol):
    """Where the numerators of whole utterances come from; `path` is the folder that they were made of."""

    path: Path

    def of(self, utt: str) -> Fst | str:
        """The numerator of an utterance, without the denominator's costs; or why there is none, in words."""


@dataclass
class System:
    """The tree and the transition model of a chain model, and what its numerators allow."""

    tree: ContextDependency
    model: TransitionModel
    options: ChunkOptions


class AlignedSupervisions:
    """Numerators of aligned phones."""

    def __init__(self, phones: AlignedPhones, system: System) -> None:
        self.path, self._phones, self._system = phones.path, phones, system

    def of(self, utt: str) -> Fst | str:
        found = self._phones.of(utt)
        if found is None:
            return f"no alignment in {self.path}"
        system, factor = self._system, self._system.options.frame_subsampling_factor
        whole = phone_supervision(*found, system.tree, system.model, system.options)
        return whole or f"{len(found[0])} phones do not fit into {-(-sum(found[1]) // factor)} output frames"


class LatticeSupervisions:
    """Numerators of phone lattices, by utterance, that were read from the folder `path`."""

    def __init__(self, lattices: Mapping[str, PhoneLattice], path: Path, system: System) -> None:
        self.path, self._lattices, self._system = path, lattices, system

    def of(self, utt: str) -> Fst | str:
        if utt not in self._lattices:
            return f"no lattice in {self.path}"
        system = self._system
        whole = supervision_of_lattice(self._lattices[utt], system.tree, system.model, system.options)
        return whole or "no phone sequence of its lattice fits into the output frames"


class ChunkMaker(ABC):
    """Cuts utterances of a frame store into chunks with numerators; `skipped` says which are left out, and why.

    `widths` are the lengths of chunks, `source` is the folder that the numerators are made of.
    """

    widths: list[int]
    source: Path

    def __init__(self, store: FrameStore, system: System, normalizer: Normalizer, ivectors: IvectorDir | None) -> None:
        self.store, self.system, self.normalizer, self.ivectors = store, system, normalizer, ivectors
        self.options, self.factor = system.options, system.options.frame_subsampling_factor
        self.skipped: dict[str, str] = {}

    def chunks(self) -> Iterator[PackedChunk]:
        """Iterate over the chunks of all utterances."""
        for number, utt in enumerate(progress(self.store.utts, f"numerators of {self.store.path.name}", unit="utt")):
            if self.ivectors is not None and utt not in self.ivectors:
                self.skipped[utt] = f"no i-vectors in {self.ivectors.path}"
                continue
            yield from self._of_utterance(number, utt)

    @abstractmethod
    def _of_utterance(self, number: int, utt: str) -> Iterator[PackedChunk]:
        """Iterate over the chunks of an utterance."""

    def _frames(self, number: int) -> int:
        """The frames of an utterance."""
        return int(self.store.offsets[number + 1] - self.store.offsets[number])

    def _ivector(self, utt: str, span: ChunkSpan, frames: int, generator: np.random.Generator) -> np.ndarray | None:
        """The i-vector of an utterance of so many frames at a frame of a chunk that is drawn, where there are i-vectors."""
        frame = min(span.first + int(generator.integers(span.frames)), frames - 1)
        return None if self.ivectors is None else self.ivectors.at(utt, frame, frames)

    def pack(self, path: Path) -> ChunkManifest:
        """Pack all chunks into a chunk store."""
        return pack_chunks(self.chunks(), self.store, self.system.model.num_pdfs, self.factor, self.widths, self.skipped, path,
                           {"alignment": str(self.source), "seed": self.options.seed})


class AlignedChunks(ChunkMaker):
    """Chunks of a few lengths, of utterances whose phones have their times."""

    def __init__(self, store: FrameStore, supervisions: Supervisions, system: System, normalizer: Normalizer,
                 ivectors: IvectorDir | None = None) -> None:
        super().__init__(store, system, normalizer, ivectors)
        self.supervisions, self.source = supervisions, supervisions.path
        self.splitter = UtteranceSplitter(self.options.widths(), self.factor)
        self.widths = self.splitter.widths

    def _of_utterance(self, number: int, utt: str) -> Iterator[PackedChunk]:
        frames, whole = self._frames(number), self.supervisions.of(utt)
        if isinstance(whole, str):
            self.skipped[utt] = whole
            return
        outputs = int(state_times(whole)[-1])
        if abs(outputs - -(-frames // self.factor)) > LENGTH_TOLERANCE:
            self.skipped[utt] = f"{frames} frames of features, {outputs} output frames of {self.source}"
            return
        generator = generator_of(self.options.seed, CUTS, number)
        spans = self.splitter.chunks(min(frames, outputs * self.factor), generator)
        if not spans:
            self.skipped[utt] = f"{frames} frames, fewer than the shortest chunk's {min(self.widths)}"
        for span in spans:
            fst = self.normalizer.chunk(frame_range(whole, span.first // self.factor, span.frames // self.factor))
            if fst is None:
                self.skipped[f"{utt}-{span.first}"] = "the denominator graph has no path of this chunk"
                continue
            yield PackedChunk(number, span, numerator(fst, self.system.model.num_pdfs), self._ivector(utt, span, frames, generator))
