"""Letter-to-sound models by the names of Sequitur's and Phonetisaurus's programs, as recipes call them."""

from __future__ import annotations

import sys

from pykaldist.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykaldist.lm.g2p import LetterToSound, Pronunciation
    from pykaldist.lm.graphones import Entry


def _text(path: str, encoding: str) -> str:
    from pykaldist.lm.texts import read_bytes

    try:
        return read_bytes(path).decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise UserError(f"{path} is no text in {encoding}; give its --encoding.") from error


def _model(path: str) -> LetterToSound:
    from pykaldist.lm.arpa import read_arpa
    from pykaldist.lm.g2p import LetterToSound

    try:
        return LetterToSound(read_arpa(path))
    except UserError as error:
        raise UserError(f"{error} A model of Sequitur or Phonetisaurus itself cannot be read; train one here with g2p.py or "
                        "steps/dict/train_g2p.sh.") from error


def g2p_py(*, train: str = "", devel: str = "", write_model: str = "", model: str = "", ramp_up: bool = False, order: int = 0,
           apply: str = "", test: str = "", variants_mass: float = 0.0, V: float = 0.0, variants_number: int = 0, encoding: str = "utf-8",
           S: bool = False, iterations: int = 10, beam: int = 40) -> int:
    """Train a letter-to-sound model on a lexicon, test it, or give pronunciations to words; called as Sequitur's program.

    Usage: g2p.py [options] --train <lexicon> --write-model <model>
    e.g.: g2p.py --train lexicon.txt --devel 5% --write-model model-1
          g2p.py --model model-1 --ramp-up --train lexicon.txt --devel 5% --write-model model-2
          g2p.py --model model-5 --variants-number 3 -V 0.9 --apply words.txt > lexicon-oov.txt

    The model is an n-gram model of graphones (letters with their phones), as ARPA. A line of what is printed for words is the word and its
    phones, with variants the word, the variant's number from 0, its probability and its phones, tabs between. Words with letters that the
    model does not know are named in the log.

    Options:
      --train: lexicon, a word and its phones on each line
      --devel: lexicon, or share of --train's words such as 5%, that is held out and tested in the end
      --write-model: where the model goes
      --model: model to apply or test; with --ramp-up one whose order is raised by one
      --ramp-up: train a model of a longer n-gram than --model has
      --order: longest n-gram of graphones (default: 1, or one more than --model's)
      --apply: file with a word a line, `-` for standard input
      --test: lexicon to test --model on
      --variants-mass: print variants until their probabilities sum to this
      --V: the same
      --variants-number: print at most as many variants
      --encoding: of all texts (default: utf-8)
      --S: taken, and without effect
      --iterations: of EM, which aligns letters and phones (default: 10)
      --beam: hypotheses of a word that the search keeps (default: 40)
    """
    if bool(train) + bool(apply) + bool(test) != 1:
        raise UserError("give one of --train, --apply and --test.")
    if train and not write_model:
        raise UserError("give --write-model with --train.")
    if ramp_up != bool(train and model):
        raise UserError("--ramp-up raises the order of a --model, and is given with it and --train.")
    if (apply or test) and not model:
        raise UserError("give the --model to use.")
    if train:
        return _train(train, devel, write_model, model, order, encoding, iterations, beam)
    if test:
        from pykaldist.lm.g2p import read_lexicon

        print(_tested(_model(model), read_lexicon(_text(test, encoding), test), beam))
        return 0
    words = [fields[0] for fields in map(str.split, _text(apply, encoding).split("\n")) if fields]
    found = _model(model).pronounce([list(word) for word in words], beam)
    variants, mass = variants_number > 0 or (variants_mass or V) > 0, variants_mass or V or 1.0
    lines = []
    for word, candidates in zip(words, found, strict=True):
        if not candidates:
            print(f"g2p.py: {word}: no pronunciation, for it has letters that the model does not know", file=sys.stderr)
        elif variants:
            lines += [f"{word}\t{i}\t{p:.6f}\t{' '.join(phones)}\n"
                      for i, (p, phones) in enumerate(_variants(candidates, variants_number or len(candidates), mass))]
        else:
            lines.append(f"{word}\t{' '.join(candidates[0][1])}\n")
    _print(lines, encoding)
    return 0


def _print(lines: Sequence[str], encoding: str) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write("".join(lines).encode(encoding))
    sys.stdout.buffer.flush()


def _variants(candidates: Sequence[tuple[float, Pronunciation]], most: int, mass: float) -> list[tuple[float, Pronunciation]]:
    """The first pronunciations, until their probabilities sum to `mass`."""
    chosen: list[tuple[float, Pronunciation]] = []
    for p, phones in candidates[:most]:
        if sum(p for p, _ in chosen) >= mass:
            break
        chosen.append((p, phones))
    return chosen


def _train(lexicon: str, devel: str, path: str, before: str, order: int, encoding: str, iterations: int, beam: int) -> int:
    from pykaldist.lm.arpa import read_arpa, write_arpa
    from pykaldist.lm.g2p import LetterToSound, read_lexicon, sequences
    from pykaldist.lm.g2p import train as trained

    entries = read_lexicon(_text(lexicon, encoding), lexicon)
    entries, held_out = _held_out(entries, devel, encoding)
    order = order or (read_arpa(before).order + 1 if before else 1)
    if order < 1:
        raise UserError(f"--order: expected a number from 1 up, found {order}.")
    tokens, left_out = sequences(entries, iterations)
    model = trained(tokens, order)
    for note in model.notes:
        print(f"g2p.py: {note}", file=sys.stderr)
    if left_out:
        print(f"g2p.py: {left_out} of {len(entries)} words are left out, for their letters and phones cannot be aligned", file=sys.stderr)
    write_arpa(model, path)
    print(f"{model.order}-gram model of {len(model.words) - 2} graphones, from {len(tokens)} pronunciations, in {path}")
    if held_out:
        print("held out: " + _tested(LetterToSound(model), held_out, beam))
    return 0


def _held_out(entries: list[Entry], devel: str, encoding: str) -> tuple[list[Entry], list[Entry]]:
    """The entries to train on, and those held out: a file's, or words drawn by a fixed seed with all of their pronunciations."""
    import numpy as np

    from pykaldist.lm.g2p import read_lexicon

    if not devel:
        return entries, []
    if not devel.endswith("%"):
        return entries, read_lexicon(_text(devel, encoding), devel)
    try:
        share = float(devel[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise UserError(f"--devel: expected a lexicon or a share such as 5%, found {devel!r}.")
    words = sorted({"".join(letters) for letters, _ in entries})
    drawn = {words[i] for i in np.random.default_rng(0).permutation(len(words))[:int(share * len(words))]}
    return ([entry for entry in entries if "".join(entry[0]) not in drawn], [entry for entry in entries if "".join(entry[0]) in drawn])


def _tested(model: LetterToSound, entries: Sequence[Entry], beam: int) -> str:
    """A sentence with a model's errors on a lexicon."""
    from pykaldist.lm.g2p import errors

    references: dict[str, list[Sequence[str]]] = {}
    for letters, phones in entries:
        references.setdefault("".join(letters), []).append(phones)
    found = model.pronounce([list(word) for word in references], beam)
    wrong, total, words = errors(found, list(references.values()))
    return (f"{len(references)} words, {words} wrong ({100 * words / len(references):.2f}%), {total} phones, {wrong} errors "
            f"({100 * wrong / total:.2f}%), {sum(not one for one in found)} words without a pronunciation")


def phonetisaurus_align(*, input: str = "", ofile: str = "", iterations: int = 10) -> int:
    """Align the letters and phones of a lexicon, and write the words as sequences of graphones, one word a line.

    Usage: phonetisaurus-align [options] --input=<lexicon> --ofile=<corpus>
    e.g.: phonetisaurus-align --input=lexicon_tab_separated.txt --ofile=aligned_lexicon.corpus

    Options:
      --input: lexicon, a word and its phones on each line
      --ofile: text of graphones such as `p|h}F`, for n-gram counts
      --iterations: of EM (default: 10)
    """
    from pykaldist.io.atomic import write_text
    from pykaldist.lm.g2p import read_lexicon, sequences

    if not input or not ofile:
        raise UserError("give --input and --ofile.")
    entries = read_lexicon(_text(input, "utf-8"), input)
    tokens, left_out = sequences(entries, iterations)
    write_text(ofile, "".join(" ".join(word) + "\n" for word in tokens))
    print(f"phonetisaurus-align: {len(tokens)} words aligned, {left_out} left out", file=sys.stderr)
    return 0


def phonetisaurus_arpa2wfst(*, lm: str = "", ofile: str = "") -> int:
    """Check an n-gram model of graphones and copy it to where a recipe wants an FST; phonetisaurus-apply reads ARPA here.

    Usage: phonetisaurus-arpa2wfst [options] --lm=<arpa> --ofile=<model>
    e.g.: phonetisaurus-arpa2wfst --lm=aligned_lexicon.arpa --ofile=model.fst

    Options:
      --lm: ARPA file of graphones
      --ofile: where it goes
    """
    from pykaldist.io.atomic import copy_file

    if not lm or not ofile:
        raise UserError("give --lm and --ofile.")
    _model(lm)
    copy_file(lm, ofile)
    print(f"phonetisaurus-arpa2wfst: {ofile} is the ARPA file itself", file=sys.stderr)
    return 0


def phonetisaurus_apply(*, model: str = "", word_list: str = "", nbest: int = 1, thresh: float = 99.0, pmass: float = 0.0, beam: int = 40,
                        accumulate: bool = False, verbose: bool = False, prob: bool = False, lexicon: str = "") -> int:
    """Print pronunciations of words by a letter-to-sound model: the word, with --verbose a score, and phones, tabs between.

    Usage: phonetisaurus-apply [options] --model <model> --word_list <words>
    e.g.: phonetisaurus-apply --pmass 0.9 --nbest 5 --model model.fst --word_list words.txt --accumulate --verbose --prob > lexicon.lex

    Options:
      --model: model of phonetisaurus-arpa2wfst or g2p.py
      --word-list: file with a word a line
      --nbest: most pronunciations of a word (default: 1)
      --thresh: pronunciations go whose probability is smaller than the best by more than this, in natural logarithms (default: 99)
      --pmass: pronunciations until their probabilities sum to this (default: all of --nbest)
      --beam: hypotheses of a word that the search keeps (default: 40)
      --accumulate: the ways of cutting that give one pronunciation are added; they always are
      --verbose: print the score
      --prob: the score is the probability among the pronunciations found, else its negative natural logarithm
      --lexicon: lexicon whose words keep the pronunciations that they have there, before the model's
    """
    import math

    from pykaldist.lm.g2p import read_lexicon

    if not model or not word_list:
        raise UserError("give --model and --word_list.")
    words = [fields[0] for fields in map(str.split, _text(word_list, "utf-8").split("\n")) if fields]
    given: dict[str, list[str]] = {}
    for letters, phones in read_lexicon(_text(lexicon, "utf-8"), lexicon) if lexicon else ():
        given.setdefault("".join(letters), []).append(" ".join(phones))
    lines = []
    for word, candidates in zip(words, _model(model).pronounce([list(word) for word in words], beam), strict=True):
        fine = [(p, phones) for p, phones in candidates if p >= candidates[0][0] * math.exp(-thresh)]
        rows = [(1.0, phones) for phones in given.get(word, ())]
        rows = rows or [(p, " ".join(phones)) for p, phones in _variants(fine, nbest, pmass or 2.0)]
        if not rows:
            print(f"phonetisaurus-apply: {word}: no pronunciation, for it has letters that the model does not know", file=sys.stderr)
        for p, text in rows:
            score = f"{p:.6f}" if prob else f"{-math.log(max(p, 1e-300)):.6f}"
            lines.append(f"{word}\t{score}\t{text}\n" if verbose else f"{word}\t{text}\n")
    _print(lines, "utf-8")
    return 0
