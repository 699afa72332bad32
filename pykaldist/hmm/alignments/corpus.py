"""The data of training and alignment: the features of all utterances in one matrix, and their transcripts as numbers.

A corpus is gone through in blocks of whole utterances, so that what a stage holds in memory does not grow with it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.io.scratch import RowWriter, prefetch, release, scratch_array
from pykaldist.progress import Progress

BLOCK = 1 << 18  # frames, 44 minutes


class WordLists(Sequence[list[int]]):
    """The transcripts of a corpus as numbers, in two flat arrays."""

    def __init__(self) -> None:
        self._flat, self._ends = array("i"), array("q", [0])

    def append(self, words: Sequence[int]) -> None:
        self._flat.extend(words)
        self._ends.append(len(self._flat))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> list[int]: ...

    @overload
    def __getitem__(self, number: slice) -> list[list[int]]: ...

    def __getitem__(self, number: int | slice) -> list[int] | list[list[int]]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        return self._flat[self._ends[range(len(self))[number]]:self._ends[range(len(self))[number] + 1]].tolist()


@dataclass
class Corpus:
    """The features and the transcripts of a data directory.

    Utterance u has the rows `offsets[u]:offsets[u + 1]` of `feats` (frames, D) float32 and the words `words[u]`.

    `unknown` counts the words that the lexicon lacks; they stand in `words` as the language directory's OOV word. What has a row for each
    frame of a corpus of several blocks lies in nameless files in the folder `scratch` (io/scratch.py), if one is given; who goes through
    all frames does so in `parts`, so that memory holds one block.
    """

    utts: list[str]
    feats: np.ndarray
    offsets: np.ndarray
    words: Sequence[list[int]]
    unknown: Counter[str]
    scratch: Path | None = None

    @classmethod
    def load(cls, data: DataDir, lang: LangDir, pipeline: FeaturePipeline, scratch: Path | None = None) -> Corpus:
        """Read the features of `data` through `pipeline`, and its transcripts.

        Raises UserError for an utterance without features, with features that are not finite, or without a transcript.
        """
        data.validate(text=True, wav=False, feats=True)
        words, unknown = WordLists(), Counter[str]()
        utts = data.utterances()
        for utt in utts:
            ids, missing = lang.word_ids(data.text[utt])
            words.append(ids)
            unknown.update(missing)
        rows, lengths, dims = RowWriter(BLOCK, scratch), np.zeros(len(utts) + 1, np.int64), set()
        with Progress("reading features", len(utts), "utt") as bar:
            for number, utt in enumerate(utts, 1):
                feats = pipeline.apply(data, utt)
                dims.add(feats.shape[1])
                if len(dims) > 1:
                    raise UserError(f"{data.path}/feats.scp: features of dimensions {sorted(dims)}; make all with the same options.")
                rows.append(feats)
                lengths[number] = len(feats)
                bar.update()
        return cls(utts, rows.array(), np.cumsum(lengths), words, unknown, scratch)

    def blocks(self) -> list[tuple[int, int]]:
        """The first and the end utterance of each block: as few utterances as have BLOCK frames together, or what is left of them."""
        bounds = [0]
        while bounds[-1] < len(self):
            bounds.append(min(len(self), int(np.searchsorted(self.offsets, self.offsets[bounds[-1]] + BLOCK))))
        return list(pairwise(bounds))

    def parts(self, *arrays: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """Iterate over the blocks, each a corpus of its own, with its rows of `arrays`.

        Memory lets go of a block when the next one is asked for, which is read meanwhile. A corpus of one block is its only part.
        """
        blocks = self.blocks()
        if len(blocks) == 1:
            yield self, *arrays
            return
        everything = (self.feats, *arrays)
        rows_of = [slice(int(self.offsets[first]), int(self.offsets[end])) for first, end in blocks]
        for (first, end), rows, ahead in zip(blocks, rows_of, [*rows_of[1:], slice(0, 0)], strict=True):
            for whole in everything:
                prefetch(whole[ahead])
            yield (Corpus(self.utts[first:end], self.feats[rows], self.offsets[first:end + 1] - self.offsets[first], self.words[first:end],
                          self.unknown), *(whole[rows] for whole in arrays))
            for whole in everything:
                release(whole[rows])

    def new_rows(self, width: int | None, dtype: np.dtype | type) -> np.ndarray:
        """An array of zeros with a row of `width` numbers for each frame, or with one number where `width` is None."""
        return scratch_array((len(self.feats),) if width is None else (len(self.feats), width), dtype, BLOCK, self.scratch)

    def __len__(self) -> int:
        return len(self.utts)

    def num_frames(self, number: int) -> int:
        return int(self.offsets[number + 1] - self.offsets[number])

    def utterance_feats(self, number: int) -> np.ndarray:
        return self.feats[self.offsets[number]:self.offsets[number + 1]]

    def unknown_words(self) -> str:
        """A sentence about words that the lexicon lacks, or the empty string."""
        if not self.unknown:
            return ""
        named = ", ".join(f"{word} ({count})" for word, count in self.unknown.most_common(10))
        more = f" and {len(self.unknown) - 10} more" if len(self.unknown) > 10 else ""
        return f"{self.unknown.total()} words of the transcripts are not in the lexicon and count as OOV: {named}{more}."


def name_some(names: Sequence[str], limit: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
