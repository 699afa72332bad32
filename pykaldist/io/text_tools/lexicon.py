"""The lexicon as text: disambiguation symbols, and the arcs of the lexicon transducer, as `prepare_lang` and Kaldi's tools make them.

The transducer has three states of its own: start 0, loop 1, where words begin, and silence 2, which has an arc with the optional silence
to the loop. Every pronunciation leads from the loop to the loop (without silence behind it) or to state 2 (with).
"""

from __future__ import annotations

import math

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import number, rows_of, text, tool, whole, write_file

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykaldist.io.text_tools.tool import Output

Arc = tuple[int, int, str, str, float]
EPSILON = "<eps>"


def disambiguation(pronunciations: Sequence[tuple[str, ...]], first: int = 1) -> tuple[list[int | None], int]:
    """The number of the disambiguation symbol that each pronunciation needs, None where it needs none, and the highest that is used.

    Those need one that are not unique, or begin another one. Equal ones get different symbols, from `first` up; a symbol behind a
    pronunciation without phones stands nowhere else.
    """
    count: dict[tuple[str, ...], int] = {}
    prefixes: set[tuple[str, ...]] = set()
    for phones in pronunciations:
        count[phones] = count.get(phones, 0) + 1
        prefixes.update(phones[:n] for n in range(len(phones)))
    used: dict[tuple[str, ...], int] = {}
    alone: set[int] = set()  # symbols of pronunciations without phones
    numbers: list[int | None] = []
    highest = first - 1
    for phones in pronunciations:
        if count[phones] == 1 and phones not in prefixes:
            numbers.append(None)
            continue
        if not phones:
            symbol = highest + 1
            alone.add(symbol)
        else:
            symbol = used.get(phones, first - 1) + 1
            while symbol in alone:
                symbol += 1
            used[phones] = symbol
        highest = max(highest, symbol)
        numbers.append(symbol)
    return numbers, highest


def lexicon_arcs(lexicon: Sequence[tuple[str, float, tuple[str, ...]]], sil_prob: float, silence: str | None,
                 silence_disambig: str | None) -> Iterator[Arc]:
    """The arcs (source, destination, phone, word, cost) of the lexicon transducer; without `silence` the loop is state 0.

    The lexicon has words, probabilities and phones. State 0 is the start; the loop (1, or 0 without silence) is final.
    """
    if silence is None:
        loop, following = 0, 1
        ends = [(loop, 0.0)]
    else:
        loop, sil, following = 1, 2, 3
        ends = [(loop, -math.log(1 - sil_prob)), (sil, -math.log(sil_prob))]
        for to, cost in ends:
            yield 0, to, EPSILON, EPSILON, cost
        if silence_disambig is None:
            yield sil, loop, silence, EPSILON, 0.0
        else:
            yield sil, following, silence, EPSILON, 0.0
            yield following, loop, silence_disambig, EPSILON, 0.0
            following += 1
    for word, probability, phones in lexicon:
        here, cost = loop, -math.log(probability)
        for phone in phones[:-1]:
            yield here, following, phone, word, cost
            here, word, cost = following, EPSILON, 0.0
            following += 1
        for to, end_cost in ends:
            yield here, to, phones[-1] if phones else EPSILON, word, cost + end_cost


def silprob_arcs(lexicon: Sequence[tuple[str, float, tuple[float, float, float], tuple[str, ...]]], begin: float, silence: str,
                 silence_disambig: str | None) -> Iterator[Arc]:
    """The arcs (source, destination, phone, word, cost) of a lexicon transducer with probabilities of silence around each word.

    The lexicon has words, probabilities, (probability of silence behind, factor behind silence, factor behind a word) and phones; `begin`
    is the probability of silence at the sentence's begin. State 0 is the start; 1 stands behind a word, 2 behind silence, and both are
    final. The disambiguation symbol is where silence might be and is not.
    """
    def choice(here: int, probability: float) -> Iterator[Arc]:
        yield here, 1, silence_disambig or EPSILON, EPSILON, -math.log(1 - probability)
        yield here, 2, silence, EPSILON, -math.log(probability)

    yield from choice(0, begin)
    following = 3
    for word, probability, (behind, after_silence, after_word), phones in lexicon:
        first, *rest = phones or (EPSILON,)
        for source, factor in ((1, after_word), (2, after_silence)):
            yield source, following, first, word, -math.log(probability) - math.log(factor)
        for phone in rest:
            yield following, following + 1, phone, EPSILON, 0.0
            following += 1
        yield from choice(following, behind)
        following += 1


def _probability(field: bytes, where: str, what: str, most: float = 1.0) -> float:
    value = number(text(field), f"{where}: {what}")
    if not 0 < value <= most:
        raise UserError(f"{where}: {what} is {text(field)}; it must be above 0{f' and at most {most:g}' if most < math.inf else ''}.")
    return value


@tool("""add_lex_disambig.pl [--pron-probs] [--sil-probs] [--first-allowed-disambig <n>] <lexicon> <new-lexicon>
 e.g.: utils/add_lex_disambig.pl --pron-probs lexiconp.txt lexiconp_disambig.txt
Adds the symbols #1, #2, ... (from #<n> up) behind pronunciations that are not unique or begin another one. Prints the highest number that
is used. With --pron-probs the second field of a line is a probability, with --sil-probs three more belong to silence.""",
      "pron-probs sil-probs first-allowed-disambig=", (2, 2))
def add_lex_disambig_pl(options: dict[str, str], lexicon: str, target: str) -> Output:
    """Add disambiguation symbols to a lexicon."""
    head = 1 + ("pron-probs" in options) + 3 * ("sil-probs" in options)
    rows = []
    for fields, _, line in rows_of(lexicon, head, -1, "word " + "number " * (head - 1) + "phone ..."):
        where = f"{lexicon}, line {line}"
        for i, value in enumerate(fields[1:head]):
            shared = i < ("pron-probs" in options) + ("sil-probs" in options)
            _probability(value, where, "a probability" if shared else "a correction", 1.0 if shared else math.inf)
        rows.append([field.decode("latin-1") for field in fields])
    first = whole(options.get("first-allowed-disambig", "1"), "--first-allowed-disambig", 1)
    numbers, highest = disambiguation([tuple(row[head:]) for row in rows], first)
    write_file(target, ("\t".join([*row[:head], " ".join([*row[head:], *([f"#{symbol}"] if symbol else [])])]).encode("latin-1") + b"\n"
                        for row, symbol in zip(rows, numbers, strict=True)))
    return [b"%d\n" % highest]


def _read_lexicon(path: str, with_probabilities: bool) -> list[tuple[str, float, tuple[str, ...]]]:
    """Words, probabilities and phones; in Latin-1, which keeps bytes of any encoding as they are."""
    found = []
    form = "word probability phone ..." if with_probabilities else "word phone ..."
    for fields, _, line in rows_of(path, 1 + with_probabilities, -1, form):
        where = f"{path}, line {line}"
        if fields[0] == EPSILON.encode():
            raise UserError(f"{where}: {EPSILON} is reserved; it must not be in the lexicon.")
        probability = _probability(fields[1], where, "the probability", math.inf) if with_probabilities else 1.0
        phones = tuple(phone.decode("latin-1") for phone in fields[1 + with_probabilities:])
        found.append((fields[0].decode("latin-1"), probability, phones))
    if not found:
        raise UserError(f"{path} is empty; put the pronunciations in it.")
    return found


def _fst_text(lexicon: list[tuple[str, float, tuple[str, ...]]], sil_prob: float, silence: str | None,
              silence_disambig: str | None) -> Iterator[bytes]:
    if not 0 <= sil_prob < 1:
        raise UserError(f"expected a probability of silence from 0 to below 1, found {sil_prob:g}.")
    if sil_prob and not silence:
        raise UserError("a probability of silence needs the silence phone too.")
    silence = silence if sil_prob else None
    for source, target, phone, word, cost in lexicon_arcs(lexicon, sil_prob, silence, silence_disambig):
        yield f"{source}\t{target}\t{phone}\t{word}\t{cost}\n".encode("latin-1")
    yield b"%d\t0.0\n" % (1 if silence else 0)


@tool("""lang/make_lexicon_fst.py [--sil-prob=<p> --sil-phone=<phone> [--sil-disambig=<symbol>]] <lexiconp>
 e.g.: utils/lang/make_lexicon_fst.py --sil-phone=SIL --sil-prob=0.5 --sil-disambig='#4' lexiconp_disambig.txt > L.txt
Prints the lexicon transducer as text for fstcompile, with an optional silence between words where --sil-prob is above 0. Lines of the
lexicon are `word probability phone ...`.""", "sil-prob= sil-phone= sil-disambig=", (1, 1))
def make_lexicon_fst_py(options: dict[str, str], lexiconp: str) -> Output:
    """Print the lexicon transducer."""
    return _fst_text(_read_lexicon(lexiconp, True), number(options.get("sil-prob", "0"), "--sil-prob"), options.get("sil-phone"),
                     options.get("sil-disambig"))


SILPROBS = ("<s>", "</s>_s", "</s>_n", "overall")


def _silprob_text(options: dict[str, str], lexiconp: str, silprob: str) -> Iterator[bytes]:
    silence = options.get("sil-phone")
    if not silence:
        raise UserError("option --sil-phone is needed.")
    probs: dict[str, float] = {}
    for fields, _, line in rows_of(silprob, 2, 2, "name number"):
        name, where = text(fields[0]), f"{silprob}, line {line}"
        if name not in SILPROBS:
            raise UserError(f"{where}: expected one of {', '.join(SILPROBS)}, found {name}.")
        probs[name] = _probability(fields[1], where, name, math.inf if name.startswith("</s>") else 1.0)
    missing = [name for name in SILPROBS if name not in probs]
    if missing:
        raise UserError(f"{silprob} has no line for {missing[0]}; make it with utils/dict_dir_add_pronprobs.sh.")
    lexicon = []
    for fields, _, line in rows_of(lexiconp, 5, -1, "word probability silence-behind factor-behind-silence factor-behind-word phone ..."):
        where = f"{lexiconp}, line {line}"
        if fields[0] == EPSILON.encode():
            raise UserError(f"{where}: {EPSILON} is reserved; it must not be in the lexicon.")
        values = [_probability(field, where, "a probability" if i == 1 else "a number", 1.0 if i == 1 else math.inf)
                  for i, field in enumerate(fields[1:5])]
        if values[1] == 1:
            raise UserError(f"{where}: silence behind the word has the probability 1; it must be below 1.")
        lexicon.append((fields[0].decode("latin-1"), values[0], (values[1], values[2], values[3]),
                        tuple(phone.decode("latin-1") for phone in fields[5:])))
    if probs["<s>"] == 1:
        raise UserError(f"{silprob}: <s> has the probability 1; it must be below 1.")
    for source, target, phone, word, cost in silprob_arcs(lexicon, probs["<s>"], silence, options.get("sil-disambig")):
        end = "" if min(source, target) > 2 else f"\t{cost}"  # inside a word there is no cost
        yield f"{source}\t{target}\t{phone}\t{word}{end}\n".encode("latin-1")
    for state, name in ((2, "</s>_s"), (1, "</s>_n")):
        yield f"{state}\t{-math.log(probs[name])}\n".encode()


@tool("""lang/make_lexicon_fst_silprob.py --sil-phone=<phone> [--sil-disambig=<symbol>] <lexiconp_silprob> <silprob>
 e.g.: utils/lang/make_lexicon_fst_silprob.py --sil-phone=SIL --sil-disambig='#4' lexiconp_silprob_disambig.txt silprob.txt > L.txt
Prints the lexicon transducer with probabilities of silence around each word as text for fstcompile. Lines of the lexicon are `word
probability silence-behind factor-behind-silence factor-behind-word phone ...`; utils/dict_dir_add_pronprobs.sh makes both files.""",
      "sil-phone= sil-disambig=", (2, 2))
def make_lexicon_fst_silprob_py(options: dict[str, str], lexiconp: str, silprob: str) -> Output:
    """Print the lexicon transducer with probabilities of silence."""
    return _silprob_text(options, lexiconp, silprob)


@tool("""make_lexicon_fst_silprob.pl <lexiconp_silprob_disambig> <silprob> <sil-phone> [<sil-disambig>]
 e.g.: utils/make_lexicon_fst_silprob.pl lexiconp_silprob_disambig.txt silprob.txt SIL '#4' > L.txt
As utils/lang/make_lexicon_fst_silprob.py, which has the last two as options.""", "", (3, 4))
def make_lexicon_fst_silprob_pl(options: dict[str, str], lexiconp: str, silprob: str, silence: str, disambig: str = "") -> Output:
    """Print the lexicon transducer with probabilities of silence."""
    return _silprob_text({"sil-phone": silence, "sil-disambig": disambig}, lexiconp, silprob)


@tool("""make_lexicon_fst.pl [--pron-probs] <lexicon> [<sil-prob> <sil-phone> [<sil-disambig>]]
 e.g.: utils/make_lexicon_fst.pl --pron-probs lexiconp_disambig.txt 0.5 SIL '#4' > L.txt
As utils/lang/make_lexicon_fst.py, which has the same as options; without --pron-probs lines of the lexicon are `word phone ...`.""",
      "pron-probs", (1, 4))
def make_lexicon_fst_pl(options: dict[str, str], lexicon: str, sil_prob: str = "0", silence: str | None = None,
                        silence_disambig: str | None = None) -> Output:
    """Print the lexicon transducer."""
    return _fst_text(_read_lexicon(lexicon, "pron-probs" in options), number(sil_prob, "<sil-prob>"), silence, silence_disambig)
