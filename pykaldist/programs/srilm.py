"""SRILM's programs, as far as recipes call them: n-gram models estimated, mixed, pruned, cut and scored."""

from __future__ import annotations

import re
import sys

from pykaldist.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykaldist.lm.model import NgramModel
    from pykaldist.lm.smoothing import Smoothing

_METHODS = {"kndiscount": "kneser-ney", "ukndiscount": "unmodified-kneser-ney", "wbdiscount": "witten-bell"}


def _sentences(path: str) -> list[list[str]]:
    """The words of each line of a text that is not empty; gzipped or not, `-` is standard input."""
    from pykaldist.lm.texts import read_text

    return [words for words in map(str.split, read_text(path).split("\n")) if words]


def _words(path: str) -> list[str]:
    return [words[0] for words in _sentences(path)]


def ngram_count(*, text: str = "", lm: str = "", order: int = 3, vocab: str = "", limit_vocab: bool = False, unk: bool = False,
                map_unk: str = "<unk>", kndiscount: bool = False, ukndiscount: bool = False, wbdiscount: bool = False,
                cdiscount: float = -1.0, addsmooth: float = -1.0, interpolate: bool = False, prune: float = 0.0, minprune: int = 2,
                tolower: bool = False, write_vocab: str = "", sort: bool = False, debug: int = 0, **others: str) -> int:
    """Estimate a back-off n-gram model of a text, one sentence a line, and write it as ARPA.

    Usage: ngram-count [options] -text <text> -lm <arpa>
    e.g.: ngram-count -text train.gz -order 3 -limit-vocab -vocab wordlist -unk -map-unk "<unk>" -kndiscount -interpolate -lm lm.gz

    Without a discounting option Good-Turing is used, without -interpolate models back off. An order's own option comes before that of all.
    Files are read gzipped or not and written gzipped where their names end in .gz; `-` is standard input and output.

    Options:
      --text: the text
      --lm: ARPA file to write
      --order: longest n-gram (default: 3)
      --vocab: file with a word a line; others are left out with the n-grams around them, or become -map-unk's (-unk)
      --limit-vocab: counts of other words are not kept in memory; they never are here
      --unk: words outside of the vocabulary are a word of the model
      --map-unk: the name of this word (default: <unk>)
      --kndiscount: modified Kneser-Ney
      --ukndiscount: Kneser-Ney with one discount
      --wbdiscount: Witten-Bell
      --cdiscount: absolute discounting by this number
      --addsmooth: additive smoothing with this number
      --interpolate: higher orders are interpolated with lower ones
      --prune: leave out n-grams whose loss raises the perplexity by less than this share
      --minprune: shortest n-grams that -prune leaves out (default: 2)
      --tolower: words become lower case
      --write-vocab: file to write the words to
      --sort: n-grams are written sorted; they always are
      --debug: taken, and without effect
      -kndiscount<n>, -ukndiscount<n>, -wbdiscount<n>, -cdiscount<n> <d>, -addsmooth<n> <a>, -interpolate<n>: the same, for n words
      -gt<n>min <c>: n-grams of n words with a smaller count are left out (default: 1, from 3 words on 2)
      -gt<n>max <c>: greatest count that Good-Turing discounts (default: 7, of single words 1)
    """
    from pykaldist.lm import smoothing
    from pykaldist.lm.arpa import write_arpa
    from pykaldist.lm.counts import count_ngrams, numbers_of
    from pykaldist.lm.prune import prune as pruned

    if not text or not (lm or write_vocab):
        raise UserError("give -text and -lm; counts alone are not written.")
    if order < 1:
        raise UserError(f"-order: expected a number from 1 up, found {order}.")
    options = {name: value for name, value in (("kndiscount", kndiscount), ("ukndiscount", ukndiscount), ("wbdiscount", wbdiscount),
                                               ("cdiscount", cdiscount >= 0 and cdiscount), ("addsmooth", addsmooth >= 0 and addsmooth))
               if value is not False}
    smoothings = [_smoothing(n, options, interpolate, others) for n in range(1, order + 1)]
    _refuse([name for name in others if not re.fullmatch(r"(u?kn|wb|c)discount\d|addsmooth\d|interpolate\d|gt\dm(in|ax)", name)],
            "ngram-count")
    sentences = _sentences(text)
    if tolower:
        sentences = [[word.lower() for word in sentence] for sentence in sentences]
    known = set(_words(vocab)) if vocab else {word for sentence in sentences for word in sentence}
    words = smoothing.word_list({word.lower() for word in known} if tolower and vocab else known | ({map_unk} if unk else set()))
    if unk:
        words = smoothing.word_list({*words, map_unk})
    index = {word: i for i, word in enumerate(words)}
    numbers = numbers_of(sentences, index, index[map_unk] if unk else -1)
    model = smoothing.of_counts(words, count_ngrams(numbers, len(words), order), smoothings, unigrams="leftover")
    if prune > 0:
        model = pruned(model, prune, minprune)
    for note in model.notes:
        print(f"ngram-count: {note}", file=sys.stderr)
    if write_vocab:
        from pykaldist.io.atomic import write_text

        write_text(write_vocab, "".join(f"{word}\n" for word in model.words))
    if lm:
        write_arpa(model, lm)
    return 0


def _refuse(names: Sequence[str], program: str) -> None:
    if names:
        raise UserError(f"there is no option -{names[0].replace('_', '-')}; {program} --help lists the options.")


def _smoothing(n: int, options: dict[str, float | bool], interpolate: bool, others: dict[str, str]) -> Smoothing:
    """How n-grams of n words are smoothed: by the options of this order, else by those of all."""
    from pykaldist.lm.smoothing import Smoothing

    own: dict[str, float | bool] = {}
    for name in ("kndiscount", "ukndiscount", "wbdiscount", "cdiscount", "addsmooth"):
        if f"{name}{n}" in others:
            own[name] = True if name in _METHODS else _number(f"{name}{n}", others)
    chosen = own or options
    if len(chosen) > 1:
        raise UserError(f"{' and '.join('-' + name for name in chosen)} are both given for n-grams of {n} words; choose one.")
    least = int(_number(f"gt{n}min", others, 1 if n < 3 else 2))
    lower = interpolate or f"interpolate{n}" in others
    if not chosen:
        return Smoothing("good-turing", False, least, _number(f"gt{n}max", others, 1 if n == 1 else 7))
    name, value = next(iter(chosen.items()))
    if name in _METHODS:
        return Smoothing(_METHODS[name], lower, least)
    return Smoothing("absolute" if name == "cdiscount" else "additive", lower and name == "cdiscount", least, float(value))


def _number(name: str, others: dict[str, str], default: float = -1.0) -> float:
    try:
        return float(others.get(name, default))
    except ValueError as error:
        raise UserError(f"-{name}: expected a number, found {others[name]!r}.") from error


def ngram(*, lm: str = "", order: int = 3, ppl: str = "", debug: int = 0, unk: bool = False, map_unk: str = "<unk>", vocab: str = "",
          limit_vocab: bool = False, tolower: bool = False, mix_lm: str = "", prune: float = 0.0, minprune: int = 2,
          prune_lowprobs: bool = False, renorm: bool = False, write_lm: str = "", write_vocab: str = "", **others: str) -> int:
    """Read an n-gram model; mix it with others, prune it, write it, or say how probable a text is to it.

    Usage: ngram [options] -lm <arpa>
    e.g.: ngram -order 3 -unk -lm lm.gz -ppl heldout -debug 2
          ngram -order 3 -lm a.gz -lambda 0.7 -mix-lm b.gz -unk -write-lm ab.gz

    Longer n-grams than -order are left out, as SRILM does it. What is asked for is done in the order cut, mix, prune, write, score.

    Options:
      --lm: ARPA file
      --order: longest n-grams that are read (default: 3)
      --ppl: text, one sentence a line, whose log-probability and perplexity are printed; ppl1 counts no ends of sentences
      --debug: 1 prints each sentence's, 2 each word's probability, too (default: 0)
      --unk: words outside of the vocabulary count as -map-unk's; else they are OOVs, which do not count
      --map-unk: the name of this word (default: <unk>)
      --vocab: file with a word a line, for -limit-vocab
      --limit-vocab: n-grams with other words than those of -vocab are left out; see -renorm
      --tolower: words become lower case
      --mix-lm: ARPA file to mix with
      --prune: leave out n-grams whose loss raises the perplexity by less than this share
      --minprune: shortest n-grams that -prune leaves out (default: 2)
      --prune-lowprobs: leave out n-grams that backing off makes more probable
      --renorm: compute back-off weights anew
      --write-lm: ARPA file to write; gzipped where its name ends in .gz
      --write-vocab: file to write the words to
      -lambda <weight>: weight of -lm in the mixture (default: 0.5); -mix-lm has what is left
      -mix-lm<n> <arpa>, -mix-lambda<n> <weight>: further models from n = 2 on, and their weights
    """
    from pykaldist.lm import prune as pruning
    from pykaldist.lm.arpa import read_arpa, write_arpa
    from pykaldist.lm.mix import mix

    _refuse([name for name in others if name != "lambda" and not re.fullmatch(r"mix_(lm|lambda)\d", name)], "ngram")
    if not lm:
        raise UserError("give a model with -lm.")
    if bool(vocab) != limit_vocab:
        raise UserError("-vocab and -limit-vocab are given together.")
    paths = [lm, *([mix_lm] if mix_lm else []), *(others[name] for name in sorted(others) if name.startswith("mix_lm"))]
    further = [_number(f"mix_lambda{name[-1]}", others, 0.0) for name in sorted(others) if name.startswith("mix_lm")]
    models = [read_arpa(path, order, tolower) for path in paths]
    if limit_vocab:
        words = _words(vocab)
        models = [pruning.limited(model, [word.lower() for word in words] if tolower else words) for model in models]
    model = models[0]
    if len(models) > 1:
        if not mix_lm:
            raise UserError("-mix-lm2 and others come after -mix-lm.")
        first = _number("lambda", others, 0.5)
        model = mix(models, [first, 1 - first - sum(further), *further])
    if prune > 0:
        model = pruning.prune(model, prune, minprune)
    if prune_lowprobs:
        model = pruning.prune_low(model)
    if renorm:
        model = model.normalised()
    if write_vocab:
        from pykaldist.io.atomic import write_text

        write_text(write_vocab, "".join(f"{word}\n" for word in model.words))
    if write_lm:
        write_arpa(model, write_lm)
    if ppl:
        _print_scores(model, ppl, debug, model.index.get(map_unk, -1) if unk else -1, tolower)
    return 0


def _print_scores(model: NgramModel, path: str, debug: int, unk: int, tolower: bool) -> None:
    from pykaldist.lm.score import details, score

    sentences = _sentences(path)
    if tolower:
        sentences = [[word.lower() for word in sentence] for sentence in sentences]
    scored = score(model, sentences, unk)
    if debug > 0:
        sys.stdout.writelines(line + "\n" for line in details(model, sentences, scored, debug > 1))
    print(scored.scores().lines(f"file {path}: "))


def compute_best_mix(*ppl: str, precision: float = 0.001) -> int:
    """Compute the weights by which a mixture of models makes a text most probable, from what `ngram -debug 2 -ppl <text>` printed for each.

    Usage: compute-best-mix [options] <ppl> <ppl> [<ppl> ...]
    e.g.: compute-best-mix a.ppl2 b.ppl2 | grep 'best lambda'

    An argument `precision=0.01` is the option, as in SRILM. Words that no model knows are left out.

    Options:
      --precision: the weights are found when none moves by more (default: 0.001)
    """
    import numpy as np

    from pykaldist.lm.mix import best_weights

    files = []
    for argument in ppl:
        if argument.startswith("precision="):
            precision = _number("precision", {"precision": argument.partition("=")[2]})
        else:
            files.append(argument)
    if len(files) < 2:
        raise UserError("give what `ngram -debug 2 -ppl` printed of two models or more.")
    columns = [_probabilities(path) for path in files]
    for path, column in zip(files, columns, strict=True):
        if len(column) != len(columns[0]):
            raise UserError(f"{path} has the probabilities of {len(column)} words, {files[0]} of {len(columns[0])}; "
                            "they have to be of one text.")
    table = np.array(columns).T
    weights, steps = best_weights(table, precision)
    for i, (before, perplexity) in enumerate(steps, 1):
        print(f"iteration {i}, lambda = ({' '.join(f'{weight:.6g}' for weight in before)}), ppl = {perplexity:.6g}")
    print(f"{int((table.sum(1) > 0).sum())} non-oov words, best lambda ({' '.join(f'{weight:.6g}' for weight in weights)})")
    return 0


def _probabilities(path: str) -> list[float]:
    from pykaldist.lm.texts import read_text

    found = re.findall(r"^\tp\( .* \) \t?= +\[[^\]]*\] (\S+) \[", read_text(path), re.MULTILINE)
    if not found:
        raise UserError(f"{path} has no words' probabilities; make it with `ngram -debug 2 -ppl <text>`.")
    return [float(text) for text in found]


def change_lm_vocab(*, vocab: str = "", lm: str = "", write_lm: str = "-", order: int = 3, subset: bool = False,
                    prune_lowprobs: bool = False, tolower: bool = False, unk: bool = False) -> int:
    """Cut an ARPA language model to a vocabulary; what is left is normalised again.

    Usage: change-lm-vocab [options] -vocab <words> -lm <arpa> -write-lm <arpa>
    e.g.: change-lm-vocab -vocab words.txt -lm lm.gz -write-lm - -subset -prune-lowprobs -unk -tolower -order 3

    Options:
      --vocab: file with a word a line; only the first of several on a line counts
      --lm: ARPA file, gzipped or not
      --write-lm: where to write; gzipped where its name ends in .gz (default: standard output)
      --order: longest n-grams that are kept (default: 3, as in SRILM)
      --subset: words of the vocabulary that the model lacks stay outside; needed, for no others are made here
      --prune-lowprobs: leave out n-grams that backing off makes more probable
      --tolower: write all words in lower case
      --unk: <unk> is a word
    """
    from pykaldist.lm.arpa import read_arpa, write_arpa
    from pykaldist.lm.prune import change_vocab

    if not vocab or not lm:
        raise UserError("give -vocab and -lm.")
    if not subset or order < 1:
        raise UserError("give -subset and an -order of at least 1; a model cannot be given words that it does not have.")
    words = {word.lower() if tolower else word for word in _words(vocab)}
    before = read_arpa(lm, 0, tolower)
    after = change_vocab(before, words if unk else words - {"<unk>"}, order, prune_lowprobs)
    write_arpa(after, write_lm)
    counts = " + ".join(f"{len(new)} of {len(old)}" for new, old in zip(after.orders, before.orders, strict=False))
    print(f"{write_lm}: {counts} n-grams", file=sys.stderr)
    return 0
