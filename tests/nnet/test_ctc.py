"""CTC equals the sum over all paths, which few frames and labels let one count."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.packed import Sequences, packed_grid
from pykaldist.frames.sampler import Minibatch, Partition
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import Extras, FrameStore, pack
from pykaldist.nnet import ctc
from pykaldist.nnet.ctc import BestPath, Ctc, collapsed
from pykaldist.nnet.ctc_forward_backward import Paths, TensorPaths, state_table
from pykaldist.nnet.cuda_graphs import CudaGraphs


def test_collapsed():
    assert collapsed(np.array([0, 1, 1, 0, 1, 2, 2, 0])).tolist() == [1, 1, 2]
    assert collapsed(np.array([], int)).tolist() == [] and collapsed(np.array([0, 0])).tolist() == []


def slow(logits: torch.Tensor, labels: list[int]) -> torch.Tensor:
    """-log of the sum over every path of one utterance (T, K) that stands for the labels."""
    logs = logits.log_softmax(1)
    paths = [p for p in itertools.product(range(logits.shape[1]), repeat=len(logits)) if collapsed(np.array(p)).tolist() == labels]
    return -torch.stack([sum(logs[t, k] for t, k in enumerate(p)) for p in paths]).logsumexp(0)


def in_tensors_of(outputs: torch.Tensor, lengths: np.ndarray, labels: torch.Tensor, label_lengths: torch.Tensor) -> TensorPaths:
    """The sums in tensors, as on a GPU, by the arguments of `Paths`."""
    return TensorPaths(outputs, torch.from_numpy(state_table(lengths, labels.numpy(), label_lengths.numpy(), outputs.shape[1])))


def tensors(monkeypatch):
    """Have the sums made in tensors, as on a GPU."""
    monkeypatch.setattr(ctc, "Paths", in_tensors_of)


@pytest.mark.parametrize("in_tensors", [False, True])
def test_loss_and_derivative_are_those_of_all_paths(monkeypatch, in_tensors):
    if in_tensors:
        tensors(monkeypatch)
    torch.manual_seed(0)
    utterances = [(5, [1, 2]), (4, [2, 2]), (4, [1]), (2, [1, 2])]
    lengths, labels = [t for t, _ in utterances], [own for _, own in utterances]
    _, sequence, sizes = packed_grid(torch.tensor(lengths))
    outputs = torch.randn(sum(lengths), 3, dtype=torch.float64)
    flat = torch.tensor([label for own in labels for label in own])
    minibatch = Minibatch(outputs, torch.zeros(0), 0, False, sequences=Sequences(sizes, sum(lengths)), labels=flat,
                          label_lengths=torch.tensor([len(own) for own in labels]))
    totals, objective, logits = torch.zeros(4, dtype=torch.float64), Ctc(), outputs.clone().requires_grad_(True)
    with torch.enable_grad():
        loss = sum(slow(logits[sequence == s], own) for s, own in enumerate(labels))
        loss.backward()
    best = [collapsed(outputs[sequence == s].argmax(1).numpy()).tolist() for s in range(len(labels))]
    derivative = objective(outputs, minibatch, totals)
    assert torch.allclose(derivative, logits.grad, atol=1e-10)
    assert totals[0].item() == pytest.approx(loss.item()) and totals[[1, 3]].tolist() == [15, 7]

    def distance(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(distance(a[1:], b) + 1, distance(a, b[1:]) + 1, distance(a[1:], b[1:]) + (a[0] != b[0]))

    assert totals[2].item() == sum(distance(a, b) for a, b in zip(best, labels, strict=True))
    assert objective.metrics([30.0, 15.0, 2.0, 7.0]) == pytest.approx({"loss": 2.0, "label_error": 2 / 7})


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 80), st.lists(st.integers(1, 4), max_size=40)), min_size=1, max_size=5), st.integers(0, 2**31 - 1))
@example([(60, [1, 1, 2] * 10), (59, []), (58, [3] * 30), (33, [4] * 17), (32, [2])], 0)  # empty, impossible, just possible, short
def test_in_tensors_the_sums_are_those_of_pytorch(utterances, seed):
    """Of any number of frames and labels, also none, and more than there are frames for."""
    lengths = np.array([frames for frames, _ in utterances])
    labels = torch.tensor([label for _, own in utterances for label in own], dtype=torch.long)
    label_lengths = torch.tensor([len(own) for _, own in utterances])
    outputs = 3.0 * torch.randn(lengths.max(), len(lengths), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    expected, found = (make(outputs, lengths, labels, label_lengths) for make in (Paths, in_tensors_of))
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-10)
    assert torch.allclose(found.derivative(), expected.derivative(), rtol=0, atol=1e-10)


def test_in_tensors_what_is_no_number_stays_none_and_probabilities_can_be_zero():
    arguments = np.array([6, 5]), torch.tensor([1, 2, 1]), torch.tensor([2, 1])
    outputs = torch.randn(6, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    broken = outputs.clone()
    broken[:, 0] = torch.nan
    found = in_tensors_of(broken, *arguments)
    assert found.loss.isnan() and found.derivative()[:, 0].isnan().all() and not found.derivative()[:, 1].isnan().any()
    for never, in_all in ((2, False), (slice(None), True)):  # the first label, in one frame and in all of them
        missing, near = outputs.clone(), outputs.clone()
        missing[never, 0, 1], near[never, 0, 1] = -torch.inf, -torch.inf if in_all else -1e4
        expected, found = Paths(near, *arguments), in_tensors_of(missing, *arguments)
        assert found.loss.item() == pytest.approx(expected.loss.item())
        assert torch.allclose(found.derivative(), expected.derivative(), atol=1e-10)


def test_in_tensors_padding_counts_nothing_whatever_lies_there():
    """Steps behind an utterance's frames, utterances that are missing, and states behind the last one."""
    lengths, labels, label_lengths = np.array([6, 4]), torch.tensor([1, 2, 1]), torch.tensor([2, 1])
    outputs = torch.randn(6, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    paths = Paths(outputs, lengths, labels, label_lengths)
    expected = paths.derivative()
    padded = torch.full((9, 4, 3), torch.nan, dtype=torch.float64)
    padded[:6, 0], padded[:4, 1] = outputs[:, 0], outputs[:4, 1]
    table = state_table(lengths, labels.numpy(), label_lengths.numpy(), 4)
    for wide in (table, np.pad(table, ((0, 0), (0, 30)))):
        found = TensorPaths(padded, torch.from_numpy(wide))
        derivative = found.derivative()
        assert found.loss.item() == pytest.approx(paths.loss.item())
        assert torch.allclose(derivative[:6, :2], expected, atol=1e-10)
        derivative[:6, :2] = 0
        assert not derivative.any()


@pytest.mark.gpu
def test_recorded_sums_are_the_sums(cuda, monkeypatch):
    """Minibatches of several shapes in turn, more than are recorded; of each with other utterances, one without paths among them."""
    monkeypatch.setattr(CudaGraphs, "LIMIT", 3)
    recording, rng, found = Ctc(), np.random.default_rng(0), []
    buffer, totals = torch.empty(40 * 3, 5, device="cuda"), torch.zeros(2, 4, dtype=torch.float64, device="cuda")
    for steps, most in [(20, 9), (40, 9), (20, 40), (30, 9)] * 5:
        lengths = -np.sort(-rng.integers(1, steps + 1, rng.integers(2, 4)))
        numbers = rng.integers(0, np.minimum(most, lengths) + 1)
        numbers[0] = most
        labels = torch.from_numpy(rng.integers(1, 5, numbers.sum()))
        minibatch = Minibatch(buffer, torch.zeros(0), 0, False, labels=labels, label_lengths=torch.from_numpy(numbers), sequences=Sequences(
            [3] * steps, int(lengths.sum()), real=torch.zeros(3 * steps, 1), lengths=lengths))
        outputs = torch.from_numpy(rng.standard_normal((3 * steps, 5), np.float32)).cuda()
        derivative = recording(buffer[: 3 * steps].copy_(outputs), minibatch, totals[0])
        assert derivative.data_ptr() == buffer.data_ptr()
        monkeypatch.setattr(CudaGraphs, "WARM_UP", 100)
        expected = Ctc()(outputs, minibatch, totals[1])
        monkeypatch.setattr(CudaGraphs, "WARM_UP", 2)
        if cuda is not None:
            found.append(cuda.kernels["graph"])
        assert torch.allclose(derivative, expected, atol=0.0 if cuda else 1e-5)
    recording.settle()
    assert totals[1, 0] > 0 and torch.allclose(totals[0, [0, 1, 3]], totals[1, [0, 1, 3]])
    assert cuda is None or found[-1] == 3 * 3  # three shapes, from the third time on


@pytest.mark.parametrize("in_tensors", [False, True])
def test_scoring_counts_the_same_and_makes_no_derivative(monkeypatch, in_tensors):
    if in_tensors:
        tensors(monkeypatch)
    torch.manual_seed(1)
    _, _, sizes = packed_grid(torch.tensor([7, 4, 4]))
    outputs, labels = torch.randn(15, 5), torch.tensor([1, 2, 3, 3, 4])
    minibatch = Minibatch(outputs, torch.zeros(0), 0, False, sequences=Sequences(sizes, 15), labels=labels,
                          label_lengths=torch.tensor([3, 1, 1]))
    totals = torch.zeros(2, 4, dtype=torch.float64)
    Ctc()(outputs.clone(), minibatch, totals[0])
    monkeypatch.delattr(torch.autograd, "grad")
    monkeypatch.delattr(TensorPaths, "derivative")
    Ctc().score(outputs.clone(), minibatch, totals[1])
    assert totals[0, 0] > 0 and torch.equal(totals[0], totals[1])


def test_paths_that_have_not_arrived_are_counted_when_totals_are_read():
    """On a GPU; here with an event that says when it is waited for."""
    waited = []
    totals, objective = torch.zeros(4, dtype=torch.float64), Ctc()
    event = type("Event", (), {"synchronize": lambda self: waited.append(1)})()
    path = BestPath(torch.tensor([1, 2, 1, 0]), event, np.array([0, 2]), [2, 2], [[1, 2], [2]], totals)  # of rows: 1 1, 2 0
    objective.under_way.append(path)
    assert totals[2] == 0 and not waited
    objective.settle()
    assert totals[2] == 1 and waited and not objective.under_way


def labelled(tmp_path, labels, lengths=(9, 4, 7)) -> FrameStore:
    feats = {f"u{i}": np.full((n, 2), i, np.float32) for i, n in enumerate(lengths)}
    pack(feats, feats.__getitem__, lambda utt: np.zeros(len(feats[utt]), np.int32), 1, tmp_path / "store",
         extras=Extras(labels=labels, num_tokens=4))
    return FrameStore(tmp_path / "store")


def test_labels_come_with_their_utterances(tmp_path):
    labels = {"u0": np.array([1, 2, 3]), "u1": np.array([2]), "u2": np.array([3, 3])}
    store = labelled(tmp_path, labels)
    assert (store.manifest.num_labels, store.manifest.num_tokens) == (6, 4)
    partition, options = Partition(store, level="utterance"), SequenceOptions("whole", 2)
    sampler = SequenceSampler(store, partition, 0, options, [0], torch.zeros(2), torch.ones(2), 0, torch.device("cpu"))
    seen = {}
    for minibatch in itertools.chain(sampler.epoch(0), sampler.in_order()):
        utts = minibatch.inputs[: minibatch.sequences.sizes[0], 0].int().tolist()
        own = minibatch.labels.split(minibatch.label_lengths.tolist())
        seen |= {f"u{utt}": label.tolist() for utt, label in zip(utts, own, strict=True)}
    assert seen == {utt: own.tolist() for utt, own in labels.items()}


def test_utterances_that_cannot_have_their_labels_are_skipped_in_words(tmp_path):
    store = labelled(tmp_path, {"u0": np.array([1, 2, 3]), "u1": np.array([2, 2, 2]), "u2": np.array([9])}, (9, 4, 7))
    assert store.utts == ["u0"]
    assert "4 frames, too few for its 3 labels" in store.manifest.skipped["u1"] and "a label 9" in store.manifest.skipped["u2"]


def test_a_store_without_labels_is_refused(make_store):
    with pytest.raises(UserError, match="has no label sequences; pack it with --ctc"):
        Ctc().output_dim(make_store([5]))
