"""Estimate an n-gram language model and write it as ARPA; see utils/train_lm.sh."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.tables import read_lines
from pykaldist.lm.arpa import write_arpa
from pykaldist.lm.score import score
from pykaldist.lm.smoothing import SMOOTHINGS, estimate
from pykaldist.lm.texts import lines_of
from pykaldist.usage import ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", type=Path, help="Kaldi's text: an utterance's name, then its words, on each line")
    parser.add_argument("vocabulary", type=Path, help="lexicon or words.txt: the words are its first column, but for <...>, !... and #...")
    parser.add_argument("lm", type=Path, help="ARPA file to write; gzipped where it ends in .gz")
    parser.add_argument("--order", type=int, default=3, help="longest n-gram (default: 3)")
    parser.add_argument("--smoothing", choices=SMOOTHINGS, default=SMOOTHINGS[0])
    parser.add_argument("--oov", default="", help="word in the place of words outside the vocabulary (default: they are an error)")
    parser.add_argument("--heldout-text", help="Kaldi's text whose perplexity is printed")
    parser.add_argument("--plain", action="store_true", help="the text's lines have no names of utterances")


def run(args: argparse.Namespace) -> None:
    first_column = {line.split()[0] for line in read_lines(args.vocabulary) if line.split()}
    vocabulary = {word for word in first_column if word[0] not in "<!#"}
    if args.oov and args.oov not in first_column:
        raise UserError(f"--oov {args.oov} is not in {args.vocabulary}; add it, or name a word that is.")
    if args.oov:
        vocabulary.add(args.oov)
    num_sentences = total = replaced = 0

    def sentences() -> Iterator[list[str]]:
        nonlocal num_sentences, total, replaced
        for line in lines_of(args.text):
            words = line.split()[0 if args.plain else 1 :]
            num_sentences += 1
            total += len(words)
            if args.oov and not vocabulary.issuperset(words):
                replaced += sum(word not in vocabulary for word in words)
                words = [word if word in vocabulary else args.oov for word in words]
            yield words

    try:
        model = estimate(sentences(), vocabulary, args.order, args.smoothing)
    except UserError as error:
        raise UserError(f"{args.text}: {error}") from error
    deviation = model.worst_sum()
    assert deviation < 1e-6, f"probabilities miss 1 by {deviation}"
    write_arpa(model, args.lm)
    for note in model.notes:
        print(note)
    if replaced:
        print(f"{replaced} of {total} words are outside the vocabulary and stand as {args.oov}")
    ngrams = ", ".join(f"{len(ngrams)} {n}-grams" for n, ngrams in enumerate(model.orders, 1))
    print(ended(f"{model.order}-gram model ({args.smoothing}) of {num_sentences} sentences, {total} words: {ngrams} in {args.lm}"))
    if args.heldout_text:
        found = score(model, [line.split()[0 if args.plain else 1 :] for line in read_lines(args.heldout_text)]).scores()
        print(f"perplexity of {args.heldout_text}: {found.perplexity:.2f} ({found.sentences} sentences, {found.words} words, of which "
              f"{found.oovs} are outside the vocabulary and do not count)")
