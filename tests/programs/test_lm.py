"""arpa-to-const-arpa and prune-lm, as wsj's recipe calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.decode.const_arpa import build_const_arpa
from pykaldist.lm.arpa import read_arpa, write_arpa
from pykaldist.lm.smoothing import estimate

WORDS = ["<eps>", "a", "b", "c", "#0", "<s>", "</s>", "<UNK>"]


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    sentences = [text.split() for text in ("a b", "b a", "a b c", "c", "a b a b", "b c a") * 3]
    write_arpa(estimate(sentences, ["a", "b", "c", "<UNK>"], 3), tmp_path / "lm.arpa")
    (tmp_path / "words.txt").write_text("".join(f"{word} {i}\n" for i, word in enumerate(WORDS)))
    return tmp_path / "lm.arpa"


def test_a_model_of_numbers_is_that_of_their_words(arpa: Path, tmp_path: Path) -> None:
    symbols = {word: i for i, word in enumerate(WORDS)}
    build_const_arpa(arpa, symbols, symbols["<UNK>"], tmp_path / "G.carpa")
    mapped = [[str(symbols.get(word, word)) for word in line.split()] for line in arpa.read_text().splitlines()]
    (tmp_path / "numbers.arpa").write_text("\n".join("ngram 2=99" if line[:1] == ["ngram"] and line[1][0] == "2" else " ".join(line)
                                                     for line in mapped) + "\n")  # n-grams were left out, and the head does not say so
    assert main(["arpa-to-const-arpa", "--bos-symbol=5", "--eos-symbol=6", "--unk-symbol=7", str(tmp_path / "numbers.arpa"),
                 str(tmp_path / "G2.carpa")]) == 0
    assert (tmp_path / "G2.carpa").read_bytes() == (tmp_path / "G.carpa").read_bytes()


def test_words_that_are_no_numbers_are_refused(arpa: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arpa-to-const-arpa", "--bos-symbol=5", "--eos-symbol=6", str(arpa), str(tmp_path / "G.carpa")]) == 1
    assert "expected a number as word" in capsys.readouterr().err and not (tmp_path / "G.carpa").exists()
    assert main(["arpa-to-const-arpa", str(arpa), str(tmp_path / "G.carpa")]) == 1
    assert "give --bos-symbol and --eos-symbol" in capsys.readouterr().err


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
