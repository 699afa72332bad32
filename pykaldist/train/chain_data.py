"""The data of chain training: chunks of a frame store with the numerators that an alignment gives them.

The phones of each utterance and their lengths come from an alignment directory. It may be at the input frame rate, as one that
steps/align_fmllr.sh makes, or at that of the outputs, as that of a tree directory: a frame of it then stands for several input frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.feats.ivector_dir import IvectorDir
from pykaldist.frames.chunk_store import ChunkManifest, PackedChunk, pack_chunks
from pykaldist.frames.chunk_widths import UtteranceSplitter, parse_widths
from pykaldist.frames.sampler import CUTS, generator_of
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.chain.supervision import Normalizer, SupervisionOptions, frame_range, phone_supervision, state_times
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
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


class ChunkMaker:
    """Cuts utterances of a frame store into chunks with numerators; `skipped` says which are left out, and why."""

    def __init__(self, store: FrameStore, phones: AlignedPhones, tree: ContextDependency, model: TransitionModel, normalizer: Normalizer,
                 options: ChunkOptions, ivectors: IvectorDir | None = None) -> None:
        self.store, self.phones, self.tree, self.model, self.normalizer = store, phones, tree, model, normalizer
        self.options, self.ivectors, self.factor = options, ivectors, options.frame_subsampling_factor
        self.splitter = UtteranceSplitter(options.widths(), self.factor)
        self.skipped: dict[str, str] = {}

    def chunks(self) -> Iterator[PackedChunk]:
        """Iterate over the chunks of all utterances."""
        for number, utt in enumerate(progress(self.store.utts, f"numerators of {self.store.path.name}", unit="utt")):
            yield from self._of_utterance(number, utt)

    def _of_utterance(self, number: int, utt: str) -> Iterator[PackedChunk]:
        frames = int(self.store.offsets[number + 1] - self.store.offsets[number])
        found = self.phones.of(utt)
        if found is None:
            self.skipped[utt] = f"no alignment in {self.phones.path}"
            return
        whole = phone_supervision(*found, self.tree, self.model, self.options)
        if whole is None:
            self.skipped[utt] = (f"{len(found[0])} phones do not fit into {-(-sum(found[1]) // self.factor)} frames of the topology at a "
                                 "lower frame rate")
            return
        outputs = int(state_times(whole)[-1])
        if abs(outputs - -(-frames // self.factor)) > LENGTH_TOLERANCE:
            self.skipped[utt] = f"{frames} frames of features, {sum(found[1])} of the alignment"
            return
        generator = generator_of(self.options.seed, CUTS, number)
        spans = self.splitter.chunks(min(frames, outputs * self.factor), generator)
        if not spans:
            self.skipped[utt] = f"{frames} frames, fewer than the shortest chunk's {min(self.splitter.widths)}"
        for span in spans:
            fst = self.normalizer.chunk(frame_range(whole, span.first // self.factor, span.frames // self.factor))
            if fst is None:
                self.skipped[f"{utt}-{span.first}"] = "the denominator graph has no path of this chunk"
                continue
            frame = min(span.first + int(generator.integers(span.frames)), frames - 1)
            ivector = None if self.ivectors is None else self.ivectors.at(utt, frame, frames)
            yield PackedChunk(number, span, numerator(fst, self.model.num_pdfs), ivector)

    def pack(self, path: Path) -> ChunkManifest:
        """Pack all chunks into a chunk store."""
        return pack_chunks(self.chunks(), self.store, self.model.num_pdfs, self.factor, self.splitter.widths, self.skipped, path,
                           {"alignment": str(self.phones.path), "seed": self.options.seed})
