"""KenLM's programs, as far as recipes call them: modified Kneser-Ney models as ARPA."""

from __future__ import annotations

import sys

from pykaldist.errors import UserError


def lmplz(*prune_further: str, order: int = 0, o: int = 0, text: str = "-", arpa: str = "-", prune: str = "", limit_vocab_file: str = "",
          discount_fallback: bool = False, interpolate_unigrams: int = 1, skip_symbols: bool = False, memory: str = "", S: str = "",
          temp_prefix: str = "", T: str = "", verbose_header: bool = False) -> int:
    """Estimate an interpolated modified Kneser-Ney model of a text, one sentence a line, and write it as ARPA.

    Usage: lmplz [options] [<n> ...]
    e.g.: lmplz -o 4 -S 50% --prune 0 0 1 --limit_vocab_file words < text > lm.arpa

    The words after `--prune 0` are further numbers of --prune. Everything is counted in memory.

    Options:
      --order: longest n-gram; there is no default
      --o: the same
      --text: the text, gzipped or not (default: standard input)
      --arpa: ARPA file to write (default: standard output)
      --prune: for each order the greatest count of n-grams that are left out; the last number goes for all longer ones (default: 0)
      --limit-vocab-file: file with the words of the vocabulary; words of the text that are not among them become <unk>
      --discount-fallback: taken, and without effect; where counts are too few for their discounts, 0.5, 1 and 1.5 are taken always
      --interpolate-unigrams: 1; there is no other way here
      --skip-symbols: <s>, </s> and <unk> in the text count as white space, else they are an error
      --memory: taken, and without effect
      --S: the same
      --temp-prefix: taken, and without effect
      --T: the same
      --verbose-header: taken, and without effect
    """
    from pykaldist.lm.arpa import write_arpa
    from pykaldist.lm.counts import count_ngrams, numbers_of
    from pykaldist.lm.smoothing import Smoothing, of_counts, word_list
    from pykaldist.lm.texts import read_text

    order = order or o
    if order < 1:
        raise UserError("give the longest n-gram with -o.")
    if interpolate_unigrams != 1:
        raise UserError("--interpolate_unigrams is 1 here.")
    cuts = [*(prune.split() or ["0"]), *prune_further]
    if not all(cut.isdigit() for cut in cuts) or len(cuts) > order or sorted(map(int, cuts)) != list(map(int, cuts)):
        raise UserError(f"--prune: expected at most {order} numbers, none smaller than the one before, found {' '.join(cuts)}.")
    least = [int(cut) + 1 for cut in [*cuts, *[cuts[-1]] * (order - len(cuts))]]
    sentences = [line.split() for line in read_text(text).split("\n") if line.strip()]
    special = {"<s>", "</s>", "<unk>"}
    for i, sentence in enumerate(sentences):
        if special.intersection(sentence):
            if not skip_symbols:
                raise UserError(f"{text}: sentence {i + 1} has {min(special.intersection(sentence))}; take it out, or give --skip_symbols.")
            sentences[i] = [word for word in sentence if word not in special]
    seen = {word for sentence in sentences for word in sentence}
    if limit_vocab_file:
        seen &= set(read_text(limit_vocab_file).split())
    words = word_list({*seen, "<unk>"})
    index = {word: i for i, word in enumerate(words)}
    counts = count_ngrams(numbers_of(sentences, index, index["<unk>"]), len(words), order)
    model = of_counts(words, counts, [Smoothing(min_count=cut, by_text=True) for cut in least])
    for note in model.notes:
        print(f"lmplz: {note}", file=sys.stderr)
    write_arpa(model, arpa)
    return 0


def build_binary(*arguments: str, q: int = 0, b: int = 0, a: int = 0, S: str = "", T: str = "", s: bool = False, i: bool = False) -> int:
    """Copy an ARPA file to where a recipe wants KenLM's binary form, which is not made here; KenLM's programs read both.

    Usage: build_binary [options] [<type>] <arpa> <output>
    e.g.: build_binary -q 8 -b 8 trie lm.arpa G.trie

    The type is trie or probing. The ARPA file is checked.

    Options:
      --q: taken, and without effect, as are all others
      --b: likewise
      --a: likewise
      --S: likewise
      --T: likewise
      --s: likewise
      --i: likewise
    """
    from pykaldist.io.atomic import atomic_open
    from pykaldist.lm.arpa import read_arpa
    from pykaldist.lm.texts import read_bytes

    if len(arguments) not in (2, 3) or (len(arguments) == 3 and arguments[0] not in ("trie", "probing")):
        raise UserError("expected [trie|probing] <arpa> <output>.")
    arpa, output = arguments[-2:]
    read_arpa(arpa)
    with atomic_open(output, "wb") as stream:
        stream.write(read_bytes(arpa))
    print(f"build_binary: {output} is the ARPA file itself: KenLM's binary form is not made here", file=sys.stderr)
    return 0
