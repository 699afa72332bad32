"""Objectives of whole utterances that their lattices define: MMI (boosted, too), MPE and sMBR.

A network's outputs z(t, k) less the log priors of pdfs are log-likelihoods, but for a constant of the frame that is the same on all paths.
They take the place of the lattices' own acoustic costs: a path with graph cost g has the log-probability
-lmwt g + acwt sum over t of z(t, pdf of its frame t). With Z the log-sum over the lattice's paths, the posterior gamma(t, k) of pdf k in
frame t, and the gain G(t, k), which is the derivative of the expected accuracy F by the score of that pdf in that frame
(`forward_backward.py`),

    mmi         value  acwt sum over t of z(t, ref t) - Z       derivative of -value / acwt:    gamma(t, k) - [k = ref t]
    smbr, mpe   value  F, in frames                             derivative of -value / acwt:   -G(t, k)

The factor acwt is left out of the derivatives, as nnet1's nnet-train-mmi-sequential and nnet-train-mpe-sequential leave it out: learning
rates are theirs (0.00001). MMI's numerator has no graph cost there. The loss here has one, so that it is -log P(reference) and not below 0
where the reference is in the lattice: that of the lattice's path that agrees with the reference in most frames. Boosting lowers the cost of
a path by lmwt b in each frame whose phone is wrong (`frame_accuracy.py`). `drop_frames`: frames in which MMI's reference has no posterior
in the lattice have no derivative (Vesely, Ghoshal, Burget & Povey, "Sequence-discriminative training of deep neural networks", 2013).

`xent_smoothing` H (F-smoothing; Su, Li, Yu & Seide, "Error back propagation for sequence training of context-dependent deep networks",
2013) takes 1 - H of the derivative above and H of cross-entropy's with the frames' pdfs. The loss stays what it is.

An utterance without a lattice counts nothing; frame weights and soft targets of the frame store count in smoothing alone.

Held-out data have a word error rate, too: of the words of the lattice's best path by the network as it is, against those of the path that
agrees with the reference in most frames, which are the transcript's where the lattice has it. An objective that rises while words get worse
has forgotten what cross-entropy had learnt. Totals: summed loss, value, frames, frames dropped, word errors, words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from kaldialign import edit_distance
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import together
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.nnet.forward_backward import best_paths, nearest_paths
from pykaldist.nnet.forward_backward_torch import on_device
from pykaldist.nnet.frame_accuracy import Phones
from pykaldist.nnet.gemm import whole_rows
from pykaldist.nnet.objective import CrossEntropy, Objective, ObjectiveOptions
from pykaldist.nnet.priors import log_priors, read_counts
from pykaldist.options import option

LEAST_POSTERIOR = 1e-20  # of the reference; with less a frame is dropped (nnet1's bound)


@dataclass
class LatticeOptions(ObjectiveOptions):
    """Objectives of lattices."""

    denlats: str = option("", "lattice store (pykaldist pack-lattices)")
    acwt: float = option(0.1, "acoustic scale")
    lmwt: float = option(1.0, "scale of graph costs")
    xent_smoothing: float = option(0.0, "share of cross-entropy in the derivative")
    class_frame_counts: str = option("", "counts that priors are made of (those of the frame store)")
    minibatch_utts: int = option(1, "utterances in a minibatch; recurrent networks have --num-streams")

    def __post_init__(self) -> None:
        if not self.denlats:
            raise UserError("objectives of lattices need --denlats, a lattice store; make it as with "
                            "pykaldist pack-lattices data/lang exp/dnn_ali exp/dnn_denlats exp/dnn_mpe/denlats.")
        if self.acwt <= 0 or self.lmwt < 0:
            raise UserError(f"--acwt {self.acwt:g} --lmwt {self.lmwt:g}: expected a positive scale, and one that is not negative.")
        if not 0 <= self.xent_smoothing < 1:
            raise UserError(f"--xent-smoothing {self.xent_smoothing:g}: expected a share, from 0 to below 1.")
        if self.minibatch_utts < 1:
            raise UserError(f"--minibatch-utts {self.minibatch_utts} is not positive.")


@dataclass
class AccuracyOptions(LatticeOptions):
    """sMBR and MPE."""

    one_silence_class: bool = option(True, "any silence phone counts as right where the reference has one")
    exclude_silphones: bool = option(True, "silence phones are treated apart; without it they are phones like others")


@dataclass
class MmiOptions(LatticeOptions):
    """MMI."""

    boost: float = option(0.0, "how much a frame with a wrong phone lowers a path's cost (boosted MMI)")
    drop_frames: bool = option(True, "frames whose reference is not in the lattice have no derivative")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.boost < 0:
            raise UserError(f"--boost {self.boost:g} is negative.")


class LatticeObjective(Objective):
    """An objective of the lattices of a minibatch of whole utterances."""

    steady = False
    patience = 3
    advice = (  # docs/strategies.md, "Sequence training by many workers"
        "sMBR bears few workers: on AN4 it took 16 % of the word errors of cross-entropy away on one worker, as many on 4 of ma, 9 % on 16 "
        "(period 10; a period of 20 gave 13 % more errors), none on 8 of asgd; MMI took 15 % away on one worker, and 16 % on 16",
        "keep a learning rate times the number of workers (--lr-scale linear, ma's own): with one worker's rate 16 workers took 7 % away "
        "in place of 9 on AN4, and 0.7 in place of 2.8 on speechocean762",
        "decode held-out data: the objective does not tell where the words of a full search get worse. On speechocean762 (53 % of the "
        "words wrong) two of three networks of sMBR deleted 38 % of the words; --one-silence-class false is the cure")
    whole_utterances = True
    recordable = False
    options_class: type[LatticeOptions]
    num_totals = 6
    options: LatticeOptions
    store: LatticeStore
    phones: Phones

    def prepare(self, train: FrameStore, dev: FrameStore) -> None:
        """Open the lattice store, and make the priors; raises UserError where it is not of these frame stores."""
        self.store = LatticeStore(self.options.denlats)
        manifest = self.store.manifest
        if manifest.num_pdfs > train.manifest.num_pdfs:
            raise UserError(f"{self.store.path} has lattices of a model with {manifest.num_pdfs} pdfs, {train.path} "
                            f"{train.manifest.num_pdfs}; make both with the same alignment model (steps/nnet/make_denlats.sh).")
        model = train.path.parent / "final.mdl"
        if model.is_file():
            own = read_transition_model(model)
            if not (np.array_equal(own.tid2pdf, self.store.tid2pdf) and np.array_equal(own.tid2phone, self.store.tid2phone)):
                raise UserError(f"{self.store.path} has lattices of another model than {model}: their transition-ids differ; align, make "
                                "lattices and pack the frame store with one model (steps/nnet/align.sh, make_denlats.sh and pack.sh).")
        for frames in (train, dev):
            if not any(utt in self.store.number for utt in frames.utts):
                raise UserError(f"{self.store.path} has a lattice of none of the {len(frames.utts)} utterances of {frames.path}; make "
                                "lattices of all the data that the frame store was packed from (steps/nnet/make_denlats.sh).")
        counts = self.counts(train)
        if len(counts) != train.manifest.num_pdfs:
            raise UserError(f"{self.options.class_frame_counts} has {len(counts)} pdfs, {train.path} {train.manifest.num_pdfs}; take those "
                            "that the network was trained with.")
        self.set_priors(log_priors(np.maximum(counts, 1.0)))  # a pdf without frames is not disabled: a held-out reference may have it
        self.phones = Phones.of(self.store.tid2pdf, self.store.tid2phone, self.silence_phones())

    def stores(self) -> Sequence[LatticeStore]:
        return (self.store,)

    def silence_phones(self) -> Sequence[int]:
        """The phones that are treated as silence."""
        return self.store.manifest.silence_phones

    def counts(self, store: FrameStore) -> np.ndarray:
        path = self.options.class_frame_counts
        return read_counts(path, store.manifest.num_pdfs, store.path) if path else store.counts()

    def set_priors(self, log_prior: np.ndarray) -> None:
        """Set the log priors that are taken from outputs, (K,)."""
        self.log_prior = log_prior.astype(np.float64)

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        share = self.options.xent_smoothing
        smooth = None
        if share:
            smooth = CrossEntropy()(outputs.clone(), minibatch, totals.new_zeros(CrossEntropy.num_totals))
        lattices, reference, rows = self._of(minibatch)
        outputs = self.derivative(lattices, reference, rows, outputs, totals)
        return outputs if smooth is None else outputs.mul_(1.0 - share).add_(smooth, alpha=share)

    def score(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> None:
        lattices, reference, rows = self._of(minibatch)
        if len(lattices):
            errors, words = self.word_errors(lattices, reference, rows, outputs)
            totals[4] += errors
            totals[5] += words
        self.derivative(lattices, reference, rows, outputs, totals)

    def word_errors(self, lattices: Lattices, reference: np.ndarray, rows: np.ndarray, outputs: Tensor) -> tuple[int, int]:
        """(errors of the best paths' words, words of the references), with arguments as `derivative` has them; 0 without words."""
        word = lattices.word
        if word is None:
            return 0, 0
        pdf = self.phones.tid2pdf[lattices.transition_id]
        there = torch.from_numpy(rows[lattices.frame] * outputs.shape[1] + pdf).to(outputs.device)
        scores = outputs.reshape(-1)[there].double().cpu().numpy() - self.log_prior[pdf]
        cost = self.options.lmwt * lattices.graph.astype(np.float64) - self.options.acwt * lattices.entry_sums(scores)
        nearest = nearest_paths(lattices, lattices.entry_sums(lattices.transition_id == reference[lattices.frame]))
        found, right = ([part[part > 0].tolist() for part in np.split(np.where(on, word, 0), lattices.arcs[1:-1])]
                        for on in (best_paths(lattices, cost), nearest))
        errors = sum(edit_distance(ref, hyp)["total"] for ref, hyp in zip(right, found, strict=True))
        return errors, sum(map(len, right))

    def _of(self, minibatch: Minibatch) -> tuple[Lattices, np.ndarray, np.ndarray]:
        """The lattices of a minibatch, the transition-ids of their references, and the row of each of their frames."""
        assert minibatch.sequences is not None and minibatch.utts is not None
        first, lengths = np.array(minibatch.sequences.offsets()), minibatch.sequences.real_lengths()
        found = [(place, self.store.number[utt]) for place, utt in enumerate(minibatch.utts) if utt in self.store.number]
        lattices, reference = self.store.lattices([number for _, number in found])
        for (place, number), frames in zip(found, np.diff(lattices.frames), strict=True):
            if frames != lengths[place]:
                raise UserError(f"{self.store.path}, {self.store.utts[number]}: the lattice has {frames} frames, the features "
                                f"{lengths[place]}; make lattices of the features that the frame store was packed from "
                                "(steps/nnet/make_denlats.sh).")
        rows = [first[:frames] + place for (place, _), frames in zip(found, np.diff(lattices.frames), strict=True)]
        return lattices, reference, np.concatenate([np.zeros(0, np.int64), *rows])

    def derivative(self, lattices: Lattices, reference: np.ndarray, rows: np.ndarray, outputs: Tensor, totals: Tensor) -> Tensor:
        """Turn outputs (n, K) into the derivative, in place; adds to the totals.

        `reference` and `rows` (T,) are the transition-id and the row of outputs of each frame of the lattices.
        """
        if not len(lattices):
            return outputs.zero_()
        given, outputs = outputs, whole_rows(outputs)[0]
        options, engine = self.options, on_device(lattices, outputs.device, self.graphs)
        graph, accuracy = self.of_arcs(lattices, reference[lattices.frame])
        pdf = self.phones.tid2pdf[np.concatenate([lattices.transition_id, reference])]  # of cells, then of the reference
        frames = np.zeros(len(outputs), np.int64)
        frames[rows] = np.arange(len(rows))
        known = np.zeros(self.num_totals)
        known[0], known[2] = self.known_loss(lattices, reference), len(rows)
        places, prior, frames_of_rows, known_totals = together(
            [np.concatenate([rows[lattices.frame], rows]) * outputs.shape[1] + pdf, self.log_prior[pdf], frames, known], outputs.device)
        scores, ref_scores = (outputs.view(-1)[places] - prior).split([len(lattices.frame), len(rows)])
        cells, ref = places.split([len(lattices.frame), len(rows)])
        posterior, gain, loglike, expected = engine.forward_backward(options.lmwt * graph, accuracy, scores, options.acwt)
        loss = self.loss(ref_scores, loglike, expected)
        totals += known_totals
        totals[0] += loss
        totals[1] -= loss
        wide = outputs.zero_() if outputs.element_size() >= 4 else torch.zeros_like(outputs, dtype=torch.float32)
        values = engine.cell_sums(self.of_derivative(posterior, gain))
        wide.view(-1).index_add_(0, cells, values.to(wide.dtype))
        self.finish(wide, ref, frames_of_rows, totals)
        if wide is not outputs:
            outputs.copy_(wide)
        return given

    def of_arcs(self, lattices: Lattices, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """(graph cost, accuracy) of each arc, float64; `reference` is the transition-id of the reference in each cell's frame.

        None: all accuracies are 0.
        """
        raise NotImplementedError  # each objective's own

    def known_loss(self, lattices: Lattices, reference: np.ndarray) -> float:
        """The part of the loss that depends on no outputs."""
        raise NotImplementedError  # each objective's own

    def loss(self, ref_scores: Tensor, loglike: Tensor, accuracy: Tensor) -> Tensor:
        """The part of the loss that depends on the outputs: minus the value.

        It is made of the scores of the reference in each frame, and of the log-likelihood and the expected accuracy of each lattice.
        """
        raise NotImplementedError  # each objective's own

    def of_derivative(self, posterior: Tensor, gain: Tensor) -> Tensor:
        """What each arc gives to the derivative."""
        raise NotImplementedError  # each objective's own

    def finish(self, outputs: Tensor, ref: Tensor, frames_of_rows: Tensor, totals: Tensor) -> None:
        """Finish the derivative, to which arcs have given, and count the frames dropped.

        `ref` (T,) are the places of the reference in it, `frames_of_rows` (n,) the frame of each row; any, where a row has none.
        """
        return  # nothing is left to do

    def output_dim(self, store: FrameStore) -> int:
        return store.manifest.num_pdfs

    def prior_outputs(self, store: FrameStore) -> np.ndarray:
        """The logarithms of the priors; a pdf that is not there counts as one frame."""
        return CrossEntropy().prior_outputs(store)

    def targets(self, store: FrameStore) -> str:
        return f"lattices of {sum(utt in self.store.number for utt in store.utts)} of {len(store.utts)} utterances"


class _Accuracy(LatticeObjective):
    """Expected frame accuracy."""

    options_class = AccuracyOptions
    options: AccuracyOptions
    criterion: str

    def silence_phones(self) -> Sequence[int]:
        return super().silence_phones() if self.options.exclude_silphones else ()

    def of_arcs(self, lattices: Lattices, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        right = self.phones.accuracy(self.criterion, lattices.transition_id, reference, self.options.one_silence_class)
        return lattices.graph.astype(np.float64), lattices.entry_sums(right)

    def known_loss(self, lattices: Lattices, reference: np.ndarray) -> float:
        return len(reference)

    def loss(self, ref_scores: Tensor, loglike: Tensor, accuracy: Tensor) -> Tensor:
        return -accuracy.sum()

    def of_derivative(self, posterior: Tensor, gain: Tensor) -> Tensor:
        return -gain

    def metrics(self, totals: list[float]) -> dict[str, float]:
        """The loss is the expected share of frames that are wrong; held-out data have `wer`."""
        loss, value, frames = totals[:3]
        return {"loss": loss / max(frames, 1.0), "expected_accuracy": value / max(frames, 1.0), **word_error_rate(totals)}


class Smbr(_Accuracy):
    """State-level minimum Bayes risk."""

    name = "smbr"
    criterion = "smbr"


class Mpe(_Accuracy):
    """Minimum phone error, by frames."""

    name = "mpe"
    criterion = "mpe"


class Mmi(LatticeObjective):
    """Maximum mutual information."""

    name = "mmi"
    options_class = MmiOptions
    options: MmiOptions

    def of_arcs(self, lattices: Lattices, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        graph = lattices.graph.astype(np.float64)
        if self.options.boost:
            graph -= self.options.boost * lattices.entry_sums(self.phones.error(lattices.transition_id, reference))
        return graph, None

    def known_loss(self, lattices: Lattices, reference: np.ndarray) -> float:
        """The graph cost of the path that agrees with the reference in most frames."""
        nearest = nearest_paths(lattices, lattices.entry_sums(lattices.transition_id == reference[lattices.frame]))
        return self.options.lmwt * float(lattices.graph[nearest].sum(dtype=np.float64))

    def loss(self, ref_scores: Tensor, loglike: Tensor, accuracy: Tensor) -> Tensor:
        return torch.sub(loglike.sum(), ref_scores.sum(), alpha=self.options.acwt)

    def of_derivative(self, posterior: Tensor, gain: Tensor) -> Tensor:
        return posterior

    def finish(self, outputs: Tensor, ref: Tensor, frames_of_rows: Tensor, totals: Tensor) -> None:
        posterior = outputs.view(-1)[ref]
        missing = posterior < LEAST_POSTERIOR
        outputs.view(-1).index_copy_(0, ref, posterior - 1.0)
        totals[3] += missing.sum()
        if self.options.drop_frames:
            outputs.masked_fill_(missing[frames_of_rows].unsqueeze(1), 0.0)

    def metrics(self, totals: list[float]) -> dict[str, float]:
        """The loss is -log P(reference | lattice) a frame, `mmi` nnet1's objective a frame, `dropped` the share of frames dropped."""
        loss, value, frames, dropped = totals[:4]
        means = {name: total / max(frames, 1.0) for name, total in (("loss", loss), ("mmi", value), ("dropped", dropped))}
        return means | word_error_rate(totals)


def word_error_rate(totals: list[float]) -> dict[str, float]:
    """`wer`, errors over words of held-out data; nothing where there are no words."""
    return {"wer": totals[4] / totals[5]} if totals[5] else {}
