"""Lattices aligned on words by a lexicon: beside the alignment by word positions, and beside all ways to divide a path."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.paths import best_path, nbest
from pykaldist.decode.word_align import LexiconAligner, WordAligner
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments

Rows = list[tuple[int, int, list[int]]]


@pytest.fixture
def an4(golden: Path) -> Path:
    return golden / "an4_kaldi"


def arcs(lattice: Lattice) -> Counter[tuple]:
    """Each arc's word, transition-ids and costs."""
    costs = np.round(np.stack([lattice.graph, lattice.acoustic], 1), 3).tolist()
    return Counter((int(lattice.word[a]), tuple(lattice.ids(a).tolist()), *costs[a]) for a in range(lattice.num_arcs))


def test_both_ways_give_the_same(an4: Path, tmp_path: Path) -> None:
    """Phones of AN4's lang directory say where words begin and end, and so does its lexicon."""
    model = read_transition_model(an4 / "tri3_ali/final.mdl")
    position = dict(line.split() for line in (an4 / "lang/phones/word_boundary.int").read_text().splitlines())
    by_position = WordAligner({int(phone): kind for phone, kind in position.items()}, model)
    lattices = list(itertools.islice(read_lattices(an4 / "decode_dnn/lat.gz"), 12))
    write_lattices(tmp_path / "some", lattices)
    assert main(["lattice-align-words-lexicon", str(an4 / "lang/phones/align_lexicon.int"), str(an4 / "tri3_ali/final.mdl"),
                 f"ark:{tmp_path}/some", f"ark:{tmp_path}/aligned"]) == 0
    by_lexicon = dict(read_lattices(tmp_path / "aligned"))
    for utt, lattice in lattices:
        found, expected = by_lexicon[utt], by_position.align(lattice)
        assert found.num_states == expected.num_states and arcs(found) == arcs(expected), utt


def divisions(phones: list[int], words: list[int], rows: Rows) -> Counter[tuple]:
    """All ways to divide phones into words and silences: labels with their numbers of phones."""
    if not phones and not words:
        return Counter({(): 1})
    found: Counter[tuple] = Counter()
    for word, label, spelt in rows:
        if spelt and phones[: len(spelt)] == spelt and (word == 0 or words[:1] == [word]):
            for rest, count in divisions(phones[len(spelt) :], words[word != 0 :], rows).items():
                found[((label, len(spelt)), *rest)] += count
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_way_to_divide_a_path_is_there_once(an4: Path, seed: int) -> None:
    """Random lexicons, of which words begin other words, and words that come early or late beside their phones."""
    rng = np.random.default_rng(seed)
    model = read_transition_model(an4 / "tri3_ali/final.mdl")
    _, lattice = next(iter(read_lattices(an4 / "decode_dnn/lat.gz")))
    path = best_path(lattice, 1.0).transition_ids
    found_phones, _, lengths = phone_segments(path, model)
    phones, tids = found_phones[:7].tolist(), path[: lengths[:7].sum()].tolist()
    rows: dict[tuple[int, tuple[int, ...]], int] = {(0, (phones[0],)): 0}
    for _ in range(25):
        begin = rng.integers(7)
        rows.setdefault((int(rng.integers(4)), tuple(phones[begin : begin + rng.integers(1, 4)])), int(rng.integers(100, 200)))
    lexicon = [(word, label, list(spelt)) for (word, spelt), label in rows.items()]
    words = rng.integers(1, 4, rng.integers(1, 5)).tolist()
    expected = divisions(phones, words, lexicon)
    aligner = LexiconAligner(lexicon, model)
    if not expected:
        with pytest.raises(UserError, match="no path of it has phones that spell its words"):
            aligner.align(path_lattice(tids, words, rng))
        return
    found: Counter[tuple] = Counter()
    for way in nbest(aligner.align(path_lattice(tids, words, rng)), 10**5, 1.0):
        assert way.transition_ids.tolist() == tids
        found[tuple(way.words)] += 1
    assert found == sum((Counter({tuple(label for label, _ in way if label): count}) for way, count in expected.items()), Counter())


def path_lattice(tids: list[int], words: list[int], rng: np.random.Generator) -> Lattice:
    """A lattice of one path, whose words stand at random arcs, in their order."""
    rows = [(tid, 0) for tid in tids]
    for place, word in reversed(list(zip(sorted(rng.integers(0, len(tids), len(words))), words, strict=True))):
        rows.insert(place, (0, word))
    number = len(rows)
    offset = np.minimum(np.arange(number + 2), number)
    return Lattice.from_arcs(offset, np.array([tid for tid, _ in rows], np.int32), np.array([word for _, word in rows], np.int32),
                             rng.random(number, np.float32), rng.random(number, np.float32), np.arange(1, number + 1, dtype=np.int32),
                             np.append(np.full(number, np.inf), 0.0))
