"""The iterations of EM along alignments, which all GMM trainings have in common.

An iteration may align first, may learn a transform of the features (`Adaptation`), then estimates transitions and Gaussians and splits
these; their number grows by the same amount in each iteration up to `max_iter_inc`. How far a training has come is kept in `resume.npz`,
from which an interrupted one goes on (`Checkpoint`) to the same system, bit for bit, as if it had not been.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pykaldist.errors import FEATURES, Terminated, UserError
from pykaldist.hmm.alignments.align import Alignments, AlignOptions, align
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.alignments.graphs import TrainingGraph
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, split_targets
from pykaldist.hmm.lang.topology import Topology
from pykaldist.hmm.training.accumulate import accumulate, align_and_accumulate
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.atomic import atomic_open
from pykaldist.io.entries import numpy_damage, reason
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.io.npz import read_npz, write_npz
from pykaldist.io.scratch import release
from pykaldist.options import option
from pykaldist.progress import Progress

_GMM = ("offsets", "weights", "means_invvars", "inv_vars", "gconsts")


@dataclass
class TrainingOptions:
    """The options of every GMM training, beside those of the alignment."""

    num_iters: int = option(35, "iterations of training")
    max_iter_inc: int = option(25, "last iteration in which the number of Gaussians grows")
    realign_iters: str = option("10 20 30", "iterations that align first")
    power: float = option(0.25, "exponent of a pdf's occupancy in its share of the Gaussians")
    seed: int = option(0, "seed of all that is drawn")

    def __post_init__(self) -> None:
        if self.num_iters < 1:
            raise UserError(f"--num-iters must be at least 1, found {self.num_iters}.")
        iterations("realign-iters", self.realign_iters)


class Adaptation(Protocol):
    """A transform of the features that is learned along with the Gaussians, in the iterations `iters`."""

    iters: set[int]

    def update(self, iteration: int, gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> tuple[
            AmDiagGmm, np.ndarray, str]:
        """Learn the transform in iteration `iteration`; returns the model and the features (N, D) to go on with, and a line for the log.

        The line may be empty.

        `tids` is the alignment of all frames, 0 where there is none.
        """
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Everything that was learned so far, as arrays by name."""
        ...

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Take over such a state; returns the features (N, D) that it makes."""
        ...


@dataclass
class State:
    """A system in training: its model, alignments, and the features (N, D) in the space of the model."""

    tree: ContextDependency
    transition_model: TransitionModel
    gmm: AmDiagGmm
    alignments: Alignments
    feats: np.ndarray
    rng: np.random.Generator
    log_likelihood: float = 0.0


class Checkpoint:
    """The state of a training on disk: `resume.npz` in the folder `exp`. `stage` is the iteration to go on with, or 0 to begin.

    A later one, before which it was left, goes before that which was asked for: so the command that has gone on, and was ended, goes on.
    """

    seconds = 10.0  # between one and the next: the iterations of a small corpus take hardly longer than writing them down

    def __init__(self, exp: Path, stage: int = 0) -> None:
        self.path, self.stage = exp / "resume.npz", max(0, stage)
        self._last = time.monotonic()

    def keep(self, iteration: int, state: State, adaptation: Adaptation | None) -> bool:
        """Write the state before `iteration`, if the last time is long enough ago; returns whether it was."""
        if time.monotonic() - self._last < self.seconds:
            return False
        tree = io.BytesIO()
        state.tree.write(KaldiWriter(tree))
        learned: dict[str, Any] = {f"learned_{name}": array for name, array in (adaptation.state() if adaptation else {}).items()}
        with atomic_open(self.path, "wb") as stream:
            write_npz(stream, {
                "iteration": np.array(iteration), "tree": np.frombuffer(tree.getvalue(), np.uint8),
                "log_probs": state.transition_model.log_probs, "tids": state.alignments.tids,
                "retried": np.array(state.alignments.retried, dtype=str), "rng": np.array(json.dumps(state.rng.bit_generator.state)),
                **{name: getattr(state.gmm, name) for name in _GMM}, **learned})
        self._last, self.stage = time.monotonic(), iteration
        return True

    @property
    def how_to_go_on(self) -> str:
        """What a user has to do after an interruption, in words."""
        return f"--stage {self.stage} goes on from the last iteration that was kept" if self.stage else "run it again, from its beginning"

    def load(self, corpus: Corpus, topology: Topology, adaptation: Adaptation | None) -> State:
        """Read the state, and set `stage` to its iteration; raises UserError where there is none, or it is of another corpus."""
        exp, again = self.path.parent, "leave --stage out to begin again"
        if not self.path.is_file():
            raise UserError(f"--stage {self.stage}: {exp} has no training to go on with (resume.npz); {again}.")
        try:
            kept = read_npz(self.path, corpus.scratch)
        except numpy_damage() as error:
            raise UserError(f"{self.path} is damaged ({reason(error)}); {again}.") from error
        if missing := [name for name in ("iteration", "tree", "log_probs", "tids", "retried", "rng", *_GMM) if name not in kept]:
            raise UserError(f"{self.path} is damaged or of another version: it has no {missing[0]}; {again}.")
        if (iteration := int(kept["iteration"])) < self.stage:
            raise UserError(f"--stage {self.stage}: {exp} was left before iteration {iteration}; give --stage {iteration}, or {again}.")
        if len(kept["tids"]) != len(corpus.feats):
            raise UserError(f"--stage {self.stage}: {exp} was left with {len(kept['tids'])} frames, the data have {len(corpus.feats)}; use "
                            f"the same data, or {again}.")
        self.stage = iteration
        tree = ContextDependency.read(KaldiReader(kept["tree"].tobytes(), str(self.path)))
        model = TransitionModel.from_tree(tree, topology)
        model.log_probs = kept["log_probs"]
        rng = np.random.default_rng()
        try:
            rng.bit_generator.state = json.loads(str(kept["rng"]))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{self.path} is damaged: no state of random numbers ({reason(error)}); {again}.") from error
        prefix = "learned_"
        learned = {name.removeprefix(prefix): array for name, array in kept.items() if name.startswith(prefix)}
        try:
            feats = adaptation.restore(learned) if adaptation else corpus.feats
        except (KeyError, ValueError) as error:
            raise UserError(f"{self.path} is of another training: its transforms do not fit ({reason(error)}); {again}.") from error
        gmm = AmDiagGmm(*(kept[name] for name in _GMM))
        if gmm.dim != feats.shape[1]:
            raise UserError(f"--stage {self.stage}: {exp} was left with features of dimension {gmm.dim}, now they have {feats.shape[1]}; "
                            f"use the same options, or {again}.")
        tids = corpus.new_rows(None, np.int32)
        for part, mine in corpus.parts(tids, feats=False):
            rows = kept["tids"][part.first_frame:part.first_frame + len(mine)]
            mine[:] = rows
            release(rows)
        return State(tree, model, gmm, Alignments(tids, kept["retried"].tolist()), feats, rng)

    def done(self) -> None:
        """Remove the checkpoint: the training has ended."""
        self.path.unlink(missing_ok=True)


@dataclass
class Training:
    """The iterations of a training on `corpus` along `graphs`, from `first_gauss` Gaussians to about `last_gauss`.

    `optional_silence` is the phone whose likelihoods alignment boosts; `initial_beam` the beam of iteration 1, if it has its own.
    """

    corpus: Corpus
    graphs: Sequence[TrainingGraph]
    optional_silence: int
    options: TrainingOptions
    align_options: AlignOptions
    first_gauss: int
    last_gauss: int
    engine: Engine
    adaptation: Adaptation | None = None
    initial_beam: float | None = None
    log: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self._realign_iters = iterations("realign-iters", self.options.realign_iters)
        self._step = max(0, self.last_gauss - self.first_gauss) // max(1, self.options.max_iter_inc)

    def run(self, state: State, numbers: Iterable[int], bar: Progress, checkpoint: Checkpoint | None = None) -> None:
        """Run the iterations `numbers`, which change `state`."""
        try:
            for iteration in numbers:
                if checkpoint is not None and checkpoint.keep(iteration, state, self.adaptation):
                    self.log(f"--stage {iteration} would go on from here")
                self._iterate(state, iteration)
                bar.update(1, f"log-likelihood {state.log_likelihood:.2f}")
        except (Terminated, KeyboardInterrupt) as error:
            raise type(error)(*([checkpoint.how_to_go_on] if checkpoint is not None else [])) from error

    def _iterate(self, state: State, iteration: int) -> None:
        note, model, stats = "", state.transition_model, None
        adapts = self.adaptation is not None and iteration in self.adaptation.iters
        if iteration in self._realign_iters and iteration > 0:
            options = self.align_options
            if iteration == 1 and self.initial_beam is not None:
                options = replace(options, beam=self.initial_beam)
            corpus = replace(self.corpus, feats=state.feats)
            if adapts:
                state.alignments = align(corpus, self.graphs, model, state.gmm, options, [self.optional_silence], self.engine)
            else:
                state.alignments, stats = align_and_accumulate(self.engine, state.gmm, corpus, self.graphs, model, options,
                                                               [self.optional_silence])
            note = f", aligned ({len(state.alignments.retried)} retried, {len(state.alignments.failed)} failed)"
        if self.adaptation is not None and adapts:
            state.gmm, state.feats, adapted = self.adaptation.update(iteration, state.gmm, state.feats, state.alignments.tids, model)
            note += adapted
        if stats is None:
            stats = accumulate(self.engine, state.gmm, replace(self.corpus, feats=state.feats), state.alignments.tids, model)
        state.log_likelihood = stats.log_likelihood
        if not np.isfinite(state.log_likelihood):
            raise UserError(f"iteration {iteration}: the log-likelihood is {state.log_likelihood}{unscored(self.corpus, state)}.")
        self.log(f"iteration {iteration}: log-likelihood {state.log_likelihood:.4f} a frame, {stats.num_frames} frames, "
                 f"{state.gmm.num_gauss} Gaussians{note}")
        model.update(stats.transition_counts)
        num_gauss = self.first_gauss + self._step * min(max(0, iteration - 1), self.options.max_iter_inc)
        targets = split_targets(state.gmm.pdf_occupancy(stats.gmm), num_gauss, self.options.power)
        # A flat start gives some phones few frames at first; they shall not lose their Gaussians.
        state.gmm = state.gmm.updated(stats.gmm, min_gaussian_occupancy=10.0 if iteration else 3.0).split(targets, state.rng)

    def check(self, state: State) -> None:
        """Name the utterances without an alignment; raises UserError where they are more than a tenth."""
        check_alignments(self.corpus, state.alignments, self.graphs)


def check_alignments(corpus: Corpus, alignments: Alignments, graphs: Sequence[TrainingGraph]) -> None:
    """Name the utterances without an alignment; raises UserError where they are more than a tenth."""
    alignments.failed = [utt for part, tids in corpus.parts(alignments.tids, feats=False)
                         for utt, first in zip(part.utts, part.offsets[:-1].tolist(), strict=True) if not tids[first]]
    alignments.check(corpus, graphs)


def unscored(corpus: Corpus, state: State) -> str:
    """The first utterance that the model cannot score, in words, and what to do about it."""
    for number, utt in enumerate(corpus.utts):
        feats = state.feats[corpus.offsets[number]:corpus.offsets[number + 1]]
        if not np.isfinite(state.gmm.loglikes(feats)).all():
            return (f": the model has no finite score of utterance {utt}, whose features reach {np.abs(feats).max():.3g}; look at its "
                    f"audio, and make its features again ({FEATURES}), or leave it out")
    return f", though every utterance can be scored; make the features and the first alignment again ({FEATURES}, steps/align_si.sh)"


def iterations(name: str, text: str) -> set[int]:
    """The numbers of the iterations that option `name` lists, with spaces between; raises UserError for other text."""
    try:
        return {int(field) for field in text.split()}
    except ValueError as error:
        raise UserError(f"--{name}: expected numbers of iterations, found {text!r}.") from error
