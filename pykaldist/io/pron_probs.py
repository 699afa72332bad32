"""Probabilities of pronunciations, and of silence around words, from counts in aligned speech; for utils/dict_dir_add_pronprobs.sh.

A word's pronunciations share its count, with one added to each; then the best one is set to 1. With counts of silence, for a pronunciation
w, s silence, n none, and P(s) the share of silence among all that stands before words (Chen et al., Pronunciation and Silence Probability
Modeling for ASR, Interspeech 2015):

    P(s | w) = (C(w s) + 2 P(s)) / (C(w s) + C(w n) + 2)              silence behind w
    F(s | w) = (C(s w) + 2) / (sum over v of C(v ? w) P(s | v) + 2)   factor on w behind silence; likewise F(n | w) behind a word

They are rounded to two digits, and kept from 0 and, probabilities, from 1, as Kaldi's script does; and as there, a word at a sentence's
begin is expected without silence before it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.dictdir import DictDir
from pykaldist.io.tables import read_lines

PathLike = str | os.PathLike[str]
SMOOTHING = 2.0  # lambda_2 and lambda_3 of the paper
BEGIN, END = "<s>", "</s>"
Entry = tuple[str, ...]  # a word and its phones


def add_pron_probs(source: PathLike, pron_counts: PathLike, target: PathLike, sil_counts: PathLike | None = None,
                   bigram_counts: PathLike | None = None, max_normalize: bool = True) -> dict[str, int]:
    """Write the dictionary directory `target`: `source` with probabilities; returns the numbers of words and pronunciations.

    `pron_counts` has lines `count word phone ...`; `sil_counts` lines of four counts (silence and none before a pronunciation, and behind
    it), `word phone ...`; `bigram_counts` lines of a count and two pronunciations, with tabs between (steps/get_prons.sh writes all).
    Raises UserError for a count of a pronunciation that `source` lacks, and for files of another form.
    """
    source, target = Path(source), Path(target)
    DictDir.read(source)
    lexicon = _lexicon(source)
    probs = pron_probs(lexicon, _counts(pron_counts, set(lexicon), source), max_normalize)
    order = sorted(probs, key=lambda entry: (entry[0].encode(), float(probs[entry]), " ".join(entry[1:]).encode()))
    (target / "lexiconp_silprob.txt").unlink(missing_ok=True)
    (target / "silprob.txt").unlink(missing_ok=True)
    if sil_counts is not None and bigram_counts is not None:
        behind, factors, begin, overall = silence_probs(order, _silence_counts(sil_counts), _bigrams(bigram_counts))
        write_text(target / "silprob.txt", f"{BEGIN} {begin}\n{END}_s {factors[(END,)][0]:.15g}\n{END}_n {factors[(END,)][1]:.15g}\n"
                                           f"overall {overall}\n")
        write_text(target / "lexiconp_silprob.txt", "".join(
            f"{entry[0]} {probs[entry]} {behind[entry]} {_positive(factors[entry][0])} {_positive(factors[entry][1])} "
            f"{' '.join(entry[1:])}\n" for entry in order))
    write_text(target / "lexiconp.txt", "".join(f"{entry[0]} {probs[entry]} {' '.join(entry[1:])}\n" for entry in order))
    write_text(target / "lexicon.txt", "".join(f"{' '.join(entry)}\n" for entry in order))
    for name in ("silence_phones.txt", "nonsilence_phones.txt", "optional_silence.txt", "extra_questions.txt"):
        if (source / name).is_file():
            copy_file(source / name, target / name)
    DictDir.read(target)
    return {"words": len({entry[0] for entry in order}), "pronunciations": len(order)}


def pron_probs(lexicon: Iterable[Entry], counts: Mapping[Entry, float], max_normalize: bool = True) -> dict[Entry, str]:
    """The probability of each pronunciation of a lexicon, as text of six digits; `counts` may lack some."""
    smoothed = {entry: counts.get(entry, 0.0) + 1 for entry in lexicon}
    of_word: dict[str, float] = {}
    for entry, count in smoothed.items():
        of_word[entry[0]] = of_word.get(entry[0], 0.0) + count
    probs = {entry: f"{count / of_word[entry[0]]:.6g}" for entry, count in smoothed.items()}
    if not max_normalize:
        return probs
    best: dict[str, float] = {}
    for entry, text in probs.items():
        best[entry[0]] = max(best.get(entry[0], 0.0), float(text))
    return {entry: f"{float(text) / best[entry[0]]:.6g}" for entry, text in probs.items()}


def silence_probs(lexicon: Iterable[Entry], around: Mapping[Entry, tuple[float, float, float, float]],
                  bigrams: Mapping[tuple[Entry, Entry], float]) -> tuple[dict[Entry, str], dict[Entry, tuple[float, float]], str, str]:
    """The probabilities of silence behind each pronunciation, as text; its factors behind silence and behind a word, and those of `</s>`.

    Then come the probability of silence at the sentence's begin, and that of silence in all. `around` has for a pronunciation, for `<s>`
    and for `</s>` the counts of silence before it, none before it, silence behind it, none behind it.
    """
    none = (0.0, 0.0, 0.0, 0.0)
    silence, words = sum(row[0] for row in around.values()), sum(row[1] for row in around.values())
    overall = f"{silence / (silence + words):.2f}"
    entries = list(lexicon)
    behind: dict[Entry, str] = {}
    for entry in (*entries, (BEGIN,)):
        _, _, quiet, loud = around.get(entry, none)
        quiet, loud = quiet + float(overall) * SMOOTHING, loud + (1 - float(overall)) * SMOOTHING
        behind[entry] = _positive(quiet / (quiet + loud), 0.99)
    expected: dict[Entry, list[float]] = {}
    for (before, entry), count in bigrams.items():
        p = float(behind[before]) if before in behind and before != (BEGIN,) else 0.0
        sums = expected.setdefault(entry, [0.0, 0.0])
        sums[0] += count * p
        sums[1] += count * (1 - p)
    factors = {}
    for entry in (*entries, (END,)):
        before_silence, before_none, _, _ = around.get(entry, none)
        sums = expected.get(entry, [0.0, 0.0])
        factors[entry] = ((before_silence + SMOOTHING) / (sums[0] + SMOOTHING), (before_none + SMOOTHING) / (sums[1] + SMOOTHING))
    return behind, factors, behind.pop((BEGIN,)), overall


def _positive(value: float, most: float = math.inf) -> str:
    """Two digits, at least 0.01 and at most `most`."""
    return f"{min(max(float(f'{value:.2f}'), 0.01), most):.2f}"


def _lexicon(source: Path) -> list[Entry]:
    """The pronunciations of a dictionary directory without their probabilities, each once."""
    plain = (source / "lexicon.txt").is_file()
    rows = [line.split() for line in read_lines(source / ("lexicon.txt" if plain else "lexiconp.txt"))]
    return sorted({tuple(row) if plain else (row[0], *row[2:]) for row in rows})


def _rows(path: PathLike, counts: int, form: str, separator: str | None = None) -> Iterable[tuple[list[float], list[str]]]:
    found = False
    for number, line in enumerate(read_lines(path), 1):
        found, fields = True, line.split(separator)
        try:
            numbers = [float(field) for field in fields[:counts]]
        except ValueError:
            numbers = []
        if len(numbers) < counts or len(fields) <= counts or not all(0 <= value < math.inf for value in numbers):
            raise UserError(f"{path}, line {number}: expected `{form}`, found {line!r}; make it with steps/get_prons.sh.")
        yield numbers, fields[counts:]
    if not found:
        raise UserError(f"{path} is empty; make it with steps/get_prons.sh.")


def _counts(path: PathLike, lexicon: set[Entry], source: Path) -> dict[Entry, float]:
    counts: dict[Entry, float] = {}
    for (count,), entry in _rows(path, 1, "count word phone ..."):
        if entry[0] == "<eps>":
            continue
        if tuple(entry) not in lexicon:
            raise UserError(f"{path}: {source} has no pronunciation `{' '.join(entry)}`; give counts of this lexicon, of phones without "
                            "positions (pron_counts_nowb.txt).")
        counts[tuple(entry)] = counts.get(tuple(entry), 0.0) + count
    return counts


def _silence_counts(path: PathLike) -> dict[Entry, tuple[float, float, float, float]]:
    form = "silence-before none-before silence-behind none-behind word phone ..."
    return {tuple(entry): (row[0], row[1], row[2], row[3]) for row, entry in _rows(path, 4, form)}


def _bigrams(path: PathLike) -> dict[tuple[Entry, Entry], float]:
    counts: dict[tuple[Entry, Entry], float] = {}
    for (count,), pair in _rows(path, 1, "count<tab>word phone ...<tab>word phone ...", "\t"):
        if len(pair) != 2:
            raise UserError(f"{path}: expected a count and two pronunciations with tabs between, found {pair}; make it with "
                            "steps/get_prons.sh.")
        counts[tuple(pair[0].split()), tuple(pair[1].split())] = count
    return counts
