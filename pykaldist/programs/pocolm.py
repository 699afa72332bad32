"""The programs of pocolm, as recipes call them: a mixture of the models of several texts, weighted on a held-out one."""

from __future__ import annotations

import sys

from pykaldist.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pykaldist.lm.model import NgramModel

_UNK = "<unk>"
_MODEL, _WEIGHTS = "lm.arpa.gz", "weights"


def train_lm_py(text_dir: str, order: str, work_dir: str, lm_dir: str = "", *, wordlist: str = "", num_words: int = 0,
                num_splits: int = 1, warm_start_ratio: int = 10, min_counts: str = "", limit_unk_history: bool = False,
                fold_dev_into: str = "", bypass_metaparameter_optimization: str = "", max_memory: str = "", cleanup: bool = True,
                keep_int_data: bool = False) -> int:
    """Estimate a language model of several texts: a modified Kneser-Ney model of each, mixed with the weights that suit dev.txt best.

    Usage: train_lm.py [options] <text-dir> <order> <work-dir> [<lm-dir>]
    e.g.: train_lm.py --wordlist=words --fold-dev-into=ted --min-counts='train=2 ted=1' data/text 4 work lm_4.pocolm

    <text-dir> has a file NAME.txt or NAME.txt.gz of each text, one of which is dev. Without <lm-dir> the model is in
    <work-dir>/<wordlist>_<order>.pocolm. pocolm's own estimate differs: it mixes discounted counts.

    Options:
      --wordlist: file with a word a line; other words become <unk>, which is one, too
      --num-words: instead of a list, how many of the most frequent words
      --num-splits: taken, and without effect, for everything is done in memory
      --warm-start-ratio: likewise
      --min-counts: n-grams of three words and more with smaller counts are left out, of all texts (`2`) or by name (`a=2 b=1`)
      --limit-unk-history: histories do not reach back before <unk> (default: false)
      --fold-dev-into: the text that dev.txt is added to when the weights are found
      --bypass-metaparameter-optimization: taken, and without effect: pocolm's parameters are none here, the weights are found always
      --max-memory: taken, and without effect
      --cleanup: likewise
      --keep-int-data: likewise
    """
    import collections
    from pathlib import Path

    import numpy as np

    from pykaldist.io.atomic import write_text
    from pykaldist.lm.mix import best_weights, mix
    from pykaldist.lm.score import score
    from pykaldist.lm.smoothing import word_list
    from pykaldist.lm.texts import read_text

    if not order.isdigit() or int(order) < 1:
        raise UserError(f"the order is a number from 1 up, found {order!r}.")
    texts = {path.name.removesuffix(".gz").removesuffix(".txt"): [line.split() for line in read_text(path).split("\n") if line.strip()]
             for path in sorted(Path(text_dir).iterdir()) if path.name.endswith((".txt", ".txt.gz"))}
    dev = texts.pop("dev", None)
    if not dev or not texts:
        raise UserError(f"{text_dir}: expected dev.txt and another NAME.txt or NAME.txt.gz with words, "
                        f"found {', '.join(texts) or 'no other'}.")
    if bool(wordlist) == (num_words > 0):
        raise UserError("give --wordlist or --num-words.")
    if fold_dev_into and fold_dev_into not in texts:
        raise UserError(f"--fold-dev-into: there is no text {fold_dev_into}; there are {', '.join(texts)}.")
    counted = collections.Counter(word for sentences in texts.values() for sentence in sentences for word in sentence)
    known = read_text(wordlist).split() if wordlist else [word for word, _ in counted.most_common(num_words)]
    words = word_list([*known, _UNK])
    least = _least(min_counts, list(texts))
    models = {name: _model(words, sentences, int(order), least[name], limit_unk_history) for name, sentences in texts.items()}
    unk = words.index(_UNK)
    table = np.exp(np.stack([score(model, dev, unk).logprob for model in models.values()], 1))
    weights, steps = best_weights(table)
    print(f"train_lm.py: weights of {', '.join(f'{name} {weight:.4f}' for name, weight in zip(texts, weights, strict=True))}; "
          f"perplexity {steps[-1][1]:.4f} on dev", file=sys.stderr)
    if fold_dev_into:
        models[fold_dev_into] = _model(words, texts[fold_dev_into] + dev, int(order), least[fold_dev_into], limit_unk_history)
    for name, model in models.items():
        for note in model.notes:
            print(f"train_lm.py: {name}: {note}", file=sys.stderr)
    made = mix(list(models.values()), weights.tolist()) if len(models) > 1 else next(iter(models.values()))
    folder = Path(lm_dir or Path(work_dir) / f"{Path(wordlist).name or num_words}_{order}.pocolm")
    _write(folder, made)
    write_text(folder / _WEIGHTS, "".join(f"{name} {weight:.6f}\n" for name, weight in zip(texts, weights, strict=True)))
    print(f"train_lm.py: {sum(map(len, made.orders))} n-grams in {folder}", file=sys.stderr)
    return 0


def _least(min_counts: str, names: Sequence[str]) -> dict[str, int]:
    """The least counts of each text's n-grams of three words and more."""
    fields = [field.rpartition("=")[::2] for field in min_counts.split()]
    if any(not count.isdigit() or name not in ("", *names) for name, count in fields):
        raise UserError(f"--min-counts: expected a number, or NAME=NUMBER for texts of {', '.join(names)}, found {min_counts!r}.")
    given = {name: int(count) for name, count in fields}
    return {name: given.get(name, given.get("", 1)) for name in names}


def _model(words: list[str], sentences: Sequence[Sequence[str]], order: int, least: int, limit_unk_history: bool) -> NgramModel:
    from pykaldist.lm.counts import count_ngrams, numbers_of
    from pykaldist.lm.smoothing import Smoothing, of_counts

    unk = words.index(_UNK)
    numbers = numbers_of(sentences, {word: i for i, word in enumerate(words)}, unk)
    counts = count_ngrams(numbers, len(words), order, unk if limit_unk_history else -2)
    return of_counts(words, counts, [Smoothing(min_count=1 if n < 3 else least) for n in range(1, order + 1)])


def _write(folder: Path, model: NgramModel) -> None:
    from pykaldist.io.atomic import write_text
    from pykaldist.lm.arpa import write_arpa

    write_arpa(model, folder / _MODEL)
    write_text(folder / "words.txt", "".join(f"{word} {i}\n" for i, word in enumerate(["<eps>", *model.words])))


def _read(folder: str) -> NgramModel:
    from pathlib import Path

    from pykaldist.lm.arpa import read_arpa

    if not (Path(folder) / _MODEL).is_file():
        raise UserError(f"{folder} is no language model's directory (it has no {_MODEL}); make it with train_lm.py or prune_lm_dir.py.")
    return read_arpa(Path(folder) / _MODEL)


def get_data_prob_py(text: str, lm_dir: str, *, max_memory: str = "") -> int:
    """Print to the log how probable a text is to a language model: the logarithm for each word, and the perplexity.

    Usage: get_data_prob.py [options] <text> <lm-dir>
    e.g.: get_data_prob.py dev.txt lm_4.pocolm 2>&1 | grep -F '[perplexity'

    Options:
      --max-memory: taken, and without effect
    """
    import math

    from pykaldist.lm.score import score
    from pykaldist.lm.texts import read_text

    model = _read(lm_dir)
    sentences = [line.split() for line in read_text(text).split("\n") if line.strip()]
    if not sentences:
        raise UserError(f"{text} has no words.")
    logprob = score(model, sentences, model.index.get(_UNK, -1)).logprob
    mean = float(logprob.mean())
    print(f"get_data_prob.py: log-prob of {text} given model {lm_dir} was {mean:.10g} per word "
          f"[perplexity = {math.exp(min(-mean, 700)):.10g}] over {len(logprob):.1f} words.", file=sys.stderr)
    return 0


def format_arpa_lm_py(lm_dir: str, *, max_memory: str = "", temp_dir: str = "") -> int:
    """Print a language model as ARPA.

    Usage: format_arpa_lm.py [options] <lm-dir>
    e.g.: format_arpa_lm.py lm_4.pocolm | gzip -c > 4gram.arpa.gz

    Options:
      --max-memory: taken, and without effect
      --temp-dir: likewise
    """
    from pykaldist.lm.arpa import write_arpa

    write_arpa(_read(lm_dir), "-")
    return 0


def prune_lm_dir_py(lm_dir: str, pruned_dir: str, *, target_num_ngrams: int = 0, final_threshold: float = 0.0,
                    initial_threshold: float = 0.0, max_memory: str = "", cleanup: bool = True) -> int:
    """Prune a language model by relative entropy, to a number of n-grams or by a threshold.

    Usage: prune_lm_dir.py [options] <lm-dir> <pruned-lm-dir>
    e.g.: prune_lm_dir.py --target-num-ngrams=2000000 --initial-threshold=0.02 lm_4.pocolm lm_4_small

    Options:
      --target-num-ngrams: most n-grams that are left, words included
      --final-threshold: instead, n-grams go whose loss raises the perplexity by less than this share
      --initial-threshold: taken, and without effect: the threshold for a number of n-grams is found by bisection
      --max-memory: taken, and without effect
      --cleanup: likewise
    """
    from pathlib import Path

    from pykaldist.lm.prune import prune, prune_to

    if (target_num_ngrams > 0) == (final_threshold > 0):
        raise UserError("give --target-num-ngrams or --final-threshold.")
    before = _read(lm_dir)
    after, threshold = prune_to(before, target_num_ngrams) if target_num_ngrams else (prune(before, final_threshold), final_threshold)
    _write(Path(pruned_dir), after)
    print(f"prune_lm_dir.py: {sum(map(len, after.orders))} of {sum(map(len, before.orders))} n-grams in {pruned_dir} "
          f"(threshold {threshold:.3g})", file=sys.stderr)
    return 0
