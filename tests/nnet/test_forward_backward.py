"""Forward-backward over lattices: against all paths, finite differences, Kaldi's numbers, and itself in tensors."""

from __future__ import annotations

import dataclasses
import functools
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from emulated_cuda import EmulatedCuda
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.lattice import Lattice, read_lattices
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.frames.lattices import Lattices
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.cuda_graphs import CudaGraphs, ObjectiveGraphs
from pykaldist.nnet.forward_backward import ArcStatistics, best_paths, forward_backward, nearest_paths
from pykaldist.nnet.forward_backward_torch import CompiledLattices, LevelledLattices
from pykaldist.nnet.frame_accuracy import Phones

LENGTH = 5  # frames of a random lattice


def random_lattice(seed: int, ids: int = 4) -> Lattice:
    """Every path has five frames. Arcs take none to five of them; some states are final, some cannot be reached or lead nowhere."""
    rng = np.random.default_rng(seed)
    layer = np.sort(np.concatenate([[0, LENGTH], rng.integers(0, LENGTH + 1, rng.integers(2, 7))]))
    states = len(layer)
    arcs = [(s, t, rng.integers(1, ids + 1, layer[t] - layer[s])) for s in range(states) for t in range(s + 1, states)
            for _ in range(2) if (s, t) == (0, states - 1) or rng.random() < 0.3]
    ends = rng.random(states) < 0.3
    ends[-1] = True
    strings = [run for _, _, run in arcs] + [rng.integers(1, ids + 1, LENGTH - at if end else 0)
                                             for at, end in zip(layer, ends, strict=True)]
    final, acoustic = (np.where(ends, rng.normal(size=states), np.inf).astype(np.float32) for _ in range(2))
    string = np.concatenate([[0], np.cumsum([len(run) for run in strings])]).astype(np.int64)
    offset = np.searchsorted([s for s, _, _ in arcs], np.arange(states + 1)).astype(np.int64)
    graph, own = rng.normal(scale=2.0, size=(2, len(arcs))).astype(np.float32)
    return Lattice(offset, np.zeros(len(arcs), np.int32), graph, own, np.array([t for _, t, _ in arcs], np.int32), final, acoustic, string,
                   np.concatenate(strings).astype(np.int32))


def paths_of(lattice: Lattice) -> list[tuple[list[int], float, float]]:
    """(transition-ids, graph cost, acoustic cost) of every path, by recursion."""
    found = []

    def walk(s: int, ids: list[int], graph: float, acoustic: float) -> None:
        if lattice.final[s] < np.inf:
            found.append((ids + lattice.ids(lattice.num_arcs + s).tolist(), graph + float(lattice.final[s]),
                          acoustic + float(lattice.final_acoustic[s])))
        for a in range(lattice.offset[s], lattice.offset[s + 1]):
            walk(int(lattice.target[a]), ids + lattice.ids(a).tolist(), graph + float(lattice.graph[a]),
                 acoustic + float(lattice.acoustic[a]))

    walk(0, [], 0.0, 0.0)
    return found


def by_paths(lattice: Lattice, accuracy: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Posteriors and gains (frames, ids), log-likelihood and expected accuracy, as means over all paths; accuracy is (frames, ids)."""
    paths = paths_of(lattice)
    scores = np.array([-graph - scale * acoustic for _, graph, acoustic in paths])
    total = np.logaddexp.reduce(scores)
    probability = np.exp(scores - total)
    accuracies = np.array([sum(accuracy[t, i] for t, i in enumerate(ids)) for ids, _, _ in paths])
    expected = float(probability @ accuracies)
    posterior, gain = np.zeros_like(accuracy), np.zeros_like(accuracy)
    for (ids, _, _), p, own in zip(paths, probability, accuracies, strict=True):
        for t, i in enumerate(ids):
            posterior[t, i] += p
            gain[t, i] += p * (own - expected)
    return posterior, gain, float(total), expected


def of_cells(lattices: Lattices, arcs: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Values of arcs, summed by frame and transition-id."""
    table = np.zeros(shape)
    table[lattices.frame, lattices.transition_id] = lattices.cell_sums(arcs)
    return table


def costs(lattices: Lattices, acoustic_scale: float, lm_scale: float = 1.0) -> np.ndarray:
    return lm_scale * lattices.graph.astype(np.float64) + acoustic_scale * lattices.acoustic.astype(np.float64)


@settings(max_examples=150)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3), st.floats(0.05, 2))
def test_posteriors_and_gains_are_means_over_all_paths(seeds: list[int], scale: float) -> None:
    single = [random_lattice(seed) for seed in seeds]
    accuracy = np.random.default_rng(seeds[0]).random((LENGTH * len(seeds), 5))
    lattices = Lattices.joined([as_arrays(lattice) for lattice in single])
    found = forward_backward(lattices, costs(lattices, scale), lattices.entry_sums(accuracy[lattices.frame, lattices.transition_id]))
    posterior, gain = (of_cells(lattices, values, accuracy.shape) for values in (found.posterior, found.gain))
    for i, lattice in enumerate(single):
        own = slice(LENGTH * i, LENGTH * (i + 1))
        expected = by_paths(lattice, accuracy[own], scale)
        np.testing.assert_allclose(posterior[own], expected[0], atol=1e-12)
        np.testing.assert_allclose(gain[own], expected[1], atol=1e-12)
        np.testing.assert_allclose((found.loglike[i], found.accuracy[i]), expected[2:], rtol=1e-12, atol=1e-12)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3), st.floats(0.05, 2))
def test_tensors_give_what_the_kernel_gives(seeds: list[int], scale: float) -> None:
    lattices = Lattices.joined([as_arrays(random_lattice(seed)) for seed in seeds])
    rng = np.random.default_rng(seeds[0])
    scores, arcs = torch.from_numpy(rng.normal(size=len(lattices.frame))), torch.from_numpy(rng.random(len(lattices.source)))
    compiled, levelled = CompiledLattices(lattices), LevelledLattices(lattices, torch.device("cpu"), ObjectiveGraphs())
    for accuracy in (lattices.entry_sums(rng.random(len(lattices.frame))), None):
        expected, found = (one.forward_backward(costs(lattices, 1.0), accuracy, scores, scale) for one in (compiled, levelled))
        for field, values, own in zip(dataclasses.fields(ArcStatistics), found, expected, strict=True):
            np.testing.assert_allclose(values, own, rtol=1e-11, atol=1e-11, err_msg=field.name)
    np.testing.assert_allclose(levelled.cell_sums(arcs), compiled.cell_sums(arcs), rtol=1e-12)
    for never in (-torch.inf, torch.nan):  # arcs that have no probability, or no number
        scores[0] = never
        expected, found = (one.forward_backward(costs(lattices, 1.0), None, scores, scale) for one in (compiled, levelled))
        for values, own in zip(found[::2], expected[::2], strict=True):
            np.testing.assert_allclose(values, own, rtol=1e-11, atol=1e-11)


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_gains_and_posteriors_are_derivatives(seed: int) -> None:
    """By central differences: of the log-likelihood and the expected accuracy, for the log-likelihoods of frames."""
    lattices = as_arrays(random_lattice(seed))
    rng = np.random.default_rng(seed)
    accuracy, loglikes = rng.random((LENGTH, 5)), rng.normal(size=(LENGTH, 5))
    cells = (lattices.frame, lattices.transition_id)
    own = lattices.entry_sums(accuracy[cells])

    def run(scores: np.ndarray) -> ArcStatistics:
        return forward_backward(lattices, lattices.graph - lattices.entry_sums(scores[cells]), own)

    found = run(loglikes)
    posterior, gain = (of_cells(lattices, values, accuracy.shape) for values in (found.posterior, found.gain))
    step = 1e-5
    for t, i in zip(*(index[:6] for index in cells), strict=True):
        shift = np.zeros_like(loglikes)
        shift[t, i] = step
        up, down = run(loglikes + shift), run(loglikes - shift)
        np.testing.assert_allclose((up.loglike - down.loglike) / (2 * step), posterior[t, i], atol=1e-8)
        np.testing.assert_allclose((up.accuracy - down.accuracy) / (2 * step), gain[t, i], atol=1e-8)


@given(seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
@settings(max_examples=60)
def test_best_and_nearest_paths_are_the_best_of_all(seeds: list[int]) -> None:
    """Of several lattices at once; the nearest path agrees most with a reference, and has the least graph cost of those."""
    each, rng = [random_lattice(seed) for seed in seeds], np.random.default_rng(seeds[0])
    lattices = Lattices.joined([as_arrays(lattice) for lattice in each])
    reference = rng.integers(1, 5, LENGTH * len(each))
    agreeing = lattices.entry_sums(lattices.transition_id == reference[lattices.frame])
    best, nearest = best_paths(lattices, costs(lattices, 0.7)), nearest_paths(lattices, agreeing)
    for i, lattice in enumerate(each):
        own, ref = slice(lattices.arcs[i], lattices.arcs[i + 1]), reference[LENGTH * i : LENGTH * (i + 1)]
        paths = paths_of(lattice)
        assert costs(lattices, 0.7)[own][best[own]].sum() == pytest.approx(min(g + 0.7 * a for _, g, a in paths), abs=1e-4)
        most, graph = min((-int((np.array(ids) == ref).sum()), g) for ids, g, _ in paths)
        assert agreeing[own][nearest[own]].sum() == -most
        assert lattices.graph[own][nearest[own]].sum() == pytest.approx(graph, abs=1e-4)


def state_level(lattice: Lattice) -> Lattice:
    """The lattice with an arc a frame: states are split along each run of frames."""
    arcs: list[tuple[int, int, int, float, float]] = []
    final = lattice.final.copy()
    states = lattice.num_states

    def add(source: int, target: int | None, ids: list[int], graph: float, acoustic: float) -> int:
        nonlocal states
        for i, tid in enumerate(ids or [0]):
            last = i == max(len(ids), 1) - 1
            states += not last or target is None
            to = target if last and target is not None else states - 1
            arcs.append((source, to, tid, graph if i == 0 else 0.0, acoustic if i == 0 else 0.0))
            source = to
        return source

    for a, s in enumerate(lattice.source.tolist()):
        add(s, int(lattice.target[a]), lattice.ids(a).tolist(), float(lattice.graph[a]), float(lattice.acoustic[a]))
    ends = []
    for s in np.flatnonzero(lattice.final < np.inf).tolist():
        ends.append(add(s, None, lattice.ids(lattice.num_arcs + s).tolist(), float(lattice.final[s]), float(lattice.final_acoustic[s])))
    final = np.full(states, np.inf, np.float32)
    final[ends] = 0.0
    arcs.sort(key=lambda arc: arc[0])
    columns = [np.array(column) for column in zip(*arcs, strict=True)]
    offset = np.searchsorted(columns[0], np.arange(states + 1)).astype(np.int64)
    return Lattice.from_arcs(offset, columns[2].astype(np.int32), np.zeros(len(arcs), np.int32), columns[3].astype(np.float32),
                             columns[4].astype(np.float32), columns[1].astype(np.int32), final).in_order()


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_splitting_states_and_pushing_costs_change_nothing(seed: int) -> None:
    lattice = random_lattice(seed)
    rng = np.random.default_rng(seed)
    potential = rng.normal(size=lattice.num_states).astype(np.float32)
    potential[0] = 0.0
    pushed = dataclasses.replace(lattice, graph=lattice.graph + potential[lattice.source] - potential[lattice.target],
                                 final=lattice.final + potential)
    split = state_level(lattice)
    accuracy = rng.random((LENGTH, 5))
    tables = []
    for one in (lattice, pushed, split):
        lattices = as_arrays(one)
        found = forward_backward(lattices, costs(lattices, 0.5), lattices.entry_sums(accuracy[lattices.frame, lattices.transition_id]))
        tables.append([of_cells(lattices, found.posterior, accuracy.shape), of_cells(lattices, found.gain, accuracy.shape), found.loglike,
                       found.accuracy])
    assert np.diff(split.string).max() <= 1
    for other in tables[1:]:
        for one, same in zip(tables[0], other, strict=True):
            np.testing.assert_allclose(same, one, atol=2e-6)


def test_a_lattice_without_a_path_is_refused() -> None:
    lattice = random_lattice(0)
    with pytest.raises(ValueError, match="no path"):
        as_arrays(dataclasses.replace(lattice, final=np.full_like(lattice.final, np.inf)))


def test_paths_of_different_lengths_are_refused() -> None:
    lattice = Lattice.from_arcs(np.array([0, 2, 3, 3]), np.array([1, 2, 3], np.int32), np.zeros(3, np.int32), np.zeros(3, np.float32),
                                np.zeros(3, np.float32), np.array([1, 2, 2], np.int32), np.array([np.inf, np.inf, 0.0]))
    with pytest.raises(ValueError, match="different numbers of frames"):
        as_arrays(lattice)


# Kaldi's own lattices and what its programs give for them: $PYKALDIST_SHARED/golden/seq/README.md.

@functools.cache
def kaldis_phones(folder: Path) -> Phones:
    model = TransitionModel.read(KaldiReader.open(folder / "trans.mdl.txt.gz"))
    silence = (folder / "silence.csl").read_text().strip().split(":")
    return Phones.of(model.tid2pdf, model.tid2phone, map(int, silence))


def alignments(path: Path) -> dict[str, np.ndarray]:
    return {utt: np.array(ids, np.int64) for utt, *ids in (line.split() for line in path.read_text().splitlines())}


def values_by_utterance(path: Path) -> dict[str, float]:
    return {line.split()[0]: float(line.split()[1]) for line in path.read_text().splitlines()}


def posteriors(path: Path) -> dict[str, list[dict[int, float]]]:
    """A frame's values by their ids, of Kaldi's posteriors as text, gzipped."""
    found = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        utt, _, rest = line.partition(" ")
        frames = [frame.strip(" [\n").split() for frame in rest.split("]")[:-1]]
        found[utt] = [dict(zip(map(int, frame[::2]), map(float, frame[1::2]), strict=True)) for frame in frames]
    return found


def assert_same_posteriors(lattices: Lattices, arcs: np.ndarray, expected: list[dict[int, float]], within: float = 1e-3) -> None:
    found = of_cells(lattices, arcs, (len(expected), int(lattices.transition_id.max()) + 1))
    table = np.zeros_like(found)
    for t, frame in enumerate(expected):
        for tid, value in frame.items():
            table[t, tid] = value
    assert np.abs(found - table).max() <= within


@functools.cache
def kaldis_lattices(folder: Path, name: str) -> dict[str, Lattices]:
    return {utt: as_arrays(lattice) for utt, lattice in read_lattices(folder / name)}


@pytest.mark.parametrize(("archive", "stem", "lm_scale"), [
    ("lat.gz", "den{}", 1.0), ("lat.gz", "den{}_lm0.5", 0.5), ("lat_boost0.1.gz", "boost{}", 1.0), ("dense_lat.gz", "dense_den{}", 1.0)])
def test_posteriors_are_kaldis(golden: Path, archive: str, stem: str, lm_scale: float) -> None:
    folder = golden / "seq"
    loglikes = values_by_utterance(folder / f"{stem.format('_loglike')}.txt")
    expected = posteriors(folder / f"{stem.format('_post')}.txt.gz")
    lattices = kaldis_lattices(folder, archive)
    assert lattices.keys() == expected.keys() == loglikes.keys()
    for utt, one in lattices.items():
        found = forward_backward(one, costs(one, 0.1, lm_scale))
        assert found.loglike[0] / one.frames[-1] == pytest.approx(loglikes[utt] / one.frames[-1], abs=1e-5)
        assert_same_posteriors(one, found.posterior, expected[utt])


@pytest.mark.parametrize(("stem", "max_silence"), [("boost{}", 0.0), ("boost{}_scaledfirst_maxsil1", 1.0)])
def test_boosted_posteriors_are_kaldis(golden: Path, stem: str, max_silence: float) -> None:
    folder = golden / "seq"
    reference = alignments(folder / "ref_ali.txt")
    loglikes = values_by_utterance(folder / f"{stem.format('_loglike')}.txt")
    expected = posteriors(folder / f"{stem.format('_post')}.txt.gz")
    for utt, one in kaldis_lattices(folder, "lat.gz").items():
        errors = kaldis_phones(folder).error(one.transition_id, reference[utt][one.frame], max_silence)
        found = forward_backward(one, costs(one, 0.1) - 0.1 * one.entry_sums(errors))
        assert found.loglike[0] / one.frames[-1] == pytest.approx(loglikes[utt] / one.frames[-1], abs=1e-5)
        assert_same_posteriors(one, found.posterior, expected[utt])


@pytest.mark.parametrize(("archive", "prefix", "one_silence_class"), [("lat.gz", "", True), ("lat.gz", "", False),
                                                                      ("dense_lat.gz", "dense_", True)])
@pytest.mark.parametrize("criterion", ["smbr", "mpe"])
def test_gains_are_kaldis(golden: Path, archive: str, prefix: str, one_silence_class: bool, criterion: str) -> None:
    folder = golden / "seq"
    reference = alignments(folder / "ref_ali.txt")
    suffix = str(one_silence_class).lower()
    expected = posteriors(folder / f"{prefix}{criterion}_post_osc_{suffix}.txt.gz")
    log = (folder / f"log.{prefix}{criterion}{'' if prefix else f'_osc_{suffix}'}").read_text().splitlines()
    accuracies = {line.split("utterance: ")[1].split(";")[0]: float(line.split("accuracies = ")[1].split()[0])
                  for line in log if "utterance: " in line}
    lattices = kaldis_lattices(folder, archive)
    assert lattices.keys() == expected.keys() == accuracies.keys()
    for utt, one in lattices.items():
        right = kaldis_phones(folder).accuracy(criterion, one.transition_id, reference[utt][one.frame], one_silence_class)
        accuracy = one.entry_sums(right)
        found = forward_backward(one, costs(one, 0.1), accuracy)
        assert found.accuracy[0] / one.frames[-1] == pytest.approx(accuracies[utt], abs=1e-5)
        assert_same_posteriors(one, found.gain, expected[utt])


@pytest.mark.gpu
def test_a_gpu_gives_the_same_on_kaldis_lattices(cuda: EmulatedCuda | None, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded or not: lattices of several shapes in turn, one more than are recorded, with costs that differ each time."""
    monkeypatch.setattr(CudaGraphs, "LIMIT", 3)
    dense, few = (list(kaldis_lattices(golden / "seq", name).values()) for name in ("dense_lat.gz", "lat.gz"))
    graphs, rng, device = ObjectiveGraphs(), np.random.default_rng(0), torch.device("cuda")
    sets = [(Lattices.joined(one), accurate) for one, accurate in ((dense, True), (few[:4], True), (dense, False), (few, False))]
    for turn in range(4):
        for lattices, accurate in sets:
            accuracy = rng.random(len(lattices.source)) if accurate else None
            scores = torch.from_numpy(rng.normal(size=len(lattices.frame)))
            expected = CompiledLattices(lattices).forward_backward(costs(lattices, 0.1), accuracy, scores, 0.3)
            found = LevelledLattices(lattices, device, graphs).forward_backward(costs(lattices, 0.1), accuracy, scores.to(device), 0.3)
            for values, own in zip(found, expected, strict=True):
                np.testing.assert_allclose(values.cpu(), own, rtol=1e-9, atol=1e-9)
        if cuda is not None:
            assert cuda.kernels["graph"] == 3 * max(0, turn - 1)
