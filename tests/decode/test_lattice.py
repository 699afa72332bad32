from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.compact import _find_places
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.paths import LatticePath, best_path, best_words, nbest
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst, Header, pack
from pykaldist.io.tables import read_archive

ARRAYS = ("offset", "word", "graph", "acoustic", "target", "final", "final_acoustic", "string", "transition_ids")


def random_lattice(seed: int, words: int = 3) -> Lattice:
    """A small lattice with frames; every state lies on a path."""
    rng = np.random.default_rng(seed)
    frames, width = rng.integers(1, 5), rng.integers(1, 4)
    frame = np.concatenate([[0], np.repeat(np.arange(1, frames + 1), width)]).astype(np.int32)
    source, target = [], []
    for s in range(len(frame)):
        for t in range(s + 1, len(frame)):
            if frame[t] == frame[s] + 1 and (s == 0 or t == s + width or rng.random() < 0.7):
                source.append(s)
                target.append(t)
    count = len(source)
    offset = np.zeros(len(frame) + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=len(frame)), out=offset[1:])
    final = np.where(frame == frames, rng.normal(size=len(frame)), np.inf).astype(np.float32)
    return Lattice.from_arcs(offset, rng.integers(1, 9, count).astype(np.int32), rng.integers(0, words, count).astype(np.int32),
                             rng.random(count).astype(np.float32) * 3, rng.normal(size=count).astype(np.float32) * 5,
                             np.array(target, np.int32), final)


def enumerate_paths(lattice: Lattice) -> list[tuple[tuple[int, ...], float, float, tuple[int, ...]]]:
    """(words, graph cost, acoustic cost, transition-ids) of every path."""
    found = []

    def walk(s: int, words: tuple[int, ...], graph: float, acoustic: float, ids: tuple[int, ...]) -> None:
        if lattice.final[s] < np.inf:
            found.append((words, graph + float(lattice.final[s]), acoustic + float(lattice.final_acoustic[s]),
                          (*ids, *lattice.ids(lattice.num_arcs + s).tolist())))
        for a in range(lattice.offset[s], lattice.offset[s + 1]):
            w = int(lattice.word[a])
            walk(int(lattice.target[a]), words + (w,) * (w > 0), graph + float(lattice.graph[a]), acoustic + float(lattice.acoustic[a]),
                 (*ids, *lattice.ids(a).tolist()))

    walk(0, (), 0.0, 0.0, ())
    return found


seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds)
def test_all_points_of_a_sweep_at_once_equal_enumeration(seed: int) -> None:
    lattice = random_lattice(seed)
    every = enumerate_paths(lattice)
    points = [(1.0, 0.1, 0.0), (1.0, 1.0, 0.5), (0.3, 0.2, -2.0), (1.0, 0.05, 4.0)]
    for (lm, ac, wip), words in zip(points, best_words(lattice, *zip(*points, strict=True)), strict=True):
        costs = {path: lm * path[1] + ac * path[2] + wip * len(path[0]) for path in every}
        best = min(costs.values())
        assert any(path[0] == tuple(words) for path, cost in costs.items() if cost < best + 1e-4)


@given(seed=seeds)
def test_the_best_path_has_the_costs_it_says(seed: int) -> None:
    lattice = random_lattice(seed)
    path = best_path(lattice, 0.3)
    best = min(enumerate_paths(lattice), key=lambda p: p[1] + 0.3 * p[2])
    assert path.graph + 0.3 * path.acoustic == pytest.approx(best[1] + 0.3 * best[2], abs=1e-4)
    assert len(path.transition_ids) == lattice.num_frames


@given(seed=seeds, beam=st.floats(0.5, 30), acwt=st.sampled_from([0.1, 0.5]))
def test_determinisation_keeps_the_best_path_of_each_word_sequence(seed: int, beam: float, acwt: float) -> None:
    lattice = random_lattice(seed)
    every = enumerate_paths(lattice)
    best: dict[tuple[int, ...], float] = {}
    for words, graph, acoustic, _ in every:
        best[words] = min(best.get(words, np.inf), graph + acwt * acoustic)
    lowest = min(best.values())
    result = determinize(lattice, acwt, beam)
    found = enumerate_paths(result)
    assert result.word.all() and result.num_frames == lattice.num_frames
    assert len({words for words, *_ in found}) == len(found)
    for words, graph, acoustic, ids in found:
        assert graph + acwt * acoustic == pytest.approx(best[words], abs=0.05)
        # merged states may differ by DELTA: the costs are, to within that, those of a path with these transition-ids
        assert any((words, ids) == (w, i) and abs(graph - g + acwt * (acoustic - a)) < 0.05 for w, g, a, i in every)
    assert {w for w, cost in best.items() if cost < lowest + beam - 0.05} <= {words for words, *_ in found}


def test_determinisation_that_is_too_much_work_keeps_the_best_paths(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = max((lattice for _, lattice in read_lattices(golden / "an4_kaldi/decode_dnn/lat.gz")), key=lambda x: x.num_arcs)
    whole = determinize(lattice, 0.1)
    monkeypatch.setattr("pykaldist.decode.determinize.MAX_WORK", 1)
    cut = determinize(lattice, 0.1)
    assert 0 < cut.num_arcs < whole.num_arcs and cut.narrowed and not whole.narrowed
    assert best_path(cut, 0.1).words == best_path(lattice, 0.1).words
    kept = {tuple(path.words) for path in nbest(cut, 1000, 0.1)}
    assert kept < {tuple(path.words) for path in nbest(whole, 10000, 0.1)}


@settings(max_examples=30)
@given(seed=seeds)
def test_archives_come_back(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "lat.1.gz"
    lattices = {f"utt-{n}": random_lattice(seed + n) for n in range(3)}
    assert write_lattices(path, lattices.items()) == 3
    back = dict(read_lattices(path))
    assert back.keys() == lattices.keys()
    for key, lattice in lattices.items():
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(back[key], name), getattr(lattice, name), err_msg=name)


def state_level_bytes(lattice: Lattice) -> bytes:
    """A file of arc type `lattice4`, one transition-id an arc."""
    final = np.stack([lattice.final, lattice.final_acoustic], axis=1)
    ids = [next(iter(lattice.ids(a)), 0) for a in range(lattice.num_arcs)]
    return pack("lattice4", 0, final, lattice.offset, np.stack([ids, lattice.word], axis=1),
                np.stack([lattice.graph, lattice.acoustic], axis=1), lattice.target)


def test_state_level_lattices_are_read(tmp_path: Path) -> None:
    lattice = random_lattice(5)
    (tmp_path / "lattice").write_bytes(state_level_bytes(lattice))
    assert kaldifst.Lattice.read(str(tmp_path / "lattice")).num_states == lattice.num_states
    back, end = Lattice.parse((tmp_path / "lattice").read_bytes())
    assert end == (tmp_path / "lattice").stat().st_size
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(back, name), getattr(lattice, name), err_msg=name)


def test_kaldis_compact_lattices_come_back_byte_for_byte(golden: Path) -> None:
    content = gzip.decompress((golden / "an4_kaldi/decode_dnn/lat.gz").read_bytes())
    pos = 0
    while pos < len(content):
        begin = content.index(b" ", pos) + 1
        lattice, pos = Lattice.parse(content, begin)
        assert lattice.to_bytes() == content[begin:pos]


def test_an_archive_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, Lattice]]:
        yield "a", random_lattice(1)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_lattices(tmp_path / "lat.1.gz", broken())
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_archives_are_named(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gz"
    content = b"".join(f"utt-{n} ".encode() + random_lattice(n).to_bytes() for n in range(2))
    cut = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[cut] ^= data.draw(st.integers(1, 255))
    for damaged in (content[: max(cut, 1)], bytes(flipped)):
        path.write_bytes(gzip.compress(damaged))
        try:
            for _, lattice in read_lattices(path):
                assert len(lattice.target) == lattice.offset[-1]
        except UserError as error:
            assert str(path) in str(error)
    path.write_bytes(gzip.compress(content)[:-20])
    with pytest.raises(UserError, match="truncated"):
        list(read_lattices(path))


@pytest.fixture(scope="module")
def kaldis(golden: Path) -> dict[str, Lattice]:
    return dict(read_lattices(golden / "an4_kaldi/decode_dnn/lat.gz"))


def test_kaldis_compact_lattices_hold_its_hypotheses(kaldis: dict[str, Lattice], golden: Path) -> None:
    folder = golden / "an4_kaldi"
    words = dict(line.split()[::-1] for line in (folder / "graph_tri3/words.txt").read_text().splitlines())
    per_frame = {f[5]: (float(f[7]), int(f[9])) for f in
                 map(str.split, (folder / "decode_dnn/loglike_per_frame.txt").read_text().splitlines())}
    assert len(kaldis) == 43
    same = 0
    for line in (folder / "decode_dnn/hyp_acwt0.1.txt").read_text().splitlines():
        utt, *hyp = line.split()
        path = best_path(kaldis[utt], 0.1)
        score, frames = per_frame[utt]
        assert len(path.transition_ids) == kaldis[utt].num_frames == frames
        assert -(path.graph + 0.1 * path.acoustic) / frames == pytest.approx(score, abs=2e-5)
        same += [words[str(w)] for w in path.words] == hyp
    assert same >= 37  # OH and O sound alike and cost the same


def by_words(lattice: Lattice) -> dict[tuple[int, ...], tuple[float, bytes]]:
    """(cost, transition-ids) of the best path of each of the lattice's best 300 word sequences."""
    found: dict[tuple[int, ...], tuple[float, bytes]] = {}
    for path in nbest(lattice, 300, 0.1):
        found.setdefault(tuple(path.words), (path.graph + 0.1 * path.acoustic, path.transition_ids.tobytes()))
    return found


def test_our_lattices_are_kaldis(kaldis: dict[str, Lattice], golden: Path) -> None:
    folder = golden / "an4_kaldi"
    decoder = LatticeDecoder(Fst.read(folder / "graph_tri3/HCLG.fst"), read_transition_model(folder / "tri3_ali/final.mdl").tid2pdf,
                             DecoderOptions(acwt=0.1))
    sequences = same_ids = 0
    for utt, matrix in read_archive(folder / "dnn/loglikes.ark"):
        raw = decoder.decode(matrix)
        assert raw is not None
        ours, theirs = by_words(determinize(raw, 0.1)), by_words(kaldis[utt])
        best = min(cost for cost, _ in theirs.values())
        np.testing.assert_array_equal(best_path(raw, 0.1).transition_ids, best_path(kaldis[utt], 0.1).transition_ids)
        for one, other in ((ours, theirs), (theirs, ours)):
            assert {words for words, (cost, _) in one.items() if cost < best + 7.9 and len(other) < 300} <= other.keys()
        for words in ours.keys() & theirs.keys():
            assert ours[words][0] == pytest.approx(theirs[words][0], abs=1e-3)
            sequences += 1
            same_ids += ours[words][1] == theirs[words][1]
    assert same_ids > 0.99 * sequences > 2000


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_compact_lattices_are_named(golden: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "compact.ark"
    content = bytearray(gzip.decompress((golden / "an4_kaldi/decode_dnn/lat.gz").read_bytes())[:40000])
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(1, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, 2000))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        for _, lattice in read_lattices(path):
            assert len(lattice.target) == lattice.offset[-1]
    except UserError as error:
        assert str(path) in str(error)


@settings(max_examples=100)
@given(seed=seeds, data=st.data())
def test_places_are_found_alike_by_python_and_by_numba(seed: int, data: st.DataObject) -> None:
    """In whole bodies and in damaged ones: the same numbers of arcs, ends and places."""
    content = random_lattice(seed).to_bytes()
    words = np.frombuffer(content, "<i4", offset=Header.parse(content, 0).end).copy()
    for _ in range(data.draw(st.integers(0, 2))):
        words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from([-1, 0, 1, 7, 2**31 - 1]))
    words = words[: data.draw(st.integers(0, len(words)))]
    states = Header.parse(content, 0).num_states
    found = []
    for view, call in ((memoryview, _find_places.function), (np.asarray, _find_places)):
        places = np.zeros(states, np.int64), np.zeros(len(words) // 6 + 1, np.int64)
        arcs, end = call(view(words), states, *map(view, places))
        found.append((arcs, end, places[0].tolist() if end >= 0 else [], places[1][:arcs].tolist()))
    assert found[0] == found[1]


@given(seed=seeds)
def test_states_in_any_order_are_sorted(seed: int) -> None:
    lattice = random_lattice(seed)
    order = np.random.default_rng(seed).permutation(lattice.num_states)
    result = lattice.select(order).in_order(int(np.flatnonzero(order == 0)[0]))
    assert (result.target > result.source).all()
    assert sorted(enumerate_paths(result)) == sorted(enumerate_paths(lattice))
    np.testing.assert_array_equal(np.sort(result.frame), np.sort(lattice.frame))


def test_a_cycle_is_an_error() -> None:
    one = np.ones(2, np.int32)
    with pytest.raises(ValueError, match="cycle"):
        Lattice.from_arcs(np.array([0, 1, 2]), one, one, one, one, np.array([1, 0]), np.array([np.inf, 0])).in_order()


@given(seed=seeds, n=st.integers(1, 40))
def test_the_n_best_paths_are_the_best_n(seed: int, n: int) -> None:
    lattice = random_lattice(seed)
    costs = sorted(g + 0.3 * a for _, g, a, _ in enumerate_paths(lattice))
    paths = list(nbest(lattice, n, 0.3))
    np.testing.assert_allclose([p.graph + 0.3 * p.acoustic for p in paths], costs[:n], atol=1e-4)


@pytest.mark.parametrize("words", [[], [3], [1, 2, 1]])
def test_a_path_as_a_lattice(words: list[int]) -> None:
    path = LatticePath(words, np.array([4, 4, 5], np.int32), 1.5, -2.0)
    ((found, graph, acoustic, ids),) = enumerate_paths(Lattice.parse(path.lattice().to_bytes())[0])
    assert (list(found), graph, acoustic, ids) == (words, 1.5, -2.0, (4, 4, 5))


def test_a_lattice_without_a_path_is_an_error() -> None:
    lattice = random_lattice(1)
    lattice.final[:] = np.inf
    for work in (lambda: best_path(lattice, 1.0), lambda: next(nbest(lattice, 1, 1.0)), lambda: determinize(lattice, 1.0)):
        with pytest.raises(ValueError, match="no path"):
            work()
    with pytest.raises(ValueError, match="empty"):
        best_path(lattice.select(np.arange(0)), 1.0)
