"""The data of training and alignment: the features of all utterances in one matrix, and their transcripts as numbers.

A corpus is gone through in blocks of whole utterances, so that what a stage holds in memory does not grow with it. Work on a block is a
`BlockTask`, a function that says in its arguments all that it needs, so that blocks can be other processes' (corpus_jobs.py). Sums over
blocks are made in pairs, which depend on the blocks' numbers alone (`PairwiseSum`): whoever has added them up, they have the same bits.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.graphs import GraphCompiler
from pykaldist.hmm.alignments.piped import PipedFeatures
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.datadir import DataDir
from pykaldist.io.durations import utt2num_frames
from pykaldist.io.lang import LangDir
from pykaldist.io.messages import StoredValue, array_bytes
from pykaldist.io.numbered import Numbered
from pykaldist.io.scratch import RowWriter, explain_full_disk, in_parts, nameless, scratch_array
from pykaldist.progress import Progress

BLOCK = 1 << 18  # frames, 44 minutes
_LARGE = 1 << 20  # bytes of a sum that does not wait in memory
#: what says of a block what a task needs beside what it needs of all
Own = Callable[["Corpus"], dict[str, Any]]


class BlockTask:
    """A function of a block, an engine, the block's rows of some arrays, and named values that all blocks have, or each its own.

    It writes the last `outputs` of the arrays. What it returns is a value that io/messages.py takes. Where it wants no `feats`, the block
    that it gets has none.
    """

    def __init__(self, function: Callable[..., Any], outputs: int, feats: bool) -> None:
        self.function, self.outputs, self.feats = function, outputs, feats
        self.name = f"{function.__module__}.{function.__qualname__}"

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)


#: every task of the modules that have been imported, by its name
TASKS: dict[str, BlockTask] = {}


def block_task(outputs: int = 0, feats: bool = True) -> Callable[[Callable[..., Any]], BlockTask]:
    """Make a function a task, which jobs find by its name."""
    def decorate(function: Callable[..., Any]) -> BlockTask:
        task = BlockTask(function, outputs, feats)
        return TASKS.setdefault(task.name, task)
    return decorate


class PairwiseSum:
    """The sum of what blocks 0, 1, 2 ... give, or of those of a range of them: 0 + 1, 2 + 3, then these two, and so on.

    `nodes` are (level, number, value): the sum of the 2^level blocks from number * 2^level on, which may be nothing (None). With a folder,
    large ones that wait for their other half lie there in nameless files (`StoredValue`), so that memory does not grow with the blocks.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.nodes: list[tuple[int, int, Any]] = []
        self._folder = folder

    def add(self, level: int, number: int, value: Any) -> None:
        """Add the next node; a block has level 0."""
        self.nodes.append((level, number, value))
        while len(self.nodes) > 1 and self._pair():
            (level, number, one), (_, _, two) = self.nodes[-2:]
            self.nodes[-2:] = [(level + 1, number // 2, _sum(_found(one), two))]
        if self._folder is not None and len(self.nodes) > 1:
            level, number, value = self.nodes[-2]
            if not isinstance(value, StoredValue) and array_bytes(value) > _LARGE:
                self.nodes[-2] = level, number, StoredValue(value, self._folder)

    def _pair(self) -> bool:
        (level, number, _), (other, following, _) = self.nodes[-2:]
        return level == other and number % 2 == 0 and following == number + 1

    def result(self) -> Any:
        """The sum of all, None where there is nothing; nothing may be added any more."""
        total = None
        while self.nodes:
            total = _sum(_found(self.nodes.pop()[2]), total)
        return total


def _found(value: Any) -> Any:
    return value.get() if isinstance(value, StoredValue) else value


def _sum(one: Any, two: Any) -> Any:
    return two if one is None else one if two is None else one + two


class WordLists(Numbered[list[int]]):
    """The transcripts of a corpus as numbers, one behind the other: up to `BLOCK` words in memory, the ones before in a nameless file.

    The file is in `folder`; without one all stay in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._flat, self._ends, self._folder = array("i"), array("q", [0]), folder
        self._stream: IO[bytes] | None = None
        self._stored = 0  # words that lie in the file

    def append(self, words: Sequence[int]) -> None:
        self._flat.extend(words)
        self._ends.append(self._stored + len(self._flat))
        if self._folder is not None and len(self._flat) > BLOCK:
            self._stream = self._stream or nameless(self._folder)
            with explain_full_disk(self._folder, len(self._flat) * self._flat.itemsize):
                self._flat.tofile(self._stream)
                self._stream.flush()
            self._stored += len(self._flat)
            self._flat = array("i")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def item(self, number: int) -> list[int]:
        begin, end = self._ends[number:number + 2]
        if begin >= self._stored:
            return self._flat[begin - self._stored:end - self._stored].tolist()
        found, size = array("i"), self._flat.itemsize
        found.frombytes(os.pread(cast("IO[bytes]", self._stream).fileno(), (end - begin) * size, begin * size))
        return found.tolist()


class NoWords(Numbered[list[int]]):
    """The transcripts of `count` utterances that have none."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def item(self, number: int) -> list[int]:
        return []


@dataclass
class Corpus:
    """The features and the transcripts of a data directory.

    Utterance u has the rows `offsets[u]:offsets[u + 1]` of `feats` (frames, D) float32 and the words `words[u]`.

    `unknown` counts the words that the lexicon lacks; they stand in `words` as the language directory's OOV word. What has a row for each
    frame of a corpus of several blocks lies in nameless files in the folder `scratch` (io/scratch.py), if one is given; who goes through
    all frames does so in `parts`, so that memory holds one block. A block begins with utterance `first` and frame `first_frame` of the
    corpus; it has `block` frames or a few more (0: `BLOCK`).
    """

    utts: list[str]
    feats: Any  # an array, or the like whose blocks are read anew (piped.py), or lie in files (corpus_jobs.py)
    offsets: np.ndarray
    words: Sequence[list[int]]
    unknown: Counter[str]
    scratch: Path | None = None
    first: int = 0
    first_frame: int = 0
    block: int = 0

    @classmethod
    def of_lengths(cls, utts: list[str], offsets: np.ndarray, scratch: Path | None = None, block: int = 0) -> Corpus:
        """A corpus that has neither features nor transcripts, whose tasks read what they need."""
        return cls(utts, np.zeros(0), offsets, NoWords(len(utts)), Counter(), scratch, block=block)

    @classmethod
    def load(cls, data: DataDir, lang: LangDir, pipeline: FeaturePipeline, scratch: Path | None = None, block: int = 0,
             keep: bool = True) -> Corpus:
        """Read the features of `data` through `pipeline`, and its transcripts.

        Features of several blocks are not kept unless `keep` says so: then each pass reads them. Raises UserError for an utterance without
        features, with features that are not finite, or without a transcript.
        """
        utts, words, unknown = read_transcripts(data, lang, scratch)
        if not keep:
            offsets = offsets_of(data, utts)
            made = cls(utts, PipedFeatures(data, pipeline, utts, offsets), offsets, words, unknown, scratch, block=block)
            if len(made.blocks()) > 1:
                return made
        rows, lengths, dims = RowWriter(BLOCK, scratch), np.zeros(len(utts) + 1, np.int64), set()
        with Progress("reading features", len(utts), "utt") as bar:
            for number, utt in enumerate(utts, 1):
                feats = pipeline.apply(data, utt)
                dims.add(feats.shape[1])
                if len(dims) > 1:
                    raise UserError(f"{data.path}/feats.scp: features of dimensions {sorted(dims)}; make all with the same options "
                                    f"({FEATURES}).")
                rows.append(feats)
                lengths[number] = len(feats)
                bar.update()
        return cls(utts, rows.array(), np.cumsum(lengths), words, unknown, scratch, block=block)

    def blocks(self) -> list[tuple[int, int]]:
        """The first and the end utterance of each block: as few utterances as have the block's frames together, or what is left of them."""
        bounds, frames = [0], self.block or BLOCK
        while bounds[-1] < len(self):
            bounds.append(min(len(self), int(np.searchsorted(self.offsets, self.offsets[bounds[-1]] + frames))))
        return list(pairwise(bounds))

    def parts(self, *arrays: Any, feats: bool = True) -> Iterator[tuple[Any, ...]]:
        """Iterate over the blocks, each a corpus of its own, with its rows of `arrays`, or its graphs; without its features, if not wanted.

        Memory lets go of a block when the next one is asked for, which is read meanwhile. A corpus of one block is its only part.
        """
        blocks = self.blocks()
        if len(blocks) == 1:
            yield self, *arrays
            return
        by_frame = [whole for whole in arrays if isinstance(whole, np.ndarray)]
        graphs = [whole for whole in arrays if not isinstance(whole, np.ndarray)]
        rows_of = [slice(int(self.offsets[first]), int(self.offsets[end])) for first, end in blocks]
        for (first, end), rows, read, mine in zip(blocks, rows_of, self._feats(blocks, rows_of, feats), in_parts(rows_of, *by_frame),
                                                  strict=True):
            own = iter(mine)
            yield (Corpus(self.utts[first:end], read, self.offsets[first:end + 1] - self.offsets[first], self.words[first:end],
                          self.unknown, first=first, first_frame=rows.start),
                   *(next(own) if isinstance(whole, np.ndarray) else whole.part(first, end) for whole in arrays))
            for whole in graphs:
                whole.release()

    def _feats(self, blocks: list[tuple[int, int]], rows: list[slice], wanted: bool) -> Iterator[np.ndarray]:
        """Iterate over the features of blocks, or as many empty arrays where they are not wanted."""
        if not wanted:
            return (np.zeros(0) for _ in blocks)
        return self.feats.parts(blocks) if isinstance(self.feats, PipedFeatures) else (found for found, in in_parts(rows, self.feats))

    def each(self, task: BlockTask, engine: Engine, *arrays: Any, own: Own | None = None, bar: Progress | None = None,
             **shared: Any) -> Iterator[Any]:
        """Iterate over what a task gives of each block, in their order; `own` makes the named values that each block has for itself.

        A `bar` is the task's, which counts on it.
        """
        for part, *mine in self.parts(*arrays, feats=task.feats):
            yield self._one(task, engine, part, mine, own, bar, shared)

    def run(self, task: BlockTask, engine: Engine, *arrays: Any, own: Own | None = None, **shared: Any) -> None:
        """Carry out a task that gives nothing on each block."""
        for _ in self.each(task, engine, *arrays, own=own, **shared):
            pass

    def total(self, task: BlockTask, engine: Engine, *arrays: Any, own: Own | None = None, bar: Progress | None = None,
              **shared: Any) -> Any:
        """The sum of what a task gives of each block, a kind of value that has `+`; None where it gives nothing (None) of any.

        A `bar` is the task's, as in `each`.
        """
        sums = PairwiseSum(self.scratch)
        for number, (part, *mine) in enumerate(self.parts(*arrays, feats=task.feats)):
            sums.add(0, number, self._one(task, engine, part, mine, own, bar, shared))
        return sums.result()

    @staticmethod
    def _one(task: BlockTask, engine: Engine, part: Corpus, arrays: Sequence[Any], own: Own | None, bar: Progress | None,
             shared: dict[str, Any]) -> Any:
        counted = {} if bar is None else {"bar": bar}
        return task(part, engine, *arrays, **shared, **(own(part) if own else {}), **counted)

    def graphs(self, lang: LangDir, tree: ContextDependency, model: TransitionModel) -> Any:
        """The training graphs of the transcripts."""
        return GraphCompiler(lang, tree, model).compile_all(self.words, self.scratch)

    def new_rows(self, width: int | None, dtype: np.dtype | type) -> Any:
        """An array of zeros with a row of `width` numbers for each frame, or with one number where `width` is None."""
        return scratch_array((self.frames,) if width is None else (self.frames, width), dtype, BLOCK, self.scratch)

    @property
    def frames(self) -> int:
        """The frames of all utterances."""
        return int(self.offsets[-1])

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


def offsets_of(data: DataDir, utts: Sequence[str]) -> np.ndarray:
    """The first frame of each utterance, and the number of all frames, int64, as utt2num_frames says, or else the features."""
    lengths, ends = utt2num_frames(data), np.zeros(len(utts) + 1, np.int64)
    np.cumsum(np.fromiter((lengths[utt] for utt in utts), np.int64, len(utts)), out=ends[1:])
    return ends


def read_transcripts(data: DataDir, lang: LangDir, scratch: Path | None = None) -> tuple[list[str], WordLists, Counter[str]]:
    """The utterances of a data directory with features, their words as numbers, and how often there are words that the lexicon lacks.

    Many words lie in a nameless file in `scratch`.
    """
    data.validate(text=True, wav=False, feats=True)
    words, unknown = WordLists(scratch), Counter[str]()
    utts = data.utterances()
    for utt in utts:
        ids, missing = lang.word_ids(data.text[utt])
        words.append(ids)
        unknown.update(missing)
    return utts, words, unknown


def name_some(names: Sequence[str], limit: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
