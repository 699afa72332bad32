"""Objectives of lattices: what nnet1 computes, finite differences, and minibatches of several utterances."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kaldialign import edit_distance
from test_forward_backward import LENGTH, alignments, kaldis_lattices, kaldis_phones, posteriors, random_lattice

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.errors import UserError
from pykaldist.frames.lattice_store import LatticeStore, pack_lattices
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.mapped import write_manifest
from pykaldist.frames.sampler import Partition
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import FrameStore
from pykaldist.io.provenance import checksum
from pykaldist.io.tables import read_archive
from pykaldist.nnet.frame_accuracy import Phones
from pykaldist.nnet.lattice_objective import LatticeObjective, Mmi, Mpe, Smbr
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.nnet.objectives import OBJECTIVES

TID2PDF, TID2PHONE = np.array([0, 0, 1, 2, 2], np.int32), np.array([0, 1, 2, 2, 3], np.int32)  # transition-ids 1 to 4; phone 1 is silence


def objective_of(kind: type[LatticeObjective], phones: Phones, pdfs: int, **options: Any) -> LatticeObjective:
    objective = kind(kind.options_class(denlats="none", **options))
    objective.phones = phones
    objective.set_priors(np.zeros(pdfs))
    return objective


@functools.cache
def kaldis_loglikes(path: Path) -> dict[str, np.ndarray]:
    return dict(read_archive(path))


def fields(path: Path) -> dict[str, dict[str, float]]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0]: dict(zip(row[1::2], map(float, row[2::2]), strict=True)) for row in rows if len(row) > 2 and len(row) % 2}


@pytest.mark.parametrize(("prefix", "kind", "stem", "options"), [
    ("", Mmi, "mmi", {}), ("", Mmi, "mmi_nodrop", {"drop_frames": False}), ("", Smbr, "smbr", {}), ("", Mpe, "mpfe", {}),
    ("wrong_", Mmi, "mmi", {}), ("wrong_", Smbr, "smbr", {}), ("wrong_", Mpe, "mpfe", {})])
def test_derivatives_and_objectives_are_nnet1s(golden: Path, prefix: str, kind: type[LatticeObjective], stem: str,
                                               options: dict[str, Any]) -> None:
    folder = golden / "seq"
    expected, values = posteriors(folder / f"{prefix}nnet1_{stem}_diff.txt.gz"), fields(folder / f"{prefix}nnet1_{stem}.obj")
    reference = alignments(folder / ("wrong_ali.txt" if prefix else "ref_ali.txt"))
    loglikes = kaldis_loglikes(golden / "an4_kaldi/dnn/loglikes.ark")
    lattices = kaldis_lattices(folder, "lat.gz")
    objective = objective_of(kind, kaldis_phones(folder), next(iter(loglikes.values())).shape[1], **options)
    assert expected.keys() <= values.keys() and len(expected) == (3 if prefix else 8)
    for utt, frames in expected.items():
        totals = torch.zeros(objective.num_totals, dtype=torch.float64)
        outputs = torch.from_numpy(loglikes[utt].copy())
        found = objective.derivative(lattices[utt], reference[utt], np.arange(len(outputs)), outputs, totals).numpy()
        table = np.zeros_like(found)
        for t, frame in enumerate(frames):
            table[t, list(frame)] = list(frame.values())
        assert len(frames) == len(found) and np.abs(found - table).max() < 1e-3
        own = values[utt]
        assert float(totals[1]) == pytest.approx(own["mmi_obj" if kind is Mmi else f"{stem}_frame_acc"], rel=1e-5)
        if kind is Mmi:
            assert totals[3] == own["dropped"]
            assert (np.abs(found).sum(1) == 0).sum() >= (own["dropped"] if not options else 0)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([Mmi, Smbr, Mpe]), st.booleans())
def test_derivatives_are_those_of_the_loss_over_the_acoustic_scale(seed: int, kind: type[LatticeObjective], flag: bool) -> None:
    rng = np.random.default_rng(seed)
    options = {"boost": 0.3, "drop_frames": False} if kind is Mmi else {"one_silence_class": flag}
    objective = objective_of(kind, Phones.of(TID2PDF, TID2PHONE, [1]), 3, acwt=0.7, lmwt=0.8, **options)
    lattices = Lattices.joined([as_arrays(random_lattice(seed + i)) for i in range(2)])
    reference = rng.integers(1, 5, 2 * LENGTH)
    rows = rng.permutation(2 * LENGTH + 1)[:-1]  # a row of outputs that is of no lattice
    outputs = torch.from_numpy(rng.normal(size=(2 * LENGTH + 1, 3)))

    def loss(shift: torch.Tensor | float = 0.0) -> tuple[float, torch.Tensor]:
        totals = torch.zeros(objective.num_totals, dtype=torch.float64)
        derivative = objective.derivative(lattices, reference, rows, outputs + shift, totals)
        return float(totals[0]), derivative

    _, derivative = loss()
    for t, k in zip(rng.integers(0, len(outputs), 8), rng.integers(0, 3, 8), strict=True):
        shift = torch.zeros_like(outputs)
        shift[t, k] = 1e-5
        assert (loss(shift)[0] - loss(-shift)[0]) / 2e-5 == pytest.approx(0.7 * float(derivative[t, k]), abs=1e-8)


def test_mmi_loss_is_minus_the_log_posterior_of_a_reference_that_is_in_the_lattice() -> None:
    objective = objective_of(Mmi, Phones.of(TID2PDF, TID2PHONE, [1]), 3)
    lattice = random_lattice(3)
    lattices = as_arrays(lattice)
    paths = {tuple(lattice.ids(lattice.num_arcs))} if lattice.final[0] < np.inf else set()
    for a in range(lattice.offset[0], lattice.offset[1]):  # one that goes straight to the end
        if lattice.target[a] == lattice.num_states - 1:
            paths.add(tuple(lattice.ids(a)))
    reference = np.array(next(iter(paths)))
    totals = torch.zeros(objective.num_totals, dtype=torch.float64)
    objective.derivative(lattices, reference, np.arange(LENGTH), torch.zeros(LENGTH, 3), totals)
    assert totals[0] >= 0 and totals[3] == 0


def packed(tmp_path: Path, store: FrameStore, without: str = "") -> LatticeStore:
    """Random lattices of five frames, and references, of the utterances of a store."""
    rng = np.random.default_rng(5)
    utts = [(utt, as_arrays(random_lattice(i)), rng.integers(1, 5, LENGTH)) for i, utt in enumerate(store.utts) if utt != without]
    pack_lattices(utts, TID2PDF, TID2PHONE, [1], {without: "no path"} if without else {}, tmp_path / "denlats")
    return LatticeStore(tmp_path / "denlats")


def whole(store: FrameStore, streams: int) -> SequenceSampler:
    dim = store.manifest.dim
    return SequenceSampler(store, Partition(store, level="utterance"), 0, SequenceOptions(sequences="whole", num_streams=streams), [0],
                           torch.zeros(dim), torch.ones(dim), 0, torch.device("cpu"))


@pytest.mark.parametrize("kind", [Mmi, Smbr, Mpe])
def test_a_minibatch_is_the_sum_of_its_utterances(tmp_path: Path, make_store: Callable[..., FrameStore],
                                                  kind: type[LatticeObjective]) -> None:
    store = make_store([LENGTH] * 4, num_pdfs=3)
    lattices = packed(tmp_path, store, without=store.utts[2])
    objective = kind(kind.options_class(denlats=str(lattices.path)))
    objective.prepare(store, store)
    generator = torch.Generator().manual_seed(0)
    scores = {utt: torch.randn(LENGTH, 3, generator=generator) for utt in store.utts}

    def run(streams: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        totals, found = torch.zeros(objective.num_totals, dtype=torch.float64), {}
        for minibatch in whole(store, streams).in_order():
            assert minibatch.utts is not None
            outputs = torch.stack([scores[utt] for utt in minibatch.utts], 1).reshape(-1, 3)  # step by step
            derivative = objective(outputs, minibatch, totals).view(LENGTH, -1, 3)
            found.update({utt: derivative[:, i].clone() for i, utt in enumerate(minibatch.utts)})
        return found, totals

    one, totals = run(1)
    several, totals_of_several = run(4)
    assert one.keys() == several.keys() == set(store.utts)
    torch.testing.assert_close(totals, totals_of_several)
    for utt in store.utts:
        torch.testing.assert_close(one[utt], several[utt])
        assert bool(one[utt].any()) == (utt != store.utts[2])
    assert totals[2] == 3 * LENGTH and objective.targets(store) == "lattices of 3 of 4 utterances"


def paths_with_words(lattice: Lattice) -> list[tuple[np.ndarray, float, list[int]]]:
    """(transition-ids, graph cost, words) of every path, by recursion."""
    found = []

    def walk(s: int, ids: list[int], graph: float, words: list[int]) -> None:
        if lattice.final[s] < np.inf:
            found.append((np.array(ids + lattice.ids(lattice.num_arcs + s).tolist()), graph + float(lattice.final[s]), words))
        for a in range(lattice.offset[s], lattice.offset[s + 1]):
            word = int(lattice.word[a])
            walk(int(lattice.target[a]), ids + lattice.ids(a).tolist(), graph + float(lattice.graph[a]), words + [word] * (word > 0))

    walk(0, [], 0.0, [])
    return found


def test_held_out_words_are_counted(tmp_path: Path, make_store: Callable[..., FrameStore]) -> None:
    """Errors of the best path by the outputs against the path nearest to the reference: in scoring alone, and 0 where both are one path."""
    store, rng = make_store([LENGTH] * 4, num_pdfs=3), np.random.default_rng(3)
    each = [random_lattice(i) for i in range(4)]
    for lattice in each:
        lattice.word[:] = rng.integers(0, 4, len(lattice.word))
    references = [rng.integers(1, 5, LENGTH) for _ in each]
    pack_lattices(zip(store.utts, map(as_arrays, each), references, strict=True), TID2PDF, TID2PHONE, [1], {}, tmp_path / "denlats")
    objective = Smbr(Smbr.options_class(denlats=str(tmp_path / "denlats"), acwt=0.7))
    objective.prepare(store, store)
    outputs = torch.randn(4, LENGTH, 3, generator=torch.Generator().manual_seed(0))
    (minibatch,) = whole(store, 4).in_order()
    assert minibatch.utts == store.utts
    totals = torch.zeros(objective.num_totals, dtype=torch.float64)
    objective(outputs.transpose(0, 1).reshape(-1, 3).clone(), minibatch, totals)
    assert totals[4:].tolist() == [0, 0] and "wer" not in objective.metrics(totals.tolist())
    objective.score(outputs.transpose(0, 1).reshape(-1, 3).clone(), minibatch, totals)

    errors = count = 0
    for lattice, reference, own in zip(each, references, outputs.double().numpy(), strict=True):
        scores, paths = own - objective.log_prior, paths_with_words(lattice)
        costs = [graph - 0.7 * scores[np.arange(LENGTH), TID2PDF[ids]].sum() for ids, graph, _ in paths]
        apart = [((ids != reference).sum(), graph) for ids, graph, _ in paths]
        hyp, ref = paths[int(np.argmin(costs))][2], paths[apart.index(min(apart))][2]
        errors, count = errors + edit_distance(ref, hyp)["total"], count + len(ref)
    assert totals[4:].tolist() == [errors, count] and errors > 0
    assert objective.metrics(totals.tolist())["wer"] == errors / count


def test_smoothing_takes_a_share_of_cross_entropy(tmp_path: Path, make_store: Callable[..., FrameStore]) -> None:
    store = make_store([LENGTH] * 3, num_pdfs=3)
    path = str(packed(tmp_path, store).path)
    (minibatch,) = whole(store, 3).in_order()
    outputs = torch.randn(3 * LENGTH, 3, generator=torch.Generator().manual_seed(0))

    def derivative(objective: Any) -> torch.Tensor:
        return objective(outputs.clone(), minibatch, torch.zeros(objective.num_totals, dtype=torch.float64))

    found = []
    for share in (0.0, 0.25):
        objective = Smbr(Smbr.options_class(denlats=path, xent_smoothing=share))
        objective.prepare(store, store)
        found.append(derivative(objective))
    torch.testing.assert_close(found[1], 0.75 * found[0] + 0.25 * derivative(CrossEntropy()))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [Mmi, Smbr])
def test_a_gpu_gives_the_same(golden: Path, kind: type[LatticeObjective]) -> None:
    folder = golden / "seq"
    utts = ["fjlp-an418-fjlp-b", "menk-an425-menk-b"]
    reference, loglikes = alignments(folder / "ref_ali.txt"), kaldis_loglikes(golden / "an4_kaldi/dnn/loglikes.ark")
    lattices = Lattices.joined([kaldis_lattices(folder, "dense_lat.gz")[utt] for utt in utts])
    scores = torch.from_numpy(np.concatenate([loglikes[utt] for utt in utts]))
    objective = objective_of(kind, kaldis_phones(folder), scores.shape[1])
    found = []
    for device in ("cpu", "cuda"):
        totals = torch.zeros(objective.num_totals, dtype=torch.float64, device=device)
        outputs = scores.clone().to(device)
        ids = np.concatenate([reference[utt] for utt in utts])
        derivative = objective.derivative(lattices, ids, np.arange(len(scores)), outputs, totals)
        found.append((derivative.cpu(), totals.cpu()))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_a_store_is_what_was_packed(tmp_path: Path, make_store: Callable[..., FrameStore]) -> None:
    frames = make_store([LENGTH] * 4, num_pdfs=3)
    store = packed(tmp_path, frames)
    store.verify()
    lattices, reference = store.lattices([3, 1])
    expected = Lattices.joined([as_arrays(random_lattice(i)) for i in (3, 1)])
    for field in dataclasses.fields(Lattices):
        np.testing.assert_array_equal(getattr(lattices, field.name), getattr(expected, field.name), err_msg=field.name)
        assert getattr(lattices, field.name).dtype == getattr(expected, field.name).dtype, field.name
    rng = np.random.default_rng(5)
    references = [rng.integers(1, 5, LENGTH) for _ in range(4)]
    np.testing.assert_array_equal(reference, np.concatenate([references[3], references[1]]))


def test_errors_say_what_does_not_fit(tmp_path: Path, make_store: Callable[..., FrameStore]) -> None:
    store = make_store([LENGTH + 1] * 2, num_pdfs=3)
    path = packed(tmp_path, store).path
    objective = Smbr(Smbr.options_class(denlats=str(path)))
    objective.prepare(store, store)
    (minibatch,) = whole(store, 2).in_order()
    with pytest.raises(UserError, match=r"the lattice has 5 frames, the features 6"):
        objective(torch.zeros(12, 3), minibatch, torch.zeros(4, dtype=torch.float64))
    other = make_store([3], num_pdfs=3, name="other")
    (other.path / "utts").write_text("nobody\n")
    other.manifest.checksums["utts"] = checksum(other.path / "utts")
    write_manifest(other.path / "manifest.json", other.manifest)
    with pytest.raises(UserError, match="a lattice of none"):
        objective.prepare(store, FrameStore(other.path))
    with pytest.raises(UserError, match="store/two 2"):
        objective.prepare(make_store([5], num_pdfs=2, name="two"), store)
    data = bytearray((path / "entry.bin").read_bytes())
    data[0] ^= 1
    (path / "entry.bin").write_bytes(data)
    with pytest.raises(UserError, match="does not match its checksum"):
        LatticeStore(path).verify()
    (path / "entry.bin").write_bytes(data[:-4])
    with pytest.raises(UserError, match="its manifest says"):
        LatticeStore(path)
    with pytest.raises(UserError, match="need --denlats"):
        Smbr()


def test_a_pdf_that_the_training_data_lack_has_a_score(tmp_path: Path, make_store: Callable[..., FrameStore]) -> None:
    store = make_store([LENGTH] * 2, num_pdfs=50)
    objective = Mmi(Mmi.options_class(denlats=str(packed(tmp_path, store).path)))
    objective.prepare(store, store)
    assert (store.counts() == 0).any() and -10 < objective.log_prior.min() <= objective.log_prior.max() < 0


def test_the_objectives_are_found_by_name() -> None:
    assert {"smbr", "mpe", "mmi"} <= OBJECTIVES.keys()
