"""Decoding of a list of utterances: several threads give what one gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.lazy_graph import BiglmDecoder
from pykaldist.decode.lookahead import LookaheadDecoder
from pykaldist.decode.run import decode_all
from pykaldist.errors import UserError
from pykaldist.io.fst_compose import compose

from .test_lazy_graph import BACKOFF, PHONES, TID2PDF, bigram, unigram
from .test_lazy_graph import lexicon as lexicon_first
from .test_lookahead import halves

OPTIONS = DecoderOptions(beam=20.0, lattice_beam=2.0, acwt=0.5)  # lattices of noise are dense


def decoder(kind: str) -> LatticeDecoder:
    rng = np.random.default_rng(5)
    if kind == "lookahead":
        return LookaheadDecoder(halves(rng)[0], TID2PDF, OPTIONS)
    words, small, large = lexicon_first(rng), unigram(rng), bigram(rng)
    graph = compose(words, small)
    return LatticeDecoder(graph, TID2PDF, OPTIONS) if kind == "static" else BiglmDecoder(graph, TID2PDF, OPTIONS, small, large, BACKOFF)


@pytest.mark.parametrize("kind", ["static", "biglm", "lookahead"])
def test_threads_over_one_graph_give_what_one_thread_gives(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    items = [(f"utt{n:02d}", rng.normal(0, 3, (int(rng.integers(5, 40)), PHONES)).astype(np.float32)) for n in range(30)]
    first, said = decoder(kind), []
    for name, others in (("one", []), ("three", [first.another(), first.another()])):
        summary = decode_all(first, items, tmp_path / name, others=others)
        assert summary.done == len(items)
        said.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("utt")])
    assert said[0] == said[1]
    one, three = (dict(read_lattices(tmp_path / name)) for name in ("one", "three"))
    assert list(one) == list(three)
    for utt, lattice in one.items():
        for name in ("offset", "word", "target", "transition_ids"):
            np.testing.assert_array_equal(getattr(lattice, name), getattr(three[utt], name))
        np.testing.assert_allclose(lattice.graph, three[utt].graph, atol=1e-5)


def test_an_utterance_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    first = decoder("static")
    items = [("good", np.zeros((5, PHONES), np.float32)), ("bad", np.full((5, PHONES), np.nan, np.float32))]
    for others in ([], [first.another()]):
        with pytest.raises(UserError, match=r"utterance bad: .*not finite"):
            decode_all(first, items, tmp_path / "lat", others=others)
