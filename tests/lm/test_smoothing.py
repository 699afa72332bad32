"""n-gram models: sums over every context, a slow reference from the definition, ARPA files that kaldilm reads."""

from __future__ import annotations

import functools
import gzip
import itertools
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import kaldilm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.lm import counts, model, texts
from pykaldist.lm.arpa import write_arpa
from pykaldist.lm.smoothing import FALLBACK_DISCOUNTS, SMOOTHINGS, estimate

WORDS = ["a", "b", "c", "d"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS[:3]), min_size=1, max_size=6), min_size=1, max_size=12)
RICH = [line.split() for line in """the cat sat on the mat|the dog sat on the mat|a cat saw the dog|a dog saw a cat on the mat|the cat ran
the dog ran to the cat|the man saw the dog on the mat|a man sat on a mat|the man ran to the dog|the cat sat|the dog sat|the red mat
the man sat on the dog|a cat sat on a mat|the mat ran to a man|a mat sat on the cat|the man saw a man on a mat|the cat sat on the dog
the cat sat on a man|the old man sat on the mat|the old dog ran to the old cat|a red cat saw the old man|one old red dog
""".replace("\n", "|").split("|") if line]


def histories(vocabulary: list[str], order: int) -> list[tuple[str, ...]]:
    """Every context that a sentence may end in, up to order - 1 words."""
    found = []
    for n in range(order):
        for words in itertools.product(["<s>", *(w for w in vocabulary if w != "</s>")], repeat=n):
            if "<s>" not in words[1:]:
                found.append(words)
    return found


@settings(max_examples=40)
@given(TEXTS, st.integers(1, 4), st.sampled_from(SMOOTHINGS))
def test_every_context_sums_to_one(text: list[list[str]], order: int, smoothing: str) -> None:
    model = estimate(text, WORDS, order, smoothing)
    assert model.worst_sum() < 1e-9
    for history in histories(model.vocabulary, min(order, 3)):
        probabilities = [model.probability(w, history) for w in model.vocabulary]
        assert min(probabilities) > 0
        assert math.fsum(probabilities) == pytest.approx(1, abs=1e-9)


def slow_model(text: list[list[str]], words: list[str], order: int, smoothing: str) -> Callable[[str, tuple[str, ...]], float]:
    """p(word, history) by the recursion, counting in the text each time."""
    sentences = [("<s>", *s, "</s>") for s in text]
    vocabulary = [*words, "</s>"]

    def occurrences(ngram: tuple[str, ...]) -> int:
        return sum(s[i : i + len(ngram)] == ngram for s in sentences for i in range(len(s)))

    def count(ngram: tuple[str, ...]) -> int:
        if smoothing == "witten-bell" or len(ngram) == order or ngram[0] == "<s>":
            return occurrences(ngram)
        return sum(occurrences((before, *ngram)) > 0 for before in ["<s>", *words])

    @functools.cache
    def discounts(n: int) -> tuple[float, ...]:
        ngrams = {s[i : i + n] for s in sentences for i in range(len(s) - n + 1)} - {("<s>",)}
        n_k = [sum(count(g) == k for g in ngrams) for k in range(5)]
        try:
            y = n_k[1] / (n_k[1] + 2 * n_k[2])
            found = 1 - 2 * y * n_k[2] / n_k[1], 2 - 3 * y * n_k[3] / n_k[2], 3 - 4 * y * n_k[4] / n_k[3]
        except ZeroDivisionError:
            return FALLBACK_DISCOUNTS
        return found if n_k[4] and all(0 < d <= k for k, d in enumerate(found, 1)) else FALLBACK_DISCOUNTS

    def p(word: str, history: tuple[str, ...]) -> float:
        lower = p(word, history[1:]) if history else 1 / len(vocabulary)
        counts = {w: count((*history, w)) for w in vocabulary}
        total, kinds = sum(counts.values()), sum(c > 0 for c in counts.values())
        if total == 0:
            return lower
        if smoothing == "witten-bell":
            return (counts[word] + kinds * lower) / (total + kinds)
        d = (0, *discounts(len(history) + 1))
        gamma = sum(d[min(c, 3)] for c in counts.values()) / total
        return (counts[word] - d[min(counts[word], 3)]) / total + gamma * lower

    return p


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_it_is_the_definition(smoothing: str) -> None:
    words = sorted({w for s in RICH for w in s} | {"unseen"})
    model = estimate(RICH, words, 3, smoothing)
    assert not any("2-grams" in note or "3-grams" in note for note in model.notes)  # their discounts are Kneser-Ney's own
    reference = slow_model(RICH, words, 3, smoothing)
    for history in [(), ("the",), ("unseen",), ("<s>",), ("<s>", "the"), ("on", "the"), ("the", "unseen"), ("mat", "cat"), ("cat", "sat")]:
        for word in (*words[:6], "unseen", "</s>"):
            assert model.probability(word, history) == pytest.approx(reference(word, history), rel=1e-9), (history, word)


def test_a_longer_context_is_cut_and_unknown_words_raise() -> None:
    model = estimate(RICH, {w for s in RICH for w in s}, 2)
    assert model.probability("cat", ("on", "the")) == model.probability("cat", ("the",))
    with pytest.raises(KeyError):
        model.probability("zebra", ("the",))


def test_tiny_text_says_what_it_took() -> None:
    model = estimate([["yes"]], ["yes", "no"], 5)
    assert model.order == 3
    assert model.notes[0] == "order 5 lowered to 3, for no sentence is longer"
    assert any("too few for modified Kneser-Ney" in note for note in model.notes)
    assert model.worst_sum() < 1e-12


def test_bad_text_is_refused() -> None:
    with pytest.raises(UserError, match="no words"):
        estimate([[], []], ["a"])
    with pytest.raises(UserError, match="word b of the text is not in the vocabulary"):
        estimate([["a", "b"]], ["a"])
    with pytest.raises(UserError, match="word </s> of the text"):
        estimate([["a", "</s>"]], ["a"])
    with pytest.raises(UserError, match="smoothing"):
        estimate([["a"]], ["a"], 2, "turing")


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_arpa_file_holds_the_model(tmp_path: Path, smoothing: str) -> None:
    words = sorted({w for s in RICH for w in s} | {"unseen"})
    model = estimate(RICH, words, 3, smoothing)
    write_arpa(model, tmp_path / "lm.arpa.gz")
    text = gzip.decompress((tmp_path / "lm.arpa.gz").read_bytes()).decode()
    (tmp_path / "lm.arpa").write_text(text)
    entries = dict(line.split("\t")[1::-1] for line in text.splitlines() if "\t" in line)
    assert float(entries["the cat"]) == pytest.approx(math.log10(model.probability("cat", ("the",))), rel=1e-5)
    assert entries["<s>"] == "-99"
    assert text.splitlines()[1] == f"ngram 1={len(words) + 2}" and text.endswith("\\end\\\n")
    symbols = tmp_path / "words.txt"
    symbols.write_text("".join(f"{w} {i}\n" for i, w in enumerate(["<eps>", *words, "#0", "<s>", "</s>"])))
    fst = kaldilm.arpa2fst(str(tmp_path / "lm.arpa"), disambig_symbol="#0", read_symbol_table=str(symbols), max_order=3)
    assert len(fst.splitlines()) > len(model.orders[2])


@pytest.mark.usefixtures("all_plain_lines")
@pytest.mark.parametrize("packed", [False, True])
def test_the_verb_says_how_far_it_is_and_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                      monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    text = "".join(f"u{number} {' '.join(words)}\n" for number, words in enumerate(RICH)).encode()
    (tmp_path / "text").write_bytes(gzip.compress(text) if packed else text)
    (tmp_path / "words").write_text("".join(f"{word}\n" for word in sorted({word for words in RICH for word in words})))
    monkeypatch.setattr(texts, "_MB", 100)
    monkeypatch.setattr(texts, "_BLOCK", 200)
    assert main(["train-lm", *(str(tmp_path / name) for name in ("text", "words", "lm"))]) == 0
    said = capsys.readouterr()
    size = (tmp_path / "text").stat().st_size // 100
    assert f"reading text: {size}/{size} (100 %) MB" in said.err and "counting n-grams: 4/4 (100 %) block" in said.err
    orders = [int(part.split()[0]) for part in said.out.split(" words: ")[1].split(" in ")[0].split(", ")]
    assert f"estimating probabilities: {sum(orders[1:])}/{sum(orders[1:])} (100 %) n-gram" in said.err
    assert f"writing n-grams: {sum(orders)}/{sum(orders)} (100 %) n-gram" in said.err and "checking probabilities: 2/2" in said.err
    assert f"in {tmp_path / 'lm'}; " in said.out and "MB written" in said.out


def test_script(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("u1 yes no\nu2 no no yes maybe\n")
    (tmp_path / "lexicon.txt").write_text("!SIL SIL\n<UNK> SPN\nno N OW\nno N AH\nyes Y EH S\n")
    monkeypatch.setenv("PATH", f"{root / 'utils'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    script = ["train_lm.sh"]
    arguments = [str(tmp_path / name) for name in ("text", "lexicon.txt", "lm.arpa.gz")]
    failed = subprocess.run(script + arguments, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "word maybe of the text is not in the vocabulary" in failed.stderr
    assert not (tmp_path / "lm.arpa.gz").exists()
    done = subprocess.run([*script, "--oov", "<UNK>", "--order", "2", *arguments], capture_output=True, text=True, check=True)
    assert "1 of 6 words" in done.stdout
    text = gzip.decompress((tmp_path / "lm.arpa.gz").read_bytes()).decode()
    assert "\tyes <UNK>" in text and "!SIL" not in text


@settings(max_examples=30)
@given(TEXTS, st.integers(2, 4), st.sampled_from(SMOOTHINGS), st.integers(1, 7))
def test_blocks_give_what_the_whole_gives(text: list[list[str]], order: int, smoothing: str, block: int) -> None:
    whole = estimate(text, WORDS, order, smoothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "BLOCK", block)
        patch.setattr(model, "_BLOCK", block)
        parts = estimate(text, WORDS, order, smoothing)
        assert parts.worst_sum() == whole.worst_sum()
    for one, other in zip(parts.orders, whole.orders, strict=True):
        for name in ("history", "word", "logprob", "backoff"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
