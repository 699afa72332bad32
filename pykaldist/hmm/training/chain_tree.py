"""The stage that makes the tree of chain models: another topology and a lower frame rate than those of the alignment it is made from.

The directory has what steps/train_sat.sh would leave before the first iteration: `tree`, `1.mdl` and its copy `final.mdl` (the transition
model and one Gaussian for each pdf), the alignment at the lower frame rate, and copies of the files about features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import MOST_FAILED
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, Labels, clear, record, write_labels
from pykaldist.hmm.alignments.corpus import name_some
from pykaldist.hmm.gmm.model_files import write_model, write_tree
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.training.experiment import PathLike, replacing
from pykaldist.hmm.training.triphones import grow, one_gaussian_each
from pykaldist.hmm.tree.subsample import Converter
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.hmm.tree.tree_stats import TreeStats, accumulate_tree_stats
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.options import option
from pykaldist.progress import progress

BLOCK = 100_000  # frames whose statistics are made at a time


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
                         options: ChainTreeOptions, log: Callable[[str], None] = print) -> str:
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
        to_mono = Converter(ali.model, monophones, mono, options.alignment_factor)
        short: list[str] = []
        utts = [utt for utt in data.utterances() if utt in ali.labels]
        if not utts:
            raise UserError(f"{ali.path} has no alignment of any utterance of {data.path}; align this data ({ALIGNING}).")

        def converted() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """(features, transition_ids of monophones) of utterances at the lower rate; those that do not fit are `short`."""
            for utt in progress(utts, "reading features", unit="utt"):
                tids = to_mono.convert(ali.labels[utt])
                if tids is None:
                    short.append(utt)
                    continue
                feats = pipeline.apply(data, utt)[:: options.frame_subsampling_factor]
                if len(tids) != len(feats):
                    raise UserError(f"{ali.path}, {utt}: the alignment has {len(ali.labels[utt])} frames, which make {len(tids)}, the "
                                    f"features make {len(feats)}; align the same data again, or see --alignment-subsampling-factor.")
                yield feats, tids

        context_independent = [phone for phones in lang.int_lists("phones/context_indep.int") for phone in phones]
        stats = _tree_stats(converted(), mono, context_independent, options)
        _check_short(short, utts, ali.path, options.alignment_factor)
        assert stats is not None  # at most a tenth of the utterances are short
        clear(exp)
        pdf_classes = [int(part) for part in options.pdf_class_list.split(":")]
        tree, model = grow(stats, lang, max_leaves, options.cluster_thresh, 0, log, pdf_classes, as_kaldi=True)
        write_tree(exp / "tree", tree)
        pipeline.save(exp)
        if (ali.path / "full.mat").is_file():
            copy_file(ali.path / "full.mat", exp / "full.mat")
        copy_file(lang.file("phones.txt"), exp / "phones.txt")
        converter = Converter(ali.model, tree, model, options.alignment_factor, options.repeat_frames)
        short.clear()

        def final() -> Iterator[tuple[str, np.ndarray]]:
            for utt in progress(utts, "converting alignments", unit="utt"):
                tids = converter.convert(ali.labels[utt])
                if tids is None:
                    short.append(utt)
                else:
                    yield utt, tids

        aligned = Labels.read(final(), exp, ali.path)
        if short:
            log(f"WARNING: {_short(short, utts, ali.path, options.alignment_factor)}; they are left out.")
        write_labels(exp, data, aligned, len(ali.archives))
        write_model(exp / "1.mdl", model, one_gaussian_each(stats, tree)[0])
        copy_file(exp / "1.mdl", exp / "final.mdl")
        record(exp, "steps/nnet3/chain/build_tree.sh", data)
    return f"{tree.num_pdfs} pdfs, {len(aligned)} of {len(utts)} alignments converted"


def _tree_stats(utts: Iterable[tuple[np.ndarray, np.ndarray]], mono: TransitionModel, context_independent: list[int],
                options: ChainTreeOptions) -> TreeStats | None:
    """The statistics of utterances (features, transition_ids), which are in memory some at a time; None without any."""
    stats: TreeStats | None = None
    feats: list[np.ndarray] = []
    tids: list[np.ndarray] = []

    def add() -> None:
        nonlocal stats
        offsets = np.concatenate([[0], np.cumsum(list(map(len, tids)))])
        block = accumulate_tree_stats(np.concatenate(feats), np.concatenate(tids), offsets, mono, context_independent,
                                      options.context_width, options.central_position)
        stats = block if stats is None else stats + block
        feats.clear()
        tids.clear()

    frames = 0
    for own_feats, own_tids in utts:
        feats.append(own_feats)
        tids.append(own_tids)
        frames += len(own_tids)
        if frames >= BLOCK:
            add()
            frames = 0
    if tids:
        add()
    return stats


def _short(short: list[str], utts: list[str], where: Path, factor: int) -> str:
    return f"{where}: the phones of {len(short)} of {len(utts)} utterances do not fit into 1/{factor} of their frames: {name_some(short)}"


def _check_short(short: list[str], utts: list[str], where: Path, factor: int) -> None:
    if len(short) > MOST_FAILED * len(utts):
        raise UserError(f"{_short(short, utts, where, factor)}; the topology of the language directory must be that of a chain model "
                        "(steps/nnet3/chain/gen_topo.py), and --alignment-subsampling-factor that of the alignment.")
