"""Language models that are cut to a vocabulary are still distributions, and say the same of what is left, up to a factor a context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.lm.arpa import read_arpa, write_arpa
from pykaldist.lm.prune import change_vocab
from pykaldist.lm.smoothing import estimate

SENTENCES = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=6), min_size=3, max_size=25)


@settings(max_examples=30)
@given(SENTENCES, st.sets(st.sampled_from("abcde"), min_size=1), st.integers(1, 3), st.booleans())
def test_what_is_left_is_a_distribution(sentences: list[list[str]], words: set[str], order: int, prune: bool) -> None:
    model = estimate(sentences, "abcde", 3, "witten-bell")
    cut = change_vocab(model, words, order, prune)
    assert cut.worst_sum() < 1e-9 and cut.order <= order and set(cut.vocabulary) == {*words, "</s>"}
    for n in range(1, cut.order + 1):
        assert set(cut.texts(n)) <= set(model.texts(n))
        before = dict(zip(model.texts(n), np.exp(model.orders[n - 1].logprob), strict=True))
        for text, p in zip(cut.texts(n), np.exp(cut.orders[n - 1].logprob), strict=True):
            assert p >= (1 - 1e-6) * before[text] or prune
    if words == set("abcde") and not prune and order == 3:
        assert all(cut.probability(word, "ab") == pytest.approx(model.probability(word, "ab"), rel=1e-3) for word in cut.vocabulary)


def test_the_command_takes_srilms_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_arpa(estimate([["A", "B"], ["A", "C"], ["B"]], ["A", "B", "C"], 2, "witten-bell"), tmp_path / "lm.gz")
    (tmp_path / "words").write_text("<eps> 0\nA 1\nB 2\nnew 3\n")
    options = ["-vocab", str(tmp_path / "words"), "-lm", str(tmp_path / "lm.gz"), "-write-lm", str(tmp_path / "out")]
    assert main(["change-lm-vocab", *options, "-subset", "-prune-lowprobs", "-unk", "-tolower", "-order", "2"]) == 0
    assert set(read_arpa(tmp_path / "out").vocabulary) == {"a", "b", "</s>"}
    assert main(["change-lm-vocab", *options, "-unk"]) == 1 and "give -subset" in capsys.readouterr().err
    with pytest.raises(UserError, match="has no word of the vocabulary"):
        change_vocab(read_arpa(tmp_path / "lm.gz"), ["x"])
