"""Tools for grammars: transducers as text, and ARPA language models."""

from __future__ import annotations

import math

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import lines_of, rows_of, shown, text, tool, warn

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykaldist.io.text_tools.tool import Output

_EPSILON, _BACKOFF = b"<eps>", b"#0"
_SENTENCE = (b"<s>", b"</s>")


@tool("""eps2disambig.pl [<fst-text>] > <fst-text>
 e.g.: fstprint G.fst | utils/eps2disambig.pl
Writes #0 for <eps> where it is an input symbol, as back-off arcs take. A grammar with the word #0 is an error.""", arguments=(0, 1))
def eps2disambig_pl(options: dict[str, str], path: str = "-") -> Output:
    """Write #0 for input epsilons."""
    return _with_backoff(path)


def _with_backoff(path: str) -> Iterator[bytes]:
    for number, line in enumerate(lines_of(path), 1):
        fields = line.split()
        if _BACKOFF in fields[1:]:
            raise UserError(f"{shown(path)}, line {number}: the grammar has the word #0, which is reserved for back-off arcs.")
        if len(fields) > 3 and fields[2] == _EPSILON:
            at = line.index(_EPSILON)
            line = line[:at] + _BACKOFF + line[at + len(_EPSILON):]
        yield line


@tool("""s2eps.pl [<fst-text>] > <fst-text>
 e.g.: fstprint G.fst | utils/eps2disambig.pl | utils/s2eps.pl
Writes <eps> for <s> and </s>, which are no words of a transcript.""", arguments=(0, 1))
def s2eps_pl(options: dict[str, str], path: str = "-") -> Output:
    """Write epsilon for the ends of sentences."""
    return _without_ends(path)


def _without_ends(path: str) -> Iterator[bytes]:
    for line in lines_of(path):
        fields = line.split()
        if len(fields) >= 4:
            fields[2:4] = [_EPSILON if field in _SENTENCE else field for field in fields[2:4]]
        yield b"\t".join(fields) + b"\n"


@tool("""remove_oovs.pl <oov-list> [<fst-text>] > <fst-text>
 e.g.: arpa2fst lm.arpa | fstprint | utils/remove_oovs.pl oovs.txt
Leaves out the arcs that have one of the words, a line of <oov-list> each, as input or output symbol.""")
def remove_oovs_pl(options: dict[str, str], oovs: str, path: str = "-") -> Output:
    """Leave out arcs with unknown words."""
    return _without({fields[0] for fields, _, _ in rows_of(oovs, 1, 1, "word")}, path)


def _without(unknown: set[bytes], path: str) -> Iterator[bytes]:
    removed = 0
    for line in lines_of(path):
        fields = line.split()
        if unknown.isdisjoint(fields[2:4]):
            yield line
        else:
            removed += 1
    warn(f"removed {removed} lines.")


@tool("""find_arpa_oovs.pl <words.txt> [<lm.arpa>] > <oov-list>
 e.g.: gunzip -c lm.arpa.gz | utils/find_arpa_oovs.pl data/lang/words.txt > oovs.txt
Prints the words of an ARPA language model that are not in words.txt, but for <s> and </s>.""")
def find_arpa_oovs_pl(options: dict[str, str], words: str, arpa: str = "-") -> Output:
    """Find the unknown words of an ARPA language model."""
    known = {symbol for (symbol, _), _, _ in rows_of(words, 2, 2, "word number")}
    found: dict[bytes, None] = {}
    section = -1  # -1 before \data\, 0 in it, then the order of the n-grams
    for number, line in enumerate(lines_of(arpa), 1):
        fields = line.split()
        if fields == [b"\\data\\"]:
            section = 0
        elif section >= 0 and fields and fields[0].startswith(b"\\") and fields[0].endswith(b"-grams:"):
            section += 1
            if section > 1:
                break  # all words are unigrams
        elif section == 1 and fields and fields[0] != b"\\end\\":
            if len(fields) < 2:
                raise UserError(f"{shown(arpa)}, line {number}: expected `log-probability word [back-off]`, found {text(line)!r}.")
            found[fields[1]] = None
    if section < 0:
        raise UserError(f"{shown(arpa)} is no ARPA language model: it has no \\data\\ section; make one with utils/train_lm.sh.")
    for _ in lines_of("-") if arpa == "-" else ():
        pass  # so that what writes the pipe is not ended in the midst of it
    return (word + b"\n" for word in found if word not in known and word not in _SENTENCE)


@tool("""make_unigram_grammar.pl < <transcripts> > <fst-text>
 e.g.: cut -d ' ' -f 2- data/train/text | utils/sym2int.pl data/lang/words.txt | utils/make_unigram_grammar.pl | fstcompile > G.fst
Prints a loop over the words of transcripts with their relative frequencies, the sentence's end among them.""", arguments=(0, 0))
def make_unigram_grammar_pl(options: dict[str, str]) -> Output:
    """Print a unigram grammar."""
    count: dict[bytes, int] = {}
    sentences = 0
    for line in lines_of():
        sentences += 1
        for word in line.split():
            count[word] = count.get(word, 0) + 1
    if not sentences:
        raise UserError("standard input has no transcripts.")
    total = sum(count.values()) + sentences
    arcs = [b"0\t0\t%s\t%s\t%s\n" % (word, word, f"{-math.log(n / total):.15g}".encode()) for word, n in count.items()]
    return [*arcs, f"0\t{-math.log(sentences / total):.15g}\n".encode()]


@tool("""map_arpa_lm.pl [--sym2int true|false] <words.txt> < <lm.arpa> > <mapped-lm.arpa>
 e.g.: gunzip -c lm.arpa.gz | utils/map_arpa_lm.pl data/lang/words.txt > lm.int.arpa
Writes the words of an ARPA language model as their numbers (with --sym2int false numbers as words). N-grams with unknown words are left
out; the counts at the head stay, as Kaldi leaves them.""", "sym2int=", (1, 1))
def map_arpa_lm_pl(options: dict[str, str], words: str) -> Output:
    """Write the words of an ARPA language model as numbers."""
    if (way := options.get("sym2int", "true")) not in ("true", "false"):
        raise UserError(f"option --sym2int takes true or false, found {way!r}.")
    to: dict[bytes, bytes] = {}
    for (symbol, number), _, line in rows_of(words, 2, 2, "word number"):
        key, value = (symbol, number) if way == "true" else (number, symbol)
        if key in to:
            raise UserError(f"{words}, line {line}: {text(key)} is listed twice; keep one.")
        to[key] = value
    return _mapped_arpa(to)


def _mapped_arpa(to: dict[bytes, bytes]) -> Iterator[bytes]:
    order, left_out = -1, 0
    for number, line in enumerate(lines_of(), 1):
        line = line.rstrip(b"\n")
        fields = line.split()
        if line == b"\\data\\":
            order = 0
        elif order < 0:
            continue
        elif line.startswith(b"\\") and line.endswith(b"-grams:"):
            order += 1
        elif order > 0 and fields and line != b"\\end\\":
            if len(fields) not in (order + 1, order + 2):
                raise UserError(f"standard input, line {number}: expected a {order}-gram, found {text(line)!r}.")
            if any(word not in to for word in fields[1:order + 1]):
                left_out += 1
                continue
            line = fields[0] + b"\t" + b" ".join([*(to[word] for word in fields[1:order + 1]), *fields[order + 1:]])
        elif order == 0 and not fields:
            continue
        yield line + b"\n"
    if order < 0:
        raise UserError("standard input is no ARPA language model: it has no \\data\\ section; make one with utils/train_lm.sh.")
    if left_out:
        warn(f"WARNING: left out {left_out} n-grams with words that the table lacks.")
