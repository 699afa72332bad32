from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive

ACWT = 0.5
PDFS = 4


def random_problem(seed: int) -> tuple[Fst, np.ndarray]:
    """A graph whose output labels name its arcs, its epsilons leading forward; and log-likelihoods of a few frames."""
    rng = np.random.default_rng(seed)
    states, emitting, epsilons = rng.integers(2, 6), rng.integers(2, 9), rng.integers(0, 5)
    source = rng.integers(0, states, emitting)
    target = rng.integers(0, states, emitting)
    eps_source = rng.integers(0, states - 1, epsilons)
    eps_target = rng.integers(eps_source + 1, states)
    count = emitting + epsilons
    final = np.where(rng.random(states) < 0.5, rng.random(states) * 3, np.inf)
    fst = Fst.from_arcs(0, final, np.concatenate([source, eps_source]),
                        np.concatenate([rng.integers(1, PDFS + 1, emitting), np.zeros(epsilons, int)]), np.arange(1, count + 1),
                        rng.random(count) * 4, np.concatenate([target, eps_target]))
    return fst, rng.normal(size=(rng.integers(1, 5), PDFS)).astype(np.float32) * 5


def all_paths(fst: Fst, loglikes: np.ndarray) -> dict[tuple[int, ...], float]:
    """Cost of every complete path, by its output labels; with no path to a final state, of every path."""
    found: list[tuple[tuple[int, ...], float, float]] = []

    def walk(s: int, frame: int, cost: float, labels: tuple[int, ...]) -> None:
        if frame == len(loglikes):
            found.append((labels, cost, float(fst.final[s])))
        for a in range(fst.offset[s], fst.offset[s + 1]):
            emits = fst.ilabel[a] > 0
            if frame < len(loglikes) or not emits:
                acoustic = -ACWT * float(loglikes[frame, fst.ilabel[a] - 1]) if emits else 0.0
                walk(int(fst.nextstate[a]), frame + emits, cost + float(fst.weight[a]) + acoustic, (*labels, int(fst.olabel[a])))

    walk(fst.start, 0, 0.0, ())
    reached = any(final < np.inf for _, _, final in found)
    return {labels: cost + (final if reached else 0) for labels, cost, final in found if final < np.inf or not reached}


def lattice_paths(lattice: Lattice) -> dict[tuple[int, ...], float]:
    found = {}

    def walk(s: int, cost: float, labels: tuple[int, ...]) -> None:
        if lattice.final[s] < np.inf:
            found[labels] = cost + float(lattice.final[s])
        for a in range(lattice.offset[s], lattice.offset[s + 1]):
            walk(int(lattice.target[a]), cost + float(lattice.graph[a]) + ACWT * float(lattice.acoustic[a]),
                 (*labels, int(lattice.word[a])))

    walk(0, 0.0, ())
    return found


TID2PDF = np.arange(-1, PDFS)


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1), lattice_beam=st.floats(0.1, 8), interval=st.integers(1, 5), min_active=st.sampled_from([0, 1, 200]))
def test_lattice_holds_exactly_the_paths_within_the_lattice_beam(seed: int, lattice_beam: float, interval: int, min_active: int) -> None:
    fst, loglikes = random_problem(seed)
    options = DecoderOptions(beam=1e4, lattice_beam=lattice_beam, acwt=ACWT, prune_interval=interval, min_active=min_active)
    lattice = LatticeDecoder(fst, TID2PDF, options).decode(loglikes)
    expected = all_paths(fst, loglikes)
    if not expected:
        assert lattice is None
        return
    assert lattice is not None and lattice.num_frames == len(loglikes)
    best = min(expected.values())
    path = best_path(lattice, ACWT)
    assert path.graph + ACWT * path.acoustic == pytest.approx(best, abs=1e-3)
    found = lattice_paths(lattice)
    for labels, cost in found.items():
        assert cost == pytest.approx(expected[labels], abs=1e-3)
    assert {labels for labels, cost in expected.items() if cost < best + lattice_beam - 1e-3} <= set(found)
    needed = {label for labels, cost in expected.items() if cost < best + lattice_beam + 1e-3 for label in labels}
    assert set(lattice.word.tolist()) <= needed


def test_one_decoder_gives_the_same_lattice_again_and_between_others() -> None:
    fst, loglikes = random_problem(11)
    decoder = LatticeDecoder(fst, TID2PDF, DecoderOptions(acwt=ACWT))
    first = decoder.decode(loglikes)
    decoder.decode(-loglikes[::-1])
    again = decoder.decode(loglikes)
    assert first is not None and again is not None
    for name in ("offset", "word", "transition_ids", "string", "graph", "acoustic", "target", "final"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def fan(width: int, steps: float) -> Fst:
    """Start, then `width` looping states reached at costs 0, steps, 2 steps, ..."""
    states = np.arange(1, width + 1)
    return Fst.from_arcs(0, np.array([np.inf] + [0.0] * width), np.concatenate([np.zeros(width, int), states]),
                         np.ones(2 * width, int), np.concatenate([states, np.zeros(width, int)]),
                         np.concatenate([steps * np.arange(width), np.zeros(width)]), np.concatenate([states, states]))


@pytest.mark.parametrize(("options", "survivors"), [
    (DecoderOptions(beam=4.5, lattice_beam=100, min_active=0), 5),
    (DecoderOptions(beam=4.5, lattice_beam=100, min_active=9), 10),
    (DecoderOptions(beam=50, lattice_beam=100, min_active=0, max_active=7), 8),
    (DecoderOptions(beam=50, lattice_beam=2.5, min_active=0), 3),
])
def test_each_pruning_option_is_honoured(options: DecoderOptions, survivors: int) -> None:
    lattice = LatticeDecoder(fan(30, 1.0), np.array([0, 0]), options).decode(np.zeros((3, 1), np.float32))
    assert lattice is not None
    assert len(lattice_paths(lattice)) == survivors


def test_without_a_final_state_the_output_is_partial() -> None:
    fst = Fst.from_arcs(0, np.array([np.inf, np.inf]), np.array([0, 1]), np.array([1, 1]), np.array([1, 0]), np.zeros(2), np.array([1, 1]))
    lattice = LatticeDecoder(fst, np.array([0, 0]), DecoderOptions()).decode(np.zeros((4, 1), np.float32))
    assert lattice is not None and not lattice.reached_final
    assert best_path(lattice, 1.0).words == [1]


def test_a_path_that_ends_too_early_gives_no_lattice() -> None:
    fst = Fst.from_arcs(0, np.array([np.inf, 0.0]), np.array([0]), np.array([1]), np.array([1]), np.zeros(1), np.array([1]))
    decoder = LatticeDecoder(fst, np.array([0, 0]), DecoderOptions())
    assert decoder.decode(np.zeros((2, 1), np.float32)) is None
    assert decoder.decode(np.zeros((0, 1), np.float32)) is None
    assert decoder.decode(np.zeros((1, 1), np.float32)) is not None


def test_what_does_not_fit_is_refused() -> None:
    fst, loglikes = random_problem(3)
    with pytest.raises(UserError, match="transition-ids up to"):
        LatticeDecoder(fst, TID2PDF[:2], DecoderOptions())
    with pytest.raises(UserError, match="max-active"):
        LatticeDecoder(fst, TID2PDF, DecoderOptions(max_active=1))
    with pytest.raises(UserError, match="beam"):
        LatticeDecoder(fst, TID2PDF, DecoderOptions(beam=0))
    decoder = LatticeDecoder(fst, TID2PDF, DecoderOptions())
    with pytest.raises(UserError, match="shape"):
        decoder.decode(loglikes[:, :1])
    loglikes[0, 0] = np.nan
    with pytest.raises(UserError, match="not finite"):
        decoder.decode(loglikes)
    loop = Fst.from_arcs(0, np.array([0.0, 0.0]), np.array([0, 0, 1]), np.array([1, 0, 0]), np.array([1, 0, 0]), np.zeros(3),
                         np.array([0, 1, 0]))
    with pytest.raises(UserError, match="cycle"):
        LatticeDecoder(loop, np.array([0, 0]), DecoderOptions()).decode(np.zeros((2, 1), np.float32))


@pytest.fixture(scope="module")
def an4(golden: Path) -> tuple[LatticeDecoder, dict[str, np.ndarray], Path]:
    folder = golden / "an4_kaldi"
    decoder = LatticeDecoder(Fst.read(folder / "graph_tri3/HCLG.fst"), read_transition_model(folder / "tri3_ali/final.mdl").tid2pdf,
                             DecoderOptions(acwt=0.1))
    return decoder, dict(read_archive(folder / "dnn/loglikes.ark")), folder


def test_hypotheses_and_scores_equal_kaldis(an4: tuple[LatticeDecoder, dict[str, np.ndarray], Path]) -> None:
    decoder, loglikes, folder = an4
    words = dict(line.split()[::-1] for line in (folder / "graph_tri3/words.txt").read_text().splitlines())
    hyps = {f[0]: f[1:] for f in map(str.split, (folder / "decode_dnn/hyp_acwt0.1.txt").read_text().splitlines())}
    per_frame = {f[5]: (float(f[7]), int(f[9])) for f in
                 map(str.split, (folder / "decode_dnn/loglike_per_frame.txt").read_text().splitlines())}
    assert hyps.keys() == loglikes.keys() and len(hyps) == 43
    for utt, matrix in loglikes.items():
        lattice = decoder.decode(matrix)
        assert lattice is not None and lattice.reached_final
        path = best_path(lattice, 0.1)
        assert [words[str(w)] for w in path.words] == hyps[utt]
        score, frames = per_frame[utt]
        assert len(path.transition_ids) == lattice.num_frames == frames
        assert -(path.graph + 0.1 * path.acoustic) / frames == pytest.approx(score, abs=2e-5)
