"""The programs of kaldi_lm, as recipes call them: a language model of a text in which short codes stand for words, and its pruning."""

from __future__ import annotations

import sys

from pykaldist.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CODES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TYPES = {"3gram": (3, 1), "3gram-mincount": (3, 2), "4gram": (4, 1), "4gram-mincount": (4, 2)}  # order, least count from 3 words on
_WORDS = "num_words"  # the file that says how many words the model was made of


def get_word_map_pl(bos: str, eos: str, unk: str, words: str = "-") -> int:
    """Print a map from words to codes, which are short for the words that come first.

    Usage: get_word_map.pl [options] <bos> <eos> <unk> [<words>]
    e.g.: awk '{print $2}' unigram.counts | get_word_map.pl "<s>" "</s>" "<UNK>" > word_map

    <words> has a word a line, the most frequent first (default: standard input). The three special words have the first codes.
    """
    from pykaldist.lm.texts import read_text

    listed = dict.fromkeys([bos, eos, unk, *read_text(words).split()])
    sys.stdout.writelines(f"{word} {code}\n" for word, code in zip(listed, _codes(), strict=False))
    return 0


def _codes() -> Iterator[str]:
    from itertools import count, product

    for length in count(1):
        yield from map("".join, product(_CODES, repeat=length))


def train_lm_sh(folder: str, *, arpa: bool = False, lmtype: str = "3gram", heldout_sent: int = 10000) -> int:
    """Estimate an interpolated modified Kneser-Ney model of a folder's text, and print its perplexity on the first sentences.

    Usage: train_lm.sh [options] <dir>
    e.g.: train_lm.sh --arpa --lmtype 3gram-mincount data/local/lm

    <dir> has train.gz, whose words are codes, and word_map (word, code), which get_word_map.pl makes. <dir>/<lmtype>/lm_unpruned.gz is the
    model. The sentences that are held out are at most a tenth of all; the model is made of the others.

    Options:
      --arpa: the model is an ARPA file; it always is
      --lmtype: 3gram, 4gram, or with -mincount, which leaves out n-grams of three words and more with a count of one (default: 3gram)
      --heldout-sent: how many sentences are held out (default: 10000)
    """
    import math
    from pathlib import Path

    from pykaldist.io.atomic import write_text
    from pykaldist.lm.arpa import write_arpa
    from pykaldist.lm.counts import count_ngrams, numbers_of
    from pykaldist.lm.score import score
    from pykaldist.lm.smoothing import Smoothing, of_counts, word_list
    from pykaldist.lm.texts import read_text

    if lmtype not in _TYPES:
        raise UserError(f"--lmtype is one of {', '.join(_TYPES)}, found {lmtype!r}.")
    order, least = _TYPES[lmtype]
    rows = [line.split() for line in read_text(Path(folder) / "word_map").splitlines() if line.strip()]
    if len(rows) < 4 or any(len(row) != 2 for row in rows):
        raise UserError(f"{folder}/word_map: expected lines of a word and its code; make it with get_word_map.pl.")
    of_code = {code: word for word, code in rows}
    sentences = [line.split() for line in read_text(Path(folder) / "train.gz").split("\n") if line.strip()]
    if strange := {code for sentence in sentences for code in sentence} - of_code.keys():
        raise UserError(f"{folder}/train.gz has {min(strange)!r}, which is no code of {folder}/word_map; make both of one text "
                        "(get_word_map.pl, train_lm.sh).")
    sentences = [[of_code[code] for code in sentence] for sentence in sentences]
    heldout = min(heldout_sent, len(sentences) // 10)
    if heldout < heldout_sent:
        print(f"{len(sentences)} sentences are few: {heldout} of them are held out, instead of {heldout_sent}")
    words = word_list(word for word, _ in rows)
    numbers = numbers_of(sentences[heldout:], {word: i for i, word in enumerate(words)})
    smoothings = [Smoothing(min_count=1 if n < 3 else least) for n in range(1, order + 1)]
    model = of_counts(words, count_ngrams(numbers, len(words), order), smoothings)
    for note in model.notes:
        print(note)
    target = Path(folder) / lmtype
    write_arpa(model, target / "lm_unpruned.gz")
    write_text(target / _WORDS, f"{int((numbers != 0).sum())}\n")
    if heldout:
        scored = score(model, sentences[:heldout])
        unk = scored.numbers == model.index[rows[2][0]]
        perplexity = math.exp(-scored.logprob[~unk].mean())
        print(f"Perplexity over {int((~unk).sum()):.6f} words (excluding {int(unk.sum()):.6f} OOVs) is {perplexity:.6f}")
    print(f"{sum(map(len, model.orders))} n-grams in {target}/lm_unpruned.gz")
    return 0


def prune_lm_sh(threshold: str, folder: str, *, arpa: bool = False) -> int:
    """Leave out the n-grams of a model of train_lm.sh whose loss costs the text it was made of less log-likelihood than a threshold.

    Usage: prune_lm.sh [options] <threshold> <dir>
    e.g.: prune_lm.sh --arpa 6.0 data/local/lm/3gram-mincount

    Writes <dir>/lm_pr<threshold>.gz. The loss is the relative entropy of the two models times the number of words of the text.

    Options:
      --arpa: the model is an ARPA file; it always is
    """
    import math
    from pathlib import Path

    from pykaldist.lm.arpa import read_arpa, write_arpa
    from pykaldist.lm.prune import prune

    source, words = Path(folder) / "lm_unpruned.gz", Path(folder) / _WORDS
    if not source.is_file() or not words.is_file():
        raise UserError(f"{folder} has no lm_unpruned.gz and {_WORDS}; make them with train_lm.sh.")
    try:
        loss, count = float(threshold), int(words.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"expected a number as threshold and in {words}, found {threshold!r} and "
                        f"{words.read_text(encoding='utf-8').strip()!r}.") from error
    before = read_arpa(source)
    after = prune(before, math.expm1(loss / count))
    write_arpa(after, Path(folder) / f"lm_pr{threshold}.gz")
    print(f"{sum(map(len, after.orders))} of {sum(map(len, before.orders))} n-grams in {folder}/lm_pr{threshold}.gz")
    return 0
