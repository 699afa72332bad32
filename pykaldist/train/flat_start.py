"""Preparation of flat-start (end-to-end) chain training: chunks are whole utterances, numerators are graphs of their transcripts.

The graphs are those of steps/nnet3/chain/e2e/prepare_e2e.sh in the tree directory. The phone language model is made of phones of the
transcripts (steps/nnet3/chain/e2e/text_to_phones.py, chain-est-phone-lm), and stands there, too. Nothing has times; so an utterance cannot
be cut, and is one chunk.

Sequences of a minibatch have one length. Kaldi changes the speed of utterances (utils/data/perturb_speed_to_allowed_lengths.py), so that
their lengths are among a few, which the data directory's `allowed_lengths.txt` has. Where there is none, utterances keep their speed: the
allowed lengths are `SPACING` apart, and an utterance is made longer by copies of its last frame, up to the next one. Its numerator may
have silence there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.ivector_dir import IvectorDir
from pykaldist.frames.chunk_store import PackedChunk
from pykaldist.frames.chunk_widths import ChunkSpan
from pykaldist.frames.sampler import CUTS, generator_of
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions
from pykaldist.hmm.chain.supervision import Normalizer
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_lines
from pykaldist.nnet.chain_objective import flat_start_numerator
from pykaldist.train.chain_data import ChunkMaker, System
from pykaldist.train.chain_preparation import Preparation, PreparationOptions

SPACING = 1.04  # of allowed lengths, where the data directory says none
LENGTHS, PHONE_LM = "allowed_lengths.txt", "phone_lm.fst"


def read_graphs(tree_dir: Path) -> dict[str, Fst]:
    """Read the graphs of transcripts of a directory, fst.*.scp with their archives beside them; raises UserError where there are none."""
    found = {}
    for table in sorted(tree_dir.glob("fst.*.scp")):
        archive = table.with_suffix(".ark")
        data, entries = archive.read_bytes(), [line.split() for line in read_lines(table)]
        begins = [int(where.rpartition(":")[2]) for _, where in entries]
        ends = [begin - len(f"{utt} ".encode()) for (utt, _), begin in zip(entries[1:], begins[1:], strict=True)]
        for (utt, _), begin, end in zip(entries, begins, [*ends, len(data)], strict=True):
            found[utt] = Fst.parse(data[begin:end], f"{archive}:{begin}")
    if not found:
        raise UserError(f"{tree_dir} has no graphs of transcripts (fst.1.scp); run steps/nnet3/chain/e2e/prepare_e2e.sh.")
    return found


def lengths_between(shortest: int, longest: int, factor: int) -> list[int]:
    """Lengths in frames, multiples of `factor`, from that of the shortest utterance to that of the longest one, `SPACING` apart."""
    count = max(1, math.ceil(math.log(longest / shortest) / math.log(SPACING))) if longest > shortest else 1
    return sorted({math.ceil(shortest * SPACING**n / factor) * factor for n in range(count)} | {math.ceil(longest / factor) * factor})


def read_lengths(path: Path, factor: int) -> list[int]:
    """Read the allowed lengths of a data directory, one a line; raises UserError where they are none."""
    lines = read_lines(path)
    if not lines or not all(line.isdecimal() and int(line) for line in lines):
        raise UserError(f"{path}: expected lengths in frames, one a line; make it again (utils/data/perturb_speed_to_allowed_lengths.py).")
    return sorted({math.ceil(int(line) / factor) * factor for line in lines})


class WholeUtterances(ChunkMaker):
    """Chunks that are whole utterances, as long as the next of the allowed lengths, `widths`; `graphs` are those of transcripts."""

    def __init__(self, store: FrameStore, graphs: Mapping[str, Fst], widths: list[int], source: Path, system: System,
                 normalizer: Normalizer, ivectors: IvectorDir | None = None) -> None:
        super().__init__(store, system, normalizer, ivectors)
        self.graphs, self.widths, self.source = graphs, widths, source

    def _of_utterance(self, number: int, utt: str) -> Iterator[PackedChunk]:
        frames = self._frames(number)
        place = int(np.searchsorted(self.widths, frames))
        if utt not in self.graphs or place == len(self.widths):
            self.skipped[utt] = f"{frames} frames, more than the longest length allowed, {self.widths[-1]}" if utt in self.graphs else \
                f"no graph in {self.source}"
            return
        outputs = self.widths[place] // self.factor
        graph = self.normalizer.flat_start(self.graphs[utt], self.system.model)
        found = graph and flat_start_numerator(graph, outputs, self.system.model.num_pdfs)
        if not found:
            self.skipped[utt] = f"its transcript does not fit into {outputs} output frames" if graph else \
                "the denominator graph has no path of its transcript"
            return
        span = ChunkSpan(0, self.widths[place], np.ones(outputs, np.float32))
        generator = generator_of(self.options.seed, CUTS, number)
        yield PackedChunk(number, span, found, self._ivector(utt, span, frames, generator))


class FlatStartPreparation(Preparation):
    """Makes what flat-start chain training in `exp` reads."""

    def __init__(self, data: Path, tree_dir: Path, exp: Path, options: PreparationOptions) -> None:
        super().__init__(data, tree_dir, tree_dir, exp, options, PhoneLmOptions())
        if not (tree_dir / PHONE_LM).is_file():
            raise UserError(f"{tree_dir / PHONE_LM} does not exist; make it of the transcripts' phones "
                            "(steps/nnet3/chain/e2e/text_to_phones.py, chain-est-phone-lm).")

    def _sources(self) -> list[Path]:
        lengths = self.data.path / LENGTHS
        return [self.tree_dir / PHONE_LM, *sorted(self.tree_dir.glob("fst.*.ark")), *[lengths] * lengths.is_file()]

    def _phone_lm(self) -> Fst:
        return Fst.read(self.tree_dir / PHONE_LM)

    def _maker(self, system: System, normalizer: Normalizer) -> Callable[[FrameStore], ChunkMaker]:
        graphs, path = read_graphs(self.tree_dir), self.data.path / LENGTHS

        def maker(store: FrameStore) -> ChunkMaker:
            frames, factor = np.diff(store.offsets), self.options.frame_subsampling_factor
            widths = read_lengths(path, factor) if path.is_file() else lengths_between(int(frames.min()), int(frames.max()), factor)
            return WholeUtterances(store, graphs, widths, self.tree_dir, system, normalizer, self.ivectors)

        return maker
