"""Viterbi alignment: the best path of each utterance through its training graph, as one transition_id a frame.

With acoustic scale k and the log-likelihood b of the arc's pdf, the search over frames t is
    score[t + 1, destination] = max over arcs of score[t, source] + log p(transition) - cost + k b[t, pdf].
States more than the beam below the best one of a frame are not followed. Where the final state is not reached the utterance is
searched again with the retry beam; then it fails. Kaldi's graphs put the self-loops of a state behind its way out; an alignment is
written in that order: of the frames spent in a state the first has the transition that leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import Labels
from pykaldist.hmm.alignments.corpus import Corpus, block_task, name_some
from pykaldist.hmm.alignments.graphs import TrainingGraph
from pykaldist.hmm.gmm.engine import Engine, Scorer
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.kernels import kernel
from pykaldist.options import option
from pykaldist.progress import Progress

_EQUAL_ATTEMPTS = 10
MOST_FAILED = 0.1  # share of the utterances; beyond it something is wrong with the data


@dataclass
class AlignOptions:
    """Options of `align`; beams are in scaled log-likelihood."""

    beam: float = option(10.0, "beam of the alignment")
    retry_beam: float = option(40.0, "beam of the second try, where the first does not reach the end")
    careful: bool = option(False, "let an utterance fail that fits its transcript better said again, in part, than said once")
    boost_silence: float = option(1.0, "factor on the likelihoods of silence")
    transition_scale: float = option(1.0, "scale of transition probabilities")
    acoustic_scale: float = option(0.1, "scale of acoustic log-likelihoods")
    self_loop_scale: float = option(0.1, "scale of self-loop probabilities")

    def __post_init__(self) -> None:
        for name in ("beam", "retry_beam", "boost_silence", "acoustic_scale"):
            if not getattr(self, name) > 0:
                raise UserError(f"--{name.replace('_', '-')} must be above 0, found {getattr(self, name):g}.")

    def with_silence(self, gmm: AmDiagGmm, model: TransitionModel, silence_phones: Sequence[int]) -> AmDiagGmm:
        """The model to align with: `gmm` with the likelihoods of `silence_phones` raised by `boost_silence`."""
        if self.boost_silence == 1.0:
            return gmm
        return gmm.boosted(np.unique(model.tid2pdf[1:][np.isin(model.tid2phone[1:], silence_phones)]), self.boost_silence)


@dataclass
class Alignments:
    """The alignments of a corpus: `tids` has the transition_ids of all its frames (int32), 0 throughout a failed utterance."""

    tids: np.ndarray
    retried: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @classmethod
    def of_tries(cls, corpus: Corpus, tids: np.ndarray, tries: Sequence[np.ndarray]) -> Alignments:
        """The alignments `tids` that were made with the tries (`align_part`) of all utterances."""
        attempt = np.concatenate(tries)
        return cls(tids, [corpus.utts[n] for n in np.flatnonzero(attempt == 2)], [corpus.utts[n] for n in np.flatnonzero(attempt == 0)])

    def check(self, corpus: Corpus, graphs: Sequence[TrainingGraph]) -> None:
        """Check that enough utterances were aligned; raises UserError where more than a tenth of them failed."""
        if len(self.failed) > MOST_FAILED * len(corpus):
            numbers = {utt: number for number, utt in enumerate(corpus.utts)}
            short = [u for u in self.failed if corpus.num_frames(numbers[u]) < graphs[numbers[u]].min_frames]
            why = f"; {len(short)} of them are too short for their transcripts, such as {short[0]}" if short else ""
            raise UserError(f"{len(self.failed)} of {len(corpus)} utterances cannot be aligned: {name_some(self.failed)}{why}; check "
                            "that transcripts, audio and model belong together.")

    def labels(self, corpus: Corpus) -> Labels:
        """The transition_ids of the utterances that did not fail."""
        failed = set(self.failed)
        return Labels({utt: number for number, utt in enumerate(corpus.utts) if utt not in failed}, corpus.offsets, self.tids)


def align(corpus: Corpus, graphs: Sequence[TrainingGraph], transition_model: TransitionModel, gmm: AmDiagGmm,
          options: AlignOptions, silence_phones: Sequence[int] = (), engine: Engine | None = None,
          bar: Progress | None = None) -> Alignments:
    """Align every utterance of `corpus` along its graph.

    `silence_phones` are those whose likelihoods `options.boost_silence` raises. `bar` counts utterances.
    """
    gmm = options.with_silence(gmm, transition_model, silence_phones)
    tids = corpus.new_rows(None, np.int32)
    tries = corpus.each(align_block, engine or Engine(), graphs, tids, bar=bar, gmm=gmm, model=transition_model, options=options)
    return Alignments.of_tries(corpus, tids, list(tries))


def align_scored(corpus: Corpus, graphs: Sequence[TrainingGraph], transition_model: TransitionModel,
                 scorer: Callable[[np.ndarray], Scorer], options: AlignOptions, engine: Engine, bar: Progress | None = None) -> Alignments:
    """Align every utterance of `corpus` along its graph, in the engine's threads.

    `scorer` gets the features of a block of the corpus, and makes the function that scores rows of them.
    """
    tids = corpus.new_rows(None, np.int32)
    tries = [align_part(part, mine, transition_model, scorer(part.feats), options, engine, found, bar)
             for part, mine, found in corpus.parts(graphs, tids)]
    return Alignments.of_tries(corpus, tids, tries)


@block_task(outputs=1)
def align_block(part: Corpus, engine: Engine, graphs: Sequence[TrainingGraph], found: np.ndarray, gmm: AmDiagGmm, model: TransitionModel,
                options: AlignOptions, bar: Progress | None = None) -> np.ndarray:
    """Align the utterances of a block with a GMM, as `align_part`."""
    return align_part(part, graphs, model, engine.scorer(gmm, part.feats), options, engine, found, bar)


def align_part(part: Corpus, graphs: Sequence[TrainingGraph], transition_model: TransitionModel, score: Scorer, options: AlignOptions,
               engine: Engine, found: np.ndarray, bar: Progress | None = None) -> np.ndarray:
    """Align the utterances of a block; `found` gets the transition_ids of its frames.

    Returns with which try each one was (int8): 1 or 2, 0 where it failed.
    """
    log_probs = transition_model.scaled_log_probs(options.transition_scale, options.self_loop_scale)
    tries = np.zeros(len(part), dtype=np.int8)

    def one(number: int) -> None:
        graph = graphs[number].repeated() if options.careful else graphs[number]
        loglikes = score(part.offsets[number], part.offsets[number + 1], graph.pdfs)
        arc_scores = log_probs[graph.tid] - graph.cost
        result = found[part.offsets[number]:part.offsets[number + 1]]
        for attempt, beam in enumerate((options.beam, options.retry_beam), 1):
            if viterbi(graph.offsets, graph.source, graph.destination, graph.tid, graph.column, arc_scores, graph.start_states,
                       graph.start_costs, transition_model.tid_is_self_loop, loglikes, options.acoustic_scale, beam, result):
                tries[number] = attempt
                return

    engine.for_each(len(part), one, bar)
    return tries


def equal_alignments(corpus: Corpus, graphs: Sequence[TrainingGraph], transition_model: TransitionModel,
                     rng: np.random.Generator, engine: Engine | None = None) -> Alignments:
    """The alignments of a flat start: each utterance is divided evenly among the states of a random path (Kaldi's align-equal-compiled)."""
    tids = corpus.new_rows(None, np.int32)
    failed = corpus.each(_align_block_equally, engine or Engine(), graphs, tids, model=transition_model, state=rng.bit_generator.state)
    rng.bit_generator.advance(_EQUAL_ATTEMPTS * (int(corpus.offsets[-1]) + len(corpus)))  # type: ignore[attr-defined]
    return Alignments(tids, failed=[utt for utts in failed for utt in utts])


@block_task(outputs=1, feats=False)
def _align_block_equally(part: Corpus, engine: Engine, graphs: Sequence[TrainingGraph], found: np.ndarray, model: TransitionModel,
                         state: dict[str, Any]) -> list[str]:
    """Draw the paths of a block; `state` is that of the random numbers before the first block. Returns the utterances that failed."""
    bits, failed = np.random.PCG64(), []
    bits.state = state  # type: ignore[assignment]
    rng = np.random.Generator(bits.advance(_EQUAL_ATTEMPTS * (part.first_frame + part.first)))
    for number, utt in enumerate(part.utts):
        graph, result = graphs[number], found[part.offsets[number]:part.offsets[number + 1]]
        draws = rng.random((_EQUAL_ATTEMPTS, len(result) + 1))
        if len(result) < graph.min_frames or not equal_path(
                graph.offsets, graph.destination, graph.tid, graph.start_states, model.tid_is_self_loop,
                model.state2self_loop[model.tid2state], draws, result):
            failed.append(utt)
    return failed


@kernel(nogil=True)
def viterbi(offsets: np.ndarray, source: np.ndarray, destination: np.ndarray, tid: np.ndarray, column: np.ndarray,
            arc_scores: np.ndarray, start_states: np.ndarray, start_costs: np.ndarray, is_self_loop: np.ndarray,
            loglikes: np.ndarray, acoustic_scale: float, beam: float, result: np.ndarray) -> bool:
    """Find the best path, and write it as transition_ids in Kaldi's order into `result` (T,).

    Returns False, with `result` untouched, if the final state is not reached. The arrays are those of TrainingGraph; `arc_scores` (A,)
    holds scaled transition log-probability less cost.
    """
    num_states, num_frames = len(offsets) - 1, loglikes.shape[0]
    here = np.full(num_states + 1, -np.inf)
    there = np.empty(num_states + 1)
    back = np.empty((num_frames, num_states + 1), np.int32)
    for i in range(len(start_states)):
        here[start_states[i]] = max(here[start_states[i]], -start_costs[i])
    for t in range(num_frames):
        threshold = here[:num_states].max() - beam
        if threshold == -np.inf:
            return False
        last = t == num_frames - 1
        there[:] = -np.inf
        for state in range(num_states):
            if here[state] >= threshold:
                for arc in range(offsets[state], offsets[state + 1]):
                    to = destination[arc]
                    if to == num_states and not last:
                        continue
                    score = here[state] + arc_scores[arc] + acoustic_scale * loglikes[t, column[arc]]
                    if score > there[to]:
                        there[to] = score
                        back[t, to] = arc
        here, there = there, here
    if not here[num_states] > -np.inf:
        return False
    state = num_states
    for t in range(num_frames - 1, -1, -1):
        arc = back[t, state]
        result[t] = tid[arc]
        state = source[arc]
    loops_behind(result, is_self_loop)
    return True


@kernel(nogil=True)
def loops_behind(tids: np.ndarray, is_self_loop: np.ndarray) -> None:
    """Change an alignment from the order of time to Kaldi's order, in place.

    In the order of time the self-loops of a state stand before the transition out of it, in Kaldi's order behind it.
    """
    start = 0
    for t in range(len(tids)):
        if not is_self_loop[tids[t]]:
            forward = tids[t]
            for u in range(t, start, -1):
                tids[u] = tids[u - 1]
            tids[start] = forward
            start = t + 1


@kernel
def equal_path(offsets: np.ndarray, destination: np.ndarray, tid: np.ndarray, start_states: np.ndarray,
               is_self_loop: np.ndarray, self_loop: np.ndarray, draws: np.ndarray, result: np.ndarray) -> bool:
    """Draw a random path without self-loops, and share the remaining frames among its states; the result goes into `result` (T,).

    Row i of `draws` (uniform in [0, 1)) is used for attempt i. False if none of the paths is as short as T.
    """
    num_states, num_frames = len(offsets) - 1, len(result)
    path = np.empty(num_frames, np.int32)
    for attempt in range(len(draws)):
        state, length = start_states[int(draws[attempt, num_frames] * len(start_states))], 0
        while state != num_states and length < num_frames:
            forward = 0
            for arc in range(offsets[state], offsets[state + 1]):
                forward += not is_self_loop[tid[arc]]
            choice = int(draws[attempt, length] * forward)
            for arc in range(offsets[state], offsets[state + 1]):
                if not is_self_loop[tid[arc]]:
                    if choice == 0:
                        path[length] = tid[arc]
                        state = destination[arc]
                        break
                    choice -= 1
            length += 1
        if state != num_states:
            continue
        loops = 0
        for i in range(length):
            loops += self_loop[path[i]] > 0
        extra = num_frames - length
        if extra > 0 and loops == 0:
            continue
        t, seen = 0, 0
        for i in range(length):
            result[t] = path[i]
            t += 1
            if self_loop[path[i]] > 0:
                for _ in range(extra // loops + (seen < extra % loops)):
                    result[t] = self_loop[path[i]]
                    t += 1
                seen += 1
        return True
    return False
