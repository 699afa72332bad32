"""A corpus whose blocks are worked on by jobs, which `$cmd JOB=1:$nj` starts on this machine or on others.

One process trains. For each task it submits an array of jobs, waits for it, and reads what it has left. All that they share is files in a
folder, of which each is written by one process, whole or not at all:

    blocks/<block>           the block's utterances, words and offsets
    <rows>/<block>.npy       the block's rows of an array: features that are kept, alignments
    graphs.<n>/<block>       its training graphs
    trans.<n>/<block>        the fMLLR transforms of the block's speakers, where features are adapted anew in each pass
    call.<n>                 a task: its name, its arrays, what is named for all blocks
    call.<n>.<job>           the blocks of a job, and what is named for each of them
    result.<n>.<job>         what the task gave, of each block, or sums (`PairwiseSum`)

A corpus in one process that is divided into the same blocks gives the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shlex
import shutil
import subprocess
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist import usage
from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import SpeakerTransforms
from pykaldist.hmm.alignments.corpus import (
    BLOCK,
    TASKS,
    BlockTask,
    Corpus,
    NoWords,
    Own,
    PairwiseSum,
    block_task,
    offsets_of,
    read_transcripts,
)
from pykaldist.hmm.alignments.graphs import GraphCompiler, TrainingGraph, TrainingGraphs
from pykaldist.hmm.alignments.piped import PipedFeatures, made_features
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.atomic import atomic_open
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.io.messages import read_message, write_message
from pykaldist.io.numbered import Numbered
from pykaldist.progress import Progress, progress

LOOK_S = 1.0  # between two looks at how many jobs have ended
LEAST = 1 << 16  # frames of a block, 11 minutes, for a job with less takes longer to start than to work


@dataclass
class Jobs:
    """How jobs are run, and where their files are.

    `command` is that of the stage (`slurm.pl --mem 2G`), `count` the number of jobs, `logs` the folder of their logs; `device` is where
    they compute. `classes` are those of the objects that go to and from them.
    """

    folder: Path
    command: str
    count: int
    logs: Path
    device: str
    classes: Sequence[type]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def new(self, kind: str) -> Path:
        """A name in the folder that no other file has."""
        return self.folder / f"{kind}.{next(self._numbers)}"

    def blocks_of(self, blocks: int) -> list[range]:
        """The blocks of each job: contiguous, and numbers as equal as possible; no job has none."""
        count = min(self.count, blocks)
        return [range(job * blocks // count, (job + 1) * blocks // count) for job in range(count)]

    def call(self, task: BlockTask, blocks: int, arrays: Sequence[Any], own: Iterator[dict[str, Any]] | None, shared: dict[str, Any],
             summed: bool) -> Iterator[list[Any]]:
        """Run a task on all blocks; gives what the jobs gave, in their order. Raises UserError where one failed."""
        for array in arrays:
            array.close()
        path = self.new("call")
        number, shares = path.suffix[1:], self.blocks_of(blocks)
        write_message(path, {"task": task.name, "arrays": [array.described for array in arrays], "shared": shared, "sum": summed,
                             "device": self.device})
        for job, share in enumerate(shares, 1):
            mine = {"first": share.start, "end": share.stop, "own": None if own is None else list(itertools.islice(own, len(share)))}
            write_message(self.folder / f"call.{number}.{job}", mine)
        name = task.name.rpartition(".")[2].strip("_")
        log = self.logs / f"{name}.{number}.JOB.log"
        command = [*shlex.split(self.command), f"JOB=1:{len(shares)}", str(log), "pykaldist", "gmm-job", str(self.folder), number, "JOB"]
        with usage.others():
            status = self._wait(command, name, [self.folder / f"result.{number}.{job}" for job in range(1, len(shares) + 1)])
        if status:
            raise UserError(f"jobs of the array {name}.{number} have failed (status {status}); {self.logs}/{name}.{number}.*.log say why, "
                            "and which ones stands above.")
        path.unlink()
        for job in range(1, len(shares) + 1):
            result = self.folder / f"result.{number}.{job}"
            if not result.is_file():
                raise UserError(f"{result} does not exist, though job {job} has ended well; all machines have to see this folder.")
            yield read_message(result, self.classes)
            result.unlink()
            (self.folder / f"call.{number}.{job}").unlink()

    @staticmethod
    def _wait(command: list[str], name: str, results: list[Path]) -> int:
        """Run the command of an array to its end, and count the jobs that have left their results; returns its exit status."""
        with Progress(name, len(results), "job") as bar, subprocess.Popen(command, stdin=subprocess.DEVNULL) as array:
            try:
                while array.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        array.wait(LOOK_S)
                    bar.update(sum(result.is_file() for result in results) - bar.count)
            except BaseException:
                array.terminate()  # which ends its jobs
                raise
        return array.returncode


class RowFiles:
    """An array with a row for each frame of a corpus, whose blocks lie in files; a block that has none yet is zeros.

    `bounds` are the blocks' first frames, and the number of all. A slice of frames of one block can be read and written.
    """

    def __init__(self, folder: Path, bounds: np.ndarray, width: int | None, dtype: np.dtype) -> None:
        self.folder, self.bounds, self.width, self.dtype = folder, bounds, width, dtype
        self._open: tuple[int, np.ndarray] | None = None
        folder.mkdir()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        return _shape(len(self), self.width)

    @property
    def described(self) -> list[Any]:
        """What a job needs, to find it."""
        return [str(self.folder), self.width, self.dtype.name]

    def block(self, number: int) -> np.ndarray:
        """The rows of a block, which may be written until another block is asked for, or `close`."""
        if self._open is None or self._open[0] != number:
            self.close()
            path = self.folder / f"{number}.npy"
            if not path.is_file():
                _write_rows(path, np.zeros(_shape(int(self.bounds[number + 1] - self.bounds[number]), self.width), self.dtype))
            self._open = number, np.load(path, "r+", allow_pickle=False)
        return self._open[1]

    def close(self) -> None:
        """Have what was written to the last block on disk, where jobs see it."""
        if self._open is not None:
            mapped, self._open = self._open[1], None
            if isinstance(mapped, np.memmap):
                mapped.flush()

    def __getitem__(self, rows: slice) -> np.ndarray:
        number = int(np.searchsorted(self.bounds, rows.start, "right")) - 1
        first, end = self.bounds[number:number + 2].tolist()
        if rows.stop > end:
            raise IndexError(f"rows {rows.start} to {rows.stop} are of several blocks")
        return self.block(number)[rows.start - first:rows.stop - first]

    def pieces(self) -> Iterator[np.ndarray]:
        """Iterate over the rows of each block."""
        for number in range(len(self.bounds) - 1):
            yield self.block(number)


class BlockTransforms:
    """A folder with the transforms of each block's speakers, which goes with the last features that are adapted by them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


class JobFeatures(PipedFeatures):
    """The features of a corpus whose blocks are jobs', which each job reads anew."""

    def __init__(self, data: DataDir, pipeline: FeaturePipeline, corpus: JobCorpus) -> None:
        super().__init__(data, pipeline, corpus.utts, corpus.offsets)
        self.blocks = corpus.blocks()
        self._jobs = corpus.array_jobs
        self._of_blocks: BlockTransforms | None = None

    def adapted(self, transforms: Mapping[str, np.ndarray]) -> JobFeatures:
        other = super().adapted(transforms)
        other._of_blocks = BlockTransforms(self._jobs.new("trans"))
        for number, (first, end) in enumerate(self.blocks):
            speakers = dict.fromkeys(self.data.utt2spk[utt] for utt in self.utts[first:end])
            write_message(other._of_blocks.folder / str(number), {name: transforms[name].astype(np.float32) for name in speakers})
        return other

    @property
    def described(self) -> list[Any]:
        """What a job needs, to read them; it reads the pipeline's transforms of speakers where this process has read them."""
        fmllr, transform_dir = self.pipeline.fmllr, None
        if isinstance(fmllr, SpeakerTransforms) and fmllr.transform_dir is not None:
            transform_dir = str(fmllr.transform_dir)
        return [str(self.data.path), replace(self.pipeline, fmllr=None) if transform_dir else self.pipeline, self.dim, transform_dir,
                self.projection, self._of_blocks and str(self._of_blocks.folder)]

    def block(self, number: int) -> np.ndarray:
        """The rows of a block."""
        return self.part(*self.blocks[number])

    def close(self) -> None:
        """Nothing to do: nothing is written."""


class GraphFiles(Numbered[TrainingGraph]):
    """The training graphs of a corpus, whose blocks lie in files; `blocks` are the first and the end utterance of each."""

    def __init__(self, folder: Path, blocks: list[tuple[int, int]]) -> None:
        self.folder, self.blocks = folder, blocks
        folder.mkdir()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def described(self) -> list[Any]:
        """What a job needs, to find them."""
        return [str(self.folder)]

    def close(self) -> None:
        """Nothing to do: graphs are written by jobs."""

    def block(self, number: int) -> TrainingGraphs:
        """The graphs of a block."""
        return TrainingGraphs.read(self.folder / str(number))

    def __len__(self) -> int:
        return self.blocks[-1][1]

    def item(self, number: int) -> TrainingGraph:
        block = next(n for n, (_, end) in enumerate(self.blocks) if number < end)
        return self.block(block)[number - self.blocks[block][0]]


@dataclass
class JobCorpus(Corpus):
    """A corpus whose blocks are worked on by jobs; its arrays are `RowFiles`, its graphs `GraphFiles`."""

    jobs: Jobs | None = None

    @classmethod
    def of_jobs(cls, utts: list[str], offsets: np.ndarray, jobs: Jobs, block: int = 0) -> JobCorpus:
        """A corpus that has neither features nor transcripts, as `Corpus.of_lengths`; `block` as in `read`."""
        return cls._divided(utts, offsets, NoWords(len(utts)), Counter(), jobs, block)

    @classmethod
    def _divided(cls, utts: list[str], offsets: np.ndarray, words: Sequence[list[int]], unknown: Counter[str], jobs: Jobs,
                 block: int) -> JobCorpus:
        block = block or max(LEAST, min(BLOCK, -(-int(offsets[-1]) // jobs.count)))
        made = cls(utts, np.zeros(0), offsets, words, unknown, jobs.folder, block=block, jobs=jobs)
        (jobs.folder / "blocks").mkdir()
        for number, (first, end) in enumerate(made.blocks()):
            write_message(jobs.folder / f"blocks/{number}",
                          {"utts": utts[first:end], "words": list(words[first:end]), "offsets": offsets[first:end + 1] - offsets[first],
                           "first": first, "first_frame": int(offsets[first])})
        return made

    @classmethod
    def read(cls, data: DataDir, lang: LangDir, pipeline: FeaturePipeline, jobs: Jobs, block: int = 0, keep: bool = True) -> JobCorpus:
        """Have jobs read the features of `data` through `pipeline`; a block has `block` frames (0: a job's, from `LEAST` to `BLOCK`).

        `keep`: once, into files; else in each task. Raises UserError as `Corpus.load`.
        """
        utts, words, unknown = read_transcripts(data, lang, jobs.folder)
        offsets = offsets_of(data, utts)
        made = cls._divided(utts, offsets, words, unknown, jobs, block)
        made.feats = JobFeatures(data, pipeline, made)
        if keep:
            kept = made.new_rows(made.feats.shape[1], np.float32)
            made.run(_keep_features, Engine(), kept)
            made.feats = kept
        return made

    @property
    def array_jobs(self) -> Jobs:
        """The jobs that work on the blocks."""
        if self.jobs is None:
            raise ValueError("a corpus of jobs has none")
        return self.jobs

    def _bounds(self) -> np.ndarray:
        return self.offsets[[0, *(end for _, end in self.blocks())]]

    def new_rows(self, width: int | None, dtype: np.dtype | type) -> RowFiles:
        return RowFiles(self.array_jobs.new("rows"), self._bounds(), width, np.dtype(dtype))

    def graphs(self, lang: LangDir, tree: ContextDependency, model: TransitionModel) -> GraphFiles:
        made = GraphFiles(self.array_jobs.new("graphs"), self.blocks())
        files = {first: str(made.folder / str(number)) for number, (first, _) in enumerate(self.blocks())}
        self.run(_compile, Engine(), lang=str(lang.path), tree=tree, model=model, own=lambda part: {"file": files[part.first]})
        return made

    def parts(self, *arrays: Any, feats: bool = True) -> Iterator[tuple[Any, ...]]:
        for number, part in enumerate(self._parts()):
            if feats:
                part.feats = self.feats.block(number)
            yield part, *(array.block(number) for array in arrays)

    def _parts(self) -> Iterator[Corpus]:
        """The blocks without their features."""
        for first, end in self.blocks():
            yield Corpus(self.utts[first:end], np.zeros(0), self.offsets[first:end + 1] - self.offsets[first], self.words[first:end],
                         self.unknown, first=first, first_frame=int(self.offsets[first]))

    def each(self, task: BlockTask, engine: Engine, *arrays: Any, own: Own | None = None, bar: Progress | None = None,
             **shared: Any) -> Iterator[Any]:
        for results in self._call(task, arrays, own, bar, shared, summed=False):
            yield from results

    def total(self, task: BlockTask, engine: Engine, *arrays: Any, own: Own | None = None, bar: Progress | None = None,
              **shared: Any) -> Any:
        sums = PairwiseSum(self.scratch)
        for nodes in self._call(task, arrays, own, bar, shared, summed=True):
            for node in nodes:
                sums.add(*node)
        return sums.result()

    def _call(self, task: BlockTask, arrays: Sequence[Any], own: Own | None, bar: Progress | None, shared: dict[str, Any],
              summed: bool) -> Iterator[list[Any]]:
        mine = None if own is None else (own(part) for part in self._parts())  # made for one job after the other
        yield from self.array_jobs.call(task, len(self.blocks()), [*([self.feats] if task.feats else []), *arrays], mine, shared, summed)
        if bar is not None:
            bar.update((bar.total or len(self)) - bar.count)


@block_task(outputs=1)
def _keep_features(part: Corpus, engine: Engine, kept: np.ndarray) -> None:
    kept[:] = part.feats


@block_task(feats=False)
def _compile(part: Corpus, engine: Engine, lang: str, tree: ContextDependency, model: TransitionModel, file: str) -> None:
    _compiler(lang, tree, model).compile_all(part.words).write(Path(file))


@functools.lru_cache(maxsize=1)
def _data(path: str) -> DataDir:
    return DataDir(path)


@functools.lru_cache(maxsize=1)
def _transforms(path: str) -> SpeakerTransforms:
    return SpeakerTransforms.read(path)


@functools.lru_cache(maxsize=1)
def _compiler(lang: str, tree: ContextDependency, model: TransitionModel) -> GraphCompiler:
    return GraphCompiler(LangDir(lang), tree, model)


def run_job(folder: Path, number: int, job: int, classes: Iterable[type], engine_of: Callable[[str], Engine]) -> None:
    """Carry out a job of a task; `engine_of` makes the engine of a device."""
    usage.stage()
    call, mine = read_message(folder / f"call.{number}", classes), read_message(folder / f"call.{number}.{job}", classes)
    task, engine = TASKS[call["task"]], engine_of(call["device"])
    sums, results = PairwiseSum(), []
    blocks = range(mine["first"], mine["end"])
    for block, own in zip(progress(blocks, task.name.rpartition(".")[2], unit="block"), mine["own"] or itertools.repeat({}), strict=False):
        part = _read_block(folder, block)
        arrays = [_read_array(where, block, part) for where in call["arrays"]]
        if task.feats:
            part.feats = arrays.pop(0)
        results_from = len(arrays) - task.outputs
        outputs = [np.array(array) for array in arrays[results_from:]]
        result = task(part, engine, *arrays[:results_from], *outputs, **call["shared"], **own)
        for (where, *_), output in zip(call["arrays"][len(call["arrays"]) - task.outputs:], outputs, strict=True):
            _write_rows(Path(where) / f"{block}.npy", output)
        sums.add(0, block, result) if call["sum"] else results.append(result)
    write_message(folder / f"result.{number}.{job}", sums.nodes if call["sum"] else results)


def _read_block(folder: Path, block: int) -> Corpus:
    """A block of a corpus, as `JobCorpus.read` has written it, without its features."""
    kept = read_message(folder / f"blocks/{block}")
    return Corpus(kept["utts"], np.zeros(0), kept["offsets"], kept["words"], Counter(), first=kept["first"],
                  first_frame=kept["first_frame"])


def _read_array(described: list[Any], block: int, part: Corpus) -> Any:
    """A block's rows, or graphs, of what `described` says (of `RowFiles`, `JobFeatures`, `GraphFiles`)."""
    folder, frames = Path(described[0]), int(part.offsets[-1])
    if len(described) == 1:
        return TrainingGraphs.read(folder / str(block))
    if isinstance(described[1], FeaturePipeline):
        data, pipeline, dim, transform_dir, projection, adapted = described
        if transform_dir:
            pipeline = replace(pipeline, fmllr=_transforms(transform_dir))
        transforms = read_message(Path(adapted) / str(block)) if adapted else None
        return made_features(_data(data), pipeline, part.utts, part.offsets, dim, projection, transforms)
    path, (width, dtype) = folder / f"{block}.npy", described[1:]
    return np.load(path, "r", allow_pickle=False) if path.is_file() else np.zeros(_shape(frames, width), dtype)


def _write_rows(path: Path, rows: np.ndarray) -> None:
    with atomic_open(path, "wb") as stream:
        np.save(stream, rows, allow_pickle=False)


def _shape(rows: int, width: int | None) -> tuple[int, ...]:
    return (rows,) if width is None else (rows, width)
