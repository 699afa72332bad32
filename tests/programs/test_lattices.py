"""The lattice programs: beside Kaldi's sweep over its own lattices, paths listed one by one, and words put together from phones."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from decode.test_lattice import random_lattice  # type: ignore[import-not-found]  # beside these tests

from pykaldist.cli import main
from pykaldist.decode.combine import combined, interpolated
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.mbr import mbr_decode
from pykaldist.decode.paths import best_path, nbest, pruned
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.score.wer import compute_wer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def an4(golden: Path) -> Path:
    return golden / "an4_kaldi"


def shell(folder: Path, line: str, **more: str) -> str:
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}", **more}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def same(found: Lattice, expected: Lattice) -> None:
    for name in ("offset", "word", "target", "string", "transition_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for name in ("graph", "acoustic", "final", "final_acoustic"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-6)


def paths(lattice: Lattice) -> dict[tuple, float]:
    """The best cost of each path's words and transition-ids."""
    found: dict[tuple, float] = defaultdict(lambda: np.inf)
    for path in nbest(lattice, 10**6, 1.0):
        key = tuple(path.words), tuple(path.transition_ids.tolist())
        found[key] = min(found[key], path.graph + path.acoustic)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_copies_keep_the_paths(tmp_path: Path, seed: int) -> None:
    lattice = random_lattice(seed)
    write_lattices(tmp_path / "a", [("u", lattice), ("v", random_lattice(seed + 50))])
    for compact, form in itertools.product(("true", "false"), ("ark:", "ark,t:")):
        assert main(["lattice-copy", f"--write-compact={compact}", f"ark:{tmp_path}/a", f"{form}{tmp_path}/b"]) == 0
        assert main(["lattice-copy", f"ark:{tmp_path}/b", f"ark,scp:{tmp_path}/c,{tmp_path}/c.scp"]) == 0
        assert main(["lattice-copy", f"scp:{tmp_path}/c.scp", f"ark:{tmp_path}/d"]) == 0
        copies = dict(read_lattices(tmp_path / "d"))
        assert list(copies) == ["u", "v"]
        if compact == "true":
            same(copies["u"], lattice)
        expected = paths(lattice)
        assert paths(copies["u"]) == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_kaldis_sweep(an4: Path, tmp_path: Path) -> None:
    """Errors at each scale and penalty, by the line that local/score.sh of every recipe has."""
    words = (an4 / "lang/words.txt").read_text().split()
    names = dict(zip(words[1::2], words[::2], strict=True))
    refs = dict(line.split(maxsplit=1) for line in (an4 / "data/test/text").read_text().splitlines())
    for line in (an4 / "decode_dnn/sweep.txt").read_text().splitlines()[::4]:
        lmwt, wip = (field.split("=")[1] for field in line.split()[:2])
        out = shell(tmp_path, f"lattice-scale --inv-acoustic-scale={lmwt} 'ark:gunzip -c $A/decode_dnn/lat.*.gz|' ark:- | "
                    f"lattice-add-penalty --word-ins-penalty={wip} ark:- ark:- | lattice-best-path --word-symbol-table=$A/lang/words.txt "
                    "ark:- ark,t:-".replace("lat.*.gz", "lat.gz"), A=str(an4))
        hyps = {key: [names[w] for w in rest] for key, *rest in map(str.split, out.splitlines())}
        errors = compute_wer({utt: refs[utt].split() for utt in hyps}, hyps)
        expected = int(line.split("[")[1].split("/")[0])
        assert abs(int(str(errors).split("[")[1].split("/")[0]) - expected) <= 1, line  # homophones have equal costs


@pytest.mark.parametrize("seed", range(6))
def test_statistics_of_minimum_bayes_risk(seed: int) -> None:
    """Where a lattice is one bunch of parallel words a place, probabilities and risk are those counted path by path."""
    rng = np.random.default_rng(seed)
    width, length = 3, 3
    cost = rng.uniform(0, 2, (length, width)).astype(np.float32)
    word = np.array([rng.permutation(5)[:width] + 1 for _ in range(length)], np.int32)
    arcs = width * length
    lattice = Lattice(np.minimum(np.arange(length + 2), length) * width, word.ravel(), cost.ravel(), np.zeros(arcs, np.float32),
                      np.repeat(np.arange(1, length + 1, dtype=np.int32), width), np.array([np.inf] * length + [0], np.float32),
                      np.array([np.inf] * length + [0], np.float32), np.concatenate([np.arange(arcs + 1), np.full(length + 1, arcs)]),
                      np.ones(arcs, np.int32))
    found = mbr_decode(lattice, 1.0)
    share = np.exp(-cost) / np.exp(-cost).sum(1, keepdims=True)
    if found.words == word[np.arange(length), share.argmax(1)].tolist():
        np.testing.assert_allclose(found.confidences, share.max(1), rtol=1e-3, atol=0.05)
        assert [round(end - begin, 3) for begin, end in found.times] == [1.0] * length
    for place in found.places:
        assert sum(p for _, p in place) == pytest.approx(1)

    def distance(a: list[int], b: list[int]) -> int:
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            row, before = [i, *row[1:]], row
            for j, y in enumerate(b, 1):
                row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
        return row[-1]

    def risk(words: list[int]) -> float:
        total = 0.0
        for choice in itertools.product(range(width), repeat=length):
            p = np.prod([share[q, i] for q, i in enumerate(choice)])
            total += p * distance(words, [int(word[q, i]) for q, i in enumerate(choice)])
        return float(total)

    assert found.risk >= risk(found.words) - 1e-6  # expected distances are at least the distance expected
    assert risk(found.words) <= risk(best_path(lattice, 1.0).words) + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_pruning_and_combination(seed: int) -> None:
    lattice, other = random_lattice(seed), random_lattice(seed + 100)
    everything = paths(lattice)
    best = min(everything.values())
    kept = paths(pruned(lattice, 1.5, 1.0))
    assert {key for key, cost in everything.items() if cost <= best + 1.49} <= set(kept) <= set(everything)
    both = combined([(lattice, 0.25), (other, 0.75)], 1.0)
    for part, share in ((lattice, 0.25), (other, 0.75)):
        total = -np.logaddexp.reduce([-path.graph - path.acoustic for path in nbest(part, 10**6, 1.0)])
        for key, cost in list(paths(part).items())[:20]:
            assert paths(both)[key] <= cost - total - np.log(share) + 1e-3
    everyone = [path.graph + path.acoustic for path in nbest(both, 10**6, 1.0)]
    assert np.logaddexp.reduce(-np.array(everyone)) == pytest.approx(0, abs=1e-3)


def test_words_in_time(an4: Path, tmp_path: Path) -> None:
    """Aligned lattices have the old paths, and each arc the phones of one whole word, or of one silence."""
    shell(tmp_path, "lattice-scale --acoustic-scale=0.1 ark:$A/decode_dnn/lat.gz ark:scaled; "
          "lattice-align-words $A/lang/phones/word_boundary.int $A/tri3_ali/final.mdl ark:scaled ark:aligned; "
          "lattice-1best ark:aligned ark:- | nbest-to-ctm ark:- 1.ctm; lattice-to-ctm-conf --decode-mbr=false ark:aligned 2.ctm",
          A=str(an4))
    model = read_transition_model(an4 / "tri3_ali/final.mdl")
    position = dict(line.split() for line in (an4 / "lang/phones/word_boundary.int").read_text().splitlines())
    aligned = dict(read_lattices(tmp_path / "aligned"))
    lattices = dict(read_lattices(tmp_path / "scaled"))
    assert list(aligned) == list(lattices)
    for utt, lattice in lattices.items():
        new, old = best_path(aligned[utt], 1.0), best_path(lattice, 1.0)
        np.testing.assert_array_equal(new.transition_ids, old.transition_ids)
        assert new.graph + new.acoustic == pytest.approx(old.graph + old.acoustic, abs=1e-2)
        for a in range(aligned[utt].num_arcs):
            kinds = [position[str(phone)] for phone, _ in itertools.groupby(model.tid2phone[aligned[utt].ids(a)].tolist())]
            word = aligned[utt].word[a]
            assert kinds in (["nonword"], ["singleton"]) or (kinds[0] == "begin" and kinds[-1] == "end"), (utt, word, kinds)
            assert (kinds == ["nonword"]) == (word == 0)
    ctm, with_confidence = ([line.split() for line in (tmp_path / name).read_text().splitlines()] for name in ("1.ctm", "2.ctm"))
    assert len(ctm) == len(with_confidence) and all(0 < float(row[5]) <= 1.01 for row in with_confidence)
    near = sum(abs(float(a[2]) - float(b[2])) < 0.1 for a, b in zip(ctm, with_confidence, strict=True))
    assert near > 0.95 * len(ctm)
    assert shell(tmp_path, "lattice-equivalent ark:scaled ark:scaled && "
                 "lattice-mbr-decode ark:scaled ark,t:- ark:/dev/null | wc -l") == "43\n"


def word_costs(lattice: Lattice) -> dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]]:
    """Graph and acoustic cost and transition-ids of each word sequence's best path."""
    found: dict[tuple[int, ...], tuple[float, float, tuple[int, ...]]] = {}
    for path in nbest(lattice, 10**6, 1.0):
        found.setdefault(tuple(path.words), (path.graph, path.acoustic, tuple(path.transition_ids.tolist())))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_interpolated_lattices_have_the_shared_paths_at_weighted_costs(seed: int) -> None:
    """Against the paths listed one by one. Both lattices have each word sequence once, as decoders write them; one keeps its empty arcs."""
    first, second = (determinize(random_lattice(s), 1.0, 1e6) for s in (seed, seed + 1000))
    one, two = word_costs(first), word_costs(second)
    made = interpolated(first, second, 0.3)
    both = one.keys() & two.keys()
    assert (made is None) == (not both)
    found = word_costs(made) if made is not None else {}
    assert found.keys() == both
    for words in both:
        graph, acoustic, ids = found[words]
        weighted = [0.3 * a + 0.7 * b for a, b in zip(one[words][:2], two[words][:2], strict=True)]
        assert (graph, acoustic) == pytest.approx(weighted, abs=1e-3)
        assert ids == one[words][2]
    with_itself = interpolated(first, first, 0.3)
    assert with_itself is not None and word_costs(with_itself).keys() == one.keys()
    raw = interpolated(random_lattice(seed), second, 0.5)  # with arcs without words, and more than one path of the same words
    cheapest = {words: cost for words, cost in word_costs(random_lattice(seed)).items() if words in two}
    for words, (graph, acoustic, _) in (word_costs(raw) if raw is not None else {}).items():
        assert graph + acoustic == pytest.approx(0.5 * (sum(cheapest[words][:2]) + sum(two[words][:2])), abs=1e-3)
    assert (word_costs(raw).keys() if raw is not None else set()) == cheapest.keys()


def test_a_lattice_without_a_shared_path_stays_as_it_is(tmp_path: Path) -> None:
    lattice = random_lattice(3)
    other = replace(lattice, word=np.where(lattice.word > 0, lattice.word + 100, 0).astype(np.int32))
    write_lattices(tmp_path / "a", [("u", lattice), ("v", lattice), ("w", lattice)])
    write_lattices(tmp_path / "b", [("u", other), ("v", lattice)])
    assert shell(tmp_path, "lattice-interp --alpha=0.25 ark:a ark:b ark:- | lattice-copy-backoff ark:a ark:- ark:c") == ""
    found = dict(read_lattices(tmp_path / "c"))
    assert list(found) == ["u", "v", "w"]
    for utt in found:
        costs, expected = word_costs(found[utt]), word_costs(lattice)
        assert costs.keys() == expected.keys()
        assert all(costs[words][:2] == pytest.approx(expected[words][:2]) and costs[words][2] == expected[words][2] for words in costs)
    write_lattices(tmp_path / "b", [("u", other)])  # none at all
    assert shell(tmp_path, "lattice-interp ark:a ark:b ark:- | lattice-copy-backoff ark:a ark:- ark:d") == ""
    unchanged = dict(read_lattices(tmp_path / "d"))
    assert list(unchanged) == ["u", "v", "w"] and all(word_costs(one).keys() == word_costs(lattice).keys() for one in unchanged.values())
    assert main(["lattice-interp", "--alpha=1.5", "ark:a", "ark:b", "ark:c"]) == 1
