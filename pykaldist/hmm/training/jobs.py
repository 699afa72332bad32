"""Jobs of trainings and alignments: whether a stage has them, and what goes between them and the stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist import deterministic
from pykaldist.errors import UserError
from pykaldist.feats.cmvn import CmvnOptions
from pykaldist.feats.deltas import DeltaOptions
from pykaldist.feats.lda import LdaStats
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.adaptation.basis_fmllr import BasisFmllr, BasisFmllrOptions, GradientScatter
from pykaldist.hmm.adaptation.fmllr import FmllrOptions, FmllrStats, SpeakerSums
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import BLOCK, Corpus, offsets_of
from pykaldist.hmm.alignments.corpus_jobs import LEAST, JobCorpus, JobFeatures, Jobs, run_job
from pykaldist.hmm.alignments.piped import PipedFeatures, Projection
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.gmm.mllt import MlltSums
from pykaldist.hmm.gmm.ubm import UbmStats
from pykaldist.hmm.lang.topology import HmmState, Topology
from pykaldist.hmm.training import lda_mllt, sat  # noqa: F401 their tasks, which a job finds by their names
from pykaldist.hmm.training.accumulate import CorpusStats, Realigned
from pykaldist.hmm.training.mono import Moments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import Constant, ContextDependency, Split, Table
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import option

#: what goes between a stage and its jobs; a module that has tasks of its own adds its classes
CLASSES = [AlignOptions, AmDiagGmm, BasisFmllr, BasisFmllrOptions, CmvnOptions, Constant, ContextDependency, CorpusStats, DeltaOptions,
           FeaturePipeline, FmllrOptions, FmllrStats, GmmStats, GradientScatter, HmmState, LdaStats, MlltSums, Moments, Projection,
           Realigned, SpeakerSums, SpliceOptions, Split, Table, Topology, TransitionModel, TreeStats, UbmStats]
FOLDER = "jobs"


@dataclass
class ArrayOptions:
    """Options that say how the work on a corpus is divided among jobs."""

    jobs_cmd: str = option("", "command that runs an array of jobs, such as \"slurm.pl --mem 2G\": each of --nj jobs is a process, "
                           "here or on another machine (none: --nj threads)")
    block_frames: int = option(0, f"frames that are summed up together; sums, and so models, have the same bits with the same blocks (0: "
                               f"{BLOCK}; with --jobs-cmd no more than a job has, but {LEAST} at least)")

    def __post_init__(self) -> None:
        if self.block_frames < 0:
            raise UserError(f"--block-frames must be 0 or more, found {self.block_frames}.")

    def lengths(self, utts: list[str], offsets: np.ndarray, nj: int, exp: Path, device: str = "cpu") -> Corpus:
        """Divide the work on utterances whose tasks read what they need; utterance u has the frames `offsets[u]` to `offsets[u + 1]`."""
        if not self.jobs_cmd:
            return Corpus.of_lengths(utts, offsets, exp, self.block_frames)
        return JobCorpus.of_jobs(utts, offsets, self._jobs(nj, exp, device), self._block())

    def piped(self, data: DataDir, pipeline: FeaturePipeline, utts: list[str], nj: int, exp: Path) -> Corpus:
        """Divide the work on utterances of `data` whose features are read through `pipeline` in each pass; they have no transcripts."""
        offsets = offsets_of(data, utts)
        made = self.lengths(utts, offsets, nj, exp)
        if isinstance(made, JobCorpus):
            made.feats = JobFeatures(data, pipeline, made)
        else:
            feats = PipedFeatures(data, pipeline, utts, offsets)
            made.feats = feats if len(made.blocks()) > 1 else feats.part(0, len(utts))
        return made

    def _jobs(self, nj: int, exp: Path, device: str) -> Jobs:
        return Jobs(exp / FOLDER, self.jobs_cmd, nj, exp / "log", device, CLASSES)

    def _block(self) -> int:
        return self.block_frames or (BLOCK if deterministic.enabled() else 0)  # the same numbers with any --nj


@dataclass
class JobsOptions(ArrayOptions):
    """Options that say how the work on a corpus is divided among jobs, and where its features are meanwhile."""

    keep_feats: str = option("auto", "true: keep what CMVN, deltas, LDA and transforms make of the features on disk while the stage runs, "
                             "156 bytes a frame of MFCCs with deltas; false: make it anew in each pass, as Kaldi does; auto: keep it in "
                             "trainings, not in alignments", ("auto", "true", "false"))

    def corpus(self, data: DataDir, lang: LangDir, pipeline: FeaturePipeline, nj: int, exp: Path | None, device: str,
               few_passes: bool = False) -> Corpus:
        """Read a corpus, whose files beyond memory are in `exp`, or have jobs read it; alignments go through it in `few_passes`."""
        keep = self.keep_feats == "true" or (self.keep_feats == "auto" and not few_passes)
        if not self.jobs_cmd or exp is None:
            return Corpus.load(data, lang, pipeline, exp, self.block_frames, keep)
        return JobCorpus.read(data, lang, pipeline, self._jobs(nj, exp, device), self._block(), keep)


def carry_out(folder: Path, number: int, job: int) -> None:
    """Be job `job` of the task `number` of the stage whose files are in `folder`."""
    if not (folder / f"call.{number}.{job}").is_file():
        raise UserError(f"{folder} has no job {job} of task {number}; stages start their jobs by themselves (--jobs array).")
    run_job(folder, number, job, CLASSES, make_engine)
