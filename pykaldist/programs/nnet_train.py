"""One pass of training of an nnet1 network: the programs nnet-train-frmshuff and rbm-train-cd1-frmshuff.

Networks, objectives and optimisers are those of `pykaldist train` and `pretrain-dbn`; frames come from tables, and are shuffled in a
buffer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
import torch

from pykaldist.errors import FEATURES, UserError
from pykaldist.frames.randomizer import Frames, minibatches
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import padded
from pykaldist.io.archive import read_value
from pykaldist.io.posteriors import Posterior, read_posterior
from pykaldist.io.table_streams import RandomAccess, read_table, read_token
from pykaldist.nnet.convert import RECURRENT_MARKERS, from_nnet1, to_feature_transform, to_nnet1
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward
from pykaldist.nnet.objective import CrossEntropy, MeanSquareError
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.cd import Cd, CdOptions
from pykaldist.optim.optimizer import Optimizer
from pykaldist.optim.sgd import Sgd, SgdOptions
from pykaldist.programs.command import say
from pykaldist.programs.devices import device_of
from pykaldist.programs.nnet1 import read_nnet, read_rbm, write_nnet

RECONSTRUCTIONS = 25  # points of an iteration's progress


def nnet_train_frmshuff(feats: str, targets: str, source: str, target: str = "", *, binary: bool = True, cross_validate: bool = False,
                        randomize: bool = True, objective_function: str = "xent", feature_transform: str = "", learn_rate: float = 0.008,
                        momentum: float = 0.0, l2_penalty: float = 0.0, l1_penalty: float = 0.0, minibatch_size: int = 256,
                        randomizer_size: int = 32768, randomizer_seed: int = 777, frame_weights: str = "", utt_weights: str = "",
                        length_tolerance: int = 5, use_gpu: str = "", report_period: int = 0) -> int:
    """Train a network by one pass over the data, in shuffled minibatches of frames, or score it.

    The loss stands in the log as Kaldi has it, behind `AvgLoss:`. Targets are posteriors; pdfs become such by ali-to-post. Recurrent
    networks are trained by steps/nnet/train.sh alone. Frames that fill no whole minibatch at the end are one that is smaller.

    Usage: nnet-train-frmshuff [options] <feats-rspecifier> <targets-rspecifier> <nnet-in> [<nnet-out>]
    e.g.: nnet-train-frmshuff --learn-rate=0.008 --feature-transform=final.feature_transform scp:train.scp ark:targets.ark nnet.init nnet.1
      nnet-train-frmshuff --cross-validate=true --randomize=false scp:cv.scp ark:targets.ark nnet.1

    Options:
      --binary: write binary (default: true)
      --cross-validate: score the network, which stays as it is (default: false)
      --randomize: shuffle frames (default: true)
      --objective-function: xent, softmax with cross-entropy, or mse, mean square error (default: xent)
      --feature-transform: nnet1 network before the one that is trained
      --learn-rate: learning rate, for gradients summed over a minibatch (default: 0.008)
      --momentum: momentum (default: 0)
      --l2-penalty: L2 penalty on weights, a frame (default: 0)
      --l1-penalty: L1 penalty on weights, a frame (default: 0)
      --minibatch-size: frames of a minibatch (default: 256)
      --randomizer-size: frames that are shuffled at a time (default: 32768)
      --randomizer-seed: of the order of frames, and of dropout (default: 777)
      --frame-weights: rspecifier of each frame's weight; those of weight 0 are left out
      --utt-weights: rspecifier of each utterance's weight
      --length-tolerance: frames by which features, targets and weights may differ in length; the shortest counts (default: 5)
      --use-gpu: yes, no or optional; yes without a GPU is no, with a warning (default: optional)
      --report-period: seconds after which the loss is told (default: 0: at the end)
    """
    if (target == "") != cross_validate:
        raise UserError("expected <nnet-out>, or --cross-validate=true without it.")
    if objective_function not in ("xent", "mse"):
        raise UserError(f"--objective-function={objective_function}: the objectives are xent and mse here.")
    torch.set_num_threads(1)
    place = device_of(use_gpu)
    nnet = read_nnet(source)
    max_norm = {float(c.options["MaxNorm"]) for c in nnet.components if "MaxNorm" in c.options}
    if len(max_norm) > 1:
        raise UserError(f"{source} has several <MaxNorm>: {', '.join(f'{norm:g}' for norm in sorted(max_norm))}; expected one for all.")
    transform = read_nnet(feature_transform) if feature_transform else None
    network = _network(nnet, source, transform)
    objective = CrossEntropy() if objective_function == "xent" else MeanSquareError()
    if network.counts is None and isinstance(objective, CrossEntropy):
        raise UserError(f"{source} has no <Softmax> at its end, which --objective-function=xent takes; use mse.")
    if place != "cpu":
        network = _on(network, place)
    learner = Supervised(network.model, objective)
    optimizer = Sgd(learner, SgdOptions(momentum=momentum, l2_penalty=l2_penalty, l1_penalty=l1_penalty,
                                        max_norm=max_norm.pop() if max_norm else 0.0))
    data = _Supervision(feats, targets, frame_weights, utt_weights, length_tolerance, transform, place, objective, nnet.output_dim)
    began = told = time.monotonic()
    totals = torch.zeros(objective.num_totals, dtype=torch.float64, device=place)
    rng = np.random.default_rng(randomizer_seed)
    with torch.no_grad():
        for minibatch in minibatches(data.utterances(), minibatch_size, randomizer_size, rng, randomize, place):
            _hard(minibatch)
            if cross_validate:
                learner.score(minibatch, totals)
            else:
                optimizer.local_step(minibatch, learn_rate, totals)
            if report_period and time.monotonic() - told > report_period:
                told = time.monotonic()
                _log("nnet-train-frmshuff", f"ProgressLoss: {learner.metrics(totals.tolist())['loss']:.6g}")
    learner.settle()
    return _end(data, learner, totals.tolist(), began, cross_validate, randomize) or \
        (0 if cross_validate else _write(network, nnet, target, binary))


def _log(program: str, text: str) -> None:
    """Write a line to the log, behind two words, as Kaldi's scripts expect: they take the fourth word of a line with AvgLoss."""
    say(f"LOG ({program}) {text}")


def _network(nnet: Nnet1, source: str, transform: Nnet1 | None) -> Network:
    """Make a trainable network of an nnet1 file; raises UserError, naming it, where its shape is none that is trained."""
    if any(c.marker in RECURRENT_MARKERS for c in nnet.components):
        raise UserError(f"{source} is recurrent: its frames cannot be shuffled; steps/nnet/train.sh --network-type lstm or blstm trains "
                        "such networks.")
    splices = [c for c in transform.components if c.marker == "Splice"] if transform else []
    width = len(splices[0].arrays["frame_offsets"]) if len(splices) == 1 else 1  # whose bands a CNN has beside each other
    none = FeatureTransform(list(range(width)), torch.zeros(nnet.input_dim), torch.ones(nnet.input_dim))
    counts = np.ones(nnet.output_dim) if nnet.components[-1].marker == "Softmax" else None
    try:
        return from_nnet1(nnet, to_feature_transform(none), counts)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def _on(network: Network, device: str) -> Network:
    """The same network on a device."""
    from pykaldist.nnet.kinds import make_nnet

    model = make_nnet(network.options, network.model.input_dim, network.model.output_dim, len(network.transform.splice), device)
    model.params.copy_(network.model.params)
    return Network(network.options, model, network.transform, network.counts)


def _write(network: Network, nnet: Nnet1, target: str, binary: bool) -> int:
    """Write the trained network, with the options of components that training does not change."""
    trained, _ = to_nnet1(network)
    for ours, theirs in zip(trained.components, nnet.components, strict=True):
        assert ours.marker == theirs.marker, "a network goes out as it came in"
        ours.options = theirs.options
    write_nnet(trained, target, binary)
    return 0


def _hard(minibatch: Minibatch) -> None:
    """Leave out soft targets that are hard ones."""
    probs = minibatch.posterior_probs
    if probs is not None and probs.shape[1] == 1 and bool((probs == 1).all()):
        minibatch.posterior_pdfs = minibatch.posterior_probs = None


class _Supervision:
    """The utterances of a pass: transformed features with their targets and weights, cut to the same length.

    `done`, `missing` and `wrong` count utterances; `entropy` is that of the targets, by their weights, summed over frames.
    """

    def __init__(self, feats: str, targets: str, frame_weights: str, utt_weights: str, tolerance: int, transform: Nnet1 | None,
                 device: str, objective: CrossEntropy | MeanSquareError, outputs: int) -> None:
        self.feats, self.tolerance, self.dense, self.outputs = feats, tolerance, isinstance(objective, MeanSquareError), outputs
        self.source = targets
        self.targets = RandomAccess(targets, read_posterior)
        self.frame_weights = RandomAccess(frame_weights, read_value) if frame_weights else None
        self.utt_weights = RandomAccess(utt_weights, read_token) if utt_weights else None
        self.transform = Nnet1Forward(transform, device) if transform else None
        self.done = self.missing = self.wrong = self.frames = 0
        self.entropy = 0.0

    def utterances(self) -> Iterator[Frames]:
        for utt, x in read_table(self.feats, read_value):
            posterior = self.targets.get(utt)
            weights = self.frame_weights.get(utt) if self.frame_weights else np.ones(len(x), np.float32)
            factor = self.utt_weights.get(utt) if self.utt_weights else "1"
            if posterior is None or weights is None or factor is None:
                say(f"WARNING: {utt} is left out: it has no {'targets' if posterior is None else 'weight'}")
                self.missing += 1
                continue
            lengths = (len(x), len(posterior), len(weights))
            if max(lengths) - min(lengths) > self.tolerance:
                say(f"WARNING: {utt} is left out: it has {lengths[0]} frames, {lengths[1]} targets and {lengths[2]} weights")
                self.wrong += 1
                continue
            made = _transformed(x, self.transform, self.feats, utt)
            frames = self._frames(utt, made, posterior, (weights * float(factor)).astype(np.float32), min(lengths))
            self.done += 1
            self.frames += len(frames["inputs"])
            if len(frames["inputs"]):
                yield frames

    def _frames(self, utt: str, x: np.ndarray, posterior: Posterior, weights: np.ndarray, length: int) -> Frames:
        """The fields of a minibatch for an utterance's frames, without those of weight 0."""
        pairs = posterior.ids[: posterior.offsets[length]]
        if len(pairs) and not 0 <= pairs.min() <= pairs.max() < self.outputs:
            raise UserError(f"{self.source}, {utt}: found the label {pairs.max() if pairs.min() >= 0 else pairs.min()}, expected 0 to "
                            f"{self.outputs - 1}, the network's outputs; give targets of the model's tree.")
        width = max(int(np.diff(posterior.offsets[: length + 1]).max(initial=0)), 1)
        pdfs, probs = padded(posterior, length, width)
        frames = {"inputs": x[:length], "targets": pdfs[:, 0].copy()}
        if self.dense:
            frames["target_feats"] = np.zeros((length, self.outputs), np.float32)
            np.add.at(frames["target_feats"], (np.arange(length)[:, None], pdfs), probs)
        else:
            frames["posterior_pdfs"], frames["posterior_probs"] = pdfs, probs
            logs = np.log(np.where(probs > 0, probs, 1), dtype=np.float64)
            self.entropy -= float((weights[:length, None] * probs * logs).sum())
        if (weights != 1).any() or self.frame_weights or self.utt_weights:
            frames["weights"] = weights[:length]
            frames = {name: array[weights[:length] != 0] for name, array in frames.items()}
        return frames


def _transformed(x: np.ndarray, transform: Nnet1Forward | None, feats: str, utt: str) -> np.ndarray:
    if transform is None:
        return np.ascontiguousarray(x, np.float32)
    try:
        return transform(x)
    except ValueError as error:
        raise UserError(f"{feats}, {utt}: {error}; make the features with the config of the feature transform ({FEATURES}).") from error


def _end(data: _Supervision, learner: Supervised, totals: list[float], began: float, cross_validate: bool, randomize: bool) -> int:
    """Say what came of a pass; returns 1 where there was no data, and raises UserError where the loss is not finite."""
    name, seconds = "nnet-train-frmshuff", max(time.monotonic() - began, 1e-9)
    _log(name, f"Done {data.done} files, {data.missing} with no tgt_mats, {data.wrong} with other errors. "
               f"[{'CROSS-VALIDATION' if cross_validate else 'TRAINING'}, {'RANDOMIZED' if randomize else 'NOT-RANDOMIZED'}, "
               f"{seconds / 60:.4g} min, processing {data.frames / seconds:.6g} frames per sec.]")
    if not data.frames:
        return 1
    metrics = learner.metrics(totals)
    if not np.isfinite(metrics["loss"]):
        raise UserError(f"the loss is {metrics['loss']}; lower --learn-rate, or look at the features and at the network.")
    if "acc" in metrics:
        entropy = data.entropy / totals[-1]
        _log(name, f"AvgLoss: {metrics['loss'] - entropy:.6g} (Xent), [AvgXent: {metrics['loss']:.6g}, AvgTargetEnt: {entropy:.6g}]")
        say(f"\nFRAME_ACCURACY >> {100 * metrics['acc']:.6g}% <<")
    else:
        root = (2 * metrics["loss"] / learner.model.output_dim) ** 0.5
        _log(name, f"AvgLoss: {metrics['loss']:.6g} (Mse), [RMS {root:.6g}, frames {totals[-1]:.6g}]")
    return 0


def rbm_train_cd1_frmshuff(source: str, feats: str, target: str, *, binary: bool = True, num_iters: int = 1, feature_transform: str = "",
                           learn_rate: float = 0.008, momentum: float = 0.5, momentum_max: float = 0.9, momentum_steps: int = 40,
                           momentum_step_period: int = 500_000, l2_penalty: float = 0.0002, minibatch_size: int = 100,
                           randomizer_size: int = 32768, randomizer_seed: int = 777, drop_data: float = 0.0, use_gpu: str = "") -> int:
    """Train an RBM by contrastive divergence of one step, with frames shuffled.

    Momentum rises in equal steps, and the learning rate is times 1 - momentum. The mean square error of the reconstruction stands in the
    log.

    Usage: rbm-train-cd1-frmshuff [options] <rbm-in> <feats-rspecifier> <rbm-out>
    e.g.: rbm-train-cd1-frmshuff --learn-rate=0.01 --num-iters=2 --feature-transform=final.feature_transform 1.rbm.init scp:train.scp 1.rbm

    Options:
      --binary: write binary (default: true)
      --num-iters: passes over the data (default: 1)
      --feature-transform: nnet1 network before the RBM
      --learn-rate: learning rate (default: 0.008)
      --momentum: momentum at the start (default: 0.5)
      --momentum-max: momentum at the end (default: 0.9)
      --momentum-steps: steps of the momentum (default: 40)
      --momentum-step-period: frames in such a step (default: 500000)
      --l2-penalty: L2 penalty on weights (default: 0.0002)
      --minibatch-size: frames of a minibatch (default: 100)
      --randomizer-size: frames that are shuffled at a time (default: 32768)
      --randomizer-seed: of the order of frames, and of hidden states (default: 777)
      --drop-data: part of the utterances that is left out of a pass, by chance (default: 0)
      --use-gpu: yes, no or optional; yes without a GPU is no, with a warning (default: optional)
    """
    torch.set_num_threads(1)
    place = device_of(use_gpu)
    rbm = _rbm(source, place)
    transform = Nnet1Forward(read_nnet(feature_transform), place) if feature_transform else None
    learner = ContrastiveDivergence(rbm)
    optimizer: Optimizer = Cd(learner, CdOptions(momentum, momentum_max, momentum_steps, momentum_step_period, l2_penalty))
    rng = np.random.default_rng(randomizer_seed)
    name, began, frames, loss = "rbm-train-cd1-frmshuff", time.monotonic(), 0.0, 0.0
    if num_iters > 1 and feats.rpartition(":")[2] in ("", "-"):
        raise UserError(f"--num-iters={num_iters}: {feats!r} can be read once alone; give a file, or a command with `|`.")

    def utterances() -> Iterator[Frames]:
        for utt, x in read_table(feats, read_value):
            if drop_data and rng.random() < drop_data:
                continue
            made = _transformed(x, transform, feats, utt)
            if made.shape[1] != rbm.input_dim:
                raise UserError(f"{feats}, {utt}: found {made.shape[1]} values a frame, expected {rbm.input_dim}, the RBM's inputs.")
            yield {"inputs": made, "targets": np.zeros(len(made), np.int32)}

    with torch.no_grad():
        for number in range(1, num_iters + 1):
            totals = torch.zeros(learner.num_totals, dtype=torch.float64, device=place)
            points = [totals.clone()]
            for minibatch in minibatches(utterances(), minibatch_size, randomizer_size, rng, True, place):
                optimizer.local_step(minibatch, learn_rate, totals)
                points.append(totals.clone())
            if not totals[1]:
                _log(name, f"Done 0 frames: {feats} has none.")
                return 1
            loss = learner.metrics(totals.tolist())["loss"]
            if not np.isfinite(loss):
                raise UserError(f"the reconstruction's error is {loss}; lower --learn-rate, or look at the features.")
            frames += float(totals[1])
            edges = np.unique(np.linspace(0, len(points) - 1, min(RECONSTRUCTIONS, len(points) - 1) + 1).astype(int)).tolist()
            curve = [learner.metrics((points[b] - points[a]).tolist())["loss"] for a, b in itertools.pairwise(edges)]
            _log(name, f"Iteration {number}/{num_iters} done, AvgLoss: {loss:.6g} (Mse)")
            say(f"progress: [{' '.join(f'{value:.4g}' for value in curve)}]")
    seconds = max(time.monotonic() - began, 1e-9)
    _log(name, f"AvgLoss: {loss:.6g} (Mse)")
    _log(name, f"Done {num_iters} iterations, {seconds / 60:.4g} min, {frames / seconds:.6g} frames per sec.")
    write_nnet(rbm.to_nnet1(), target, binary)
    return 0


def _rbm(source: str, device: str) -> Rbm:
    """The RBM in a file of nnet1, on a device."""
    own = read_rbm(source)
    rbm = Rbm(str(own.options["vis_type"]), own.input_dim, own.output_dim, device)
    for place, name in ((rbm.weight, "vis_hid"), (rbm.bias, "hid_bias"), (rbm.visible_bias, "vis_bias")):
        place.copy_(torch.from_numpy(own.arrays[name]))
    return rbm
