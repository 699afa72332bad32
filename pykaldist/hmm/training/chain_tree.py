"""The stage that makes the tree of chain models: another topology and a lower frame rate than those of the alignment it is made from.

The directory has what steps/train_sat.sh would leave before the first iteration: `tree`, `1.mdl` and its copy `final.mdl` (the transition
model and one Gaussian for each pdf), the alignment at the lower frame rate, and copies of the files about features.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import MOST_FAILED
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, Labels, clear, record, write_labels
from pykaldist.hmm.alignments.corpus import Corpus, block_task, name_some
from pykaldist.hmm.gmm.engine import Engine, sum_pieces
from pykaldist.hmm.gmm.model_files import write_model, write_tree
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.training.experiment import PathLike, replacing
from pykaldist.hmm.training.jobs import CLASSES, ArrayOptions
from pykaldist.hmm.training.triphones import grow, one_gaussian_each
from pykaldist.hmm.tree.subsample import Converter
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency, monophone_tree
from pykaldist.hmm.tree.tree_stats import TreeStats, accumulate_tree_stats
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.options import option
from pykaldist.progress import Progress

PIECE = 100_000  # frames of features whose statistics a thread makes at a time
THREADS = ArrayOptions()


@dataclass
class ChainTreeOptions:
    """Options of `build_chain_tree_dir`."""

    frame_subsampling_factor: int = option(1, "input frames to a frame of the model's output")
    alignment_subsampling_factor: int = option(0, "frames of the alignment to an output frame (0: --frame-subsampling-factor)")
    repeat_frames: bool = option(False, "the written alignment keeps the frame rate of the old one")
    context_width: int = option(3, "phones in the tree's window")
    central_position: int = option(1, "place of the modelled phone in it, from 0")
    cluster_thresh: float = option(-1.0, "merge leaves while that costs less log-likelihood; below 0: than the last split gained; 0: never")
    pdf_class_list: str = option("1", "pdf-classes whose statistics make the questions, with colons between them")

    def __post_init__(self) -> None:
        if self.frame_subsampling_factor < 1 or self.alignment_subsampling_factor < 0:
            raise UserError(f"--frame-subsampling-factor {self.frame_subsampling_factor} --alignment-subsampling-factor "
                            f"{self.alignment_subsampling_factor}: expected factors of at least 1.")
        if not 0 <= self.central_position < self.context_width <= 5:
            raise UserError(f"--context-width must be 1 to 5 and --central-position below it, found {self.context_width} and "
                            f"{self.central_position}.")
        if not all(part.isdecimal() for part in self.pdf_class_list.split(":")):
            raise UserError(f"--pdf-class-list {self.pdf_class_list}: expected numbers with colons between them, such as 0:1.")

    @property
    def alignment_factor(self) -> int:
        return self.alignment_subsampling_factor or self.frame_subsampling_factor


def build_chain_tree_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, max_leaves: int,
                         options: ChainTreeOptions, log: Callable[[str], None] = print, nj: int = 1,
                         jobs: ArrayOptions = THREADS) -> str:
    """Make the tree of a chain model from the alignment `ali_dir`, for the topology of `lang_dir`; returns a line that says what came out.

    Utterances whose phones do not fit into the frames at the lower rate are named in the log, and have no alignment there. Raises
    UserError where these are more than a tenth, or the alignment is of another phone set or other features.
    """
    data, lang, exp = DataDir(data_dir), LangDir(lang_dir), Path(exp_dir)
    ali = AlignmentDir(ali_dir, exp)
    if not ali.has_transition_ids or ali.model is None:
        raise UserError(f"{ali_dir} has pdfs, which do not say what phones they are of; align with a model (steps/align_fmllr.sh).")
    provenance.check(lang.path)
    check_phones(lang, ali.path)
    topology = read_topology(lang.file("topo"))
    monophones = monophone_tree(lang.phone_sets, topology.num_pdf_classes)
    mono = TransitionModel.from_tree(monophones, topology)
    has_transforms = any(ali.path.glob("trans.*"))
    pipeline = FeaturePipeline.from_dir(ali.path, ali.path if has_transforms else None)
    with replacing(exp, ali.path):
        utts = [utt for utt in data.utterances() if utt in ali.labels]
        if not utts:
            raise UserError(f"{ali.path} has no alignment of any utterance of {data.path}; align this data ({ALIGNING}).")
        corpus, engine = jobs.piped(data, pipeline, utts, nj, exp), Engine(nj)

        def of_part(part: Corpus) -> dict[str, Any]:
            labels = [ali.labels[utt] for utt in part.utts]
            return {"labels": np.concatenate(labels), "bounds": _bounds(labels)}

        context_independent = [phone for phones in lang.int_lists("phones/context_indep.int") for phone in phones]
        with Progress("statistics of the tree", len(utts), "utt") as bar:
            found = corpus.total(_tree_statistics, engine, own=of_part, bar=bar, old=ali.model, tree=monophones, model=mono,
                                 options=options, ali=str(ali.path), context_independent=context_independent)
        _check_short(found.short, utts, ali.path, options.alignment_factor)
        stats = found.stats  # which are some, as at most a tenth of the utterances are short
        pdf_classes = [int(part) for part in options.pdf_class_list.split(":")]
        tree, model = grow(stats, lang, max_leaves, options.cluster_thresh, 0, log, pdf_classes, as_kaldi=True)
        short: list[str] = []

        def final() -> Iterator[tuple[str, np.ndarray]]:
            with Progress("converting alignments", len(utts), "utt") as bar:
                for converted in corpus.each(_convert, engine, own=of_part, bar=bar, old=ali.model, tree=tree, model=model,
                                             options=options):
                    for utt, tids in converted:
                        if tids is None:
                            short.append(utt)
                        else:
                            yield utt, tids

        aligned = Labels.read(final(), exp, ali.path)
        if short:
            log(f"WARNING: {_short(short, utts, ali.path, options.alignment_factor)}; they are left out.")
        clear(exp)
        write_tree(exp / "tree", tree)
        pipeline.save(exp)
        if (ali.path / "full.mat").is_file():
            copy_file(ali.path / "full.mat", exp / "full.mat")
        copy_file(lang.file("phones.txt"), exp / "phones.txt")
        write_labels(exp, data, aligned, len(ali.archives))
        write_model(exp / "1.mdl", model, one_gaussian_each(stats, tree)[0])
        copy_file(exp / "1.mdl", exp / "final.mdl")
        record(exp, "steps/nnet3/chain/build_tree.sh", data)
    return f"{tree.num_pdfs} pdfs, {len(aligned)} of {len(utts)} alignments converted"


@dataclass(frozen=True)
class ConvertedStats:
    """The statistics of a tree, of converted alignments; `short` are the utterances whose phones do not fit. None: all are short."""

    stats: TreeStats | None
    short: list[str]

    def __add__(self, other: ConvertedStats) -> ConvertedStats:
        both = [found.stats for found in (self, other) if found.stats is not None]
        return ConvertedStats(functools.reduce(operator.add, both) if both else None, self.short + other.short)


@block_task()
def _tree_statistics(part: Corpus, engine: Engine, labels: np.ndarray, bounds: np.ndarray, ali: str, old: TransitionModel,
                     tree: ContextDependency, model: TransitionModel, options: ChainTreeOptions, context_independent: list[int],
                     bar: Progress | None = None) -> ConvertedStats:
    """The statistics of a block, by the monophones of its alignment at the lower rate (`labels`, utterance u from `bounds[u]` on)."""
    converter = Converter(old, tree, model, options.alignment_factor)

    def of_utterances(some: range) -> ConvertedStats:
        feats, tids, short = list[np.ndarray](), list[np.ndarray](), list[str]()
        for number in some:
            own = labels[bounds[number]:bounds[number + 1]]
            converted = converter.convert(own)
            if converted is None:
                short.append(part.utts[number])
                continue
            rows = part.utterance_feats(number)[:: options.frame_subsampling_factor]
            if len(converted) != len(rows):
                raise UserError(f"{ali}, {part.utts[number]}: the alignment has {len(own)} frames, which make {len(converted)}, the "
                                f"features make {len(rows)}; align the same data again, or see --alignment-subsampling-factor.")
            feats.append(rows)
            tids.append(converted)
        if bar is not None:
            bar.update(len(some))
        return ConvertedStats(accumulate_tree_stats(np.concatenate(feats), np.concatenate(tids), _bounds(tids), model, context_independent,
                                                    options.context_width, options.central_position) if tids else None, short)

    pieces = np.searchsorted(part.offsets, np.arange(0, part.frames, PIECE)).tolist()
    some = ((range(first, end),) for first, end in pairwise([*pieces, len(part)]) if first < end)
    found: ConvertedStats = sum_pieces(of_utterances, some, engine.threads)
    return found


@block_task(feats=False)
def _convert(part: Corpus, engine: Engine, labels: np.ndarray, bounds: np.ndarray, old: TransitionModel, tree: ContextDependency,
             model: TransitionModel, options: ChainTreeOptions, bar: Progress | None = None) -> list[tuple[str, np.ndarray | None]]:
    """The utterances of a block with their alignments to the new model; None where the phones do not fit."""
    converter = Converter(old, tree, model, options.alignment_factor, options.repeat_frames)
    found: list[np.ndarray | None] = [None] * len(part)

    def convert(number: int) -> None:
        found[number] = converter.convert(labels[bounds[number]:bounds[number + 1]])

    engine.for_each(len(part), convert, bar)
    return list(zip(part.utts, found, strict=True))


def _bounds(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Where each array begins and the last one ends when one stands behind the other."""
    return np.concatenate([[0], np.cumsum([len(one) for one in arrays])]).astype(np.int64)


def _short(short: list[str], utts: list[str], where: Path, factor: int) -> str:
    return f"{where}: the phones of {len(short)} of {len(utts)} utterances do not fit into 1/{factor} of their frames: {name_some(short)}"


def _check_short(short: list[str], utts: list[str], where: Path, factor: int) -> None:
    if len(short) > MOST_FAILED * len(utts):
        raise UserError(f"{_short(short, utts, where, factor)}; the topology of the language directory must be that of a chain model "
                        "(steps/nnet3/chain/gen_topo.py), and --alignment-subsampling-factor that of the alignment.")


CLASSES.extend((ChainTreeOptions, ConvertedStats))  # what goes to jobs and from them
