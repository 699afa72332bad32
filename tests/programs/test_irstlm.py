"""prune-lm, as wsj's recipe calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.lm.arpa import read_arpa, write_arpa
from pykaldist.lm.smoothing import estimate


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    sentences = [text.split() for text in ("a b", "b a", "a b c", "c", "a b a b", "b c a") * 3]
    write_arpa(estimate(sentences, ["a", "b", "c", "<UNK>"], 3), tmp_path / "lm.arpa")
    return tmp_path / "lm.arpa"


def test_pruning_takes_all_nothing_or_some(arpa: Path, tmp_path: Path) -> None:
    counts = {}
    for threshold in ("0", "1e-2", "1e9"):
        assert main(["prune-lm", f"--threshold={threshold}", str(arpa), str(tmp_path / "pruned.arpa")]) == 0
        model = read_arpa(tmp_path / "pruned.arpa")
        assert model.worst_sum() < 1e-5
        counts[threshold] = [len(order) for order in model.orders]
    whole = [len(order) for order in read_arpa(arpa).orders]
    assert counts["1e9"][0] == whole[0] and sum(counts["1e9"]) == whole[0]
    assert sum(counts["1e9"]) < sum(counts["1e-2"]) < sum(counts["0"])
