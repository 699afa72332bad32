"""Programs on the pronunciations of the words of transcripts: the phones that belong to each word, and its frames."""

from __future__ import annotations

import io
import struct
from typing import IO, Any

import kaldifst
import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.entries import take
from pykaldist.io.openfst import read_fst
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_ints, read_table, write_value
from pykaldist.io.tables import int_vector_bytes
from pykaldist.programs.alignments import write_pairs
from pykaldist.programs.command import say

Prons = list[list[int]]  # of each word its number, and its phones behind it


def phones_to_prons(lexicon: str, word_start: str, word_end: str, phones: str, words: str, prons: str) -> int:
    """Divide phones among the words of transcripts.

    What comes out has for each word its number and its phones: `u 600 4 7 19 ; 512 4 18 ; 0 1 ;`. The word 0 stands before phones that
    belong to no word. The lexicon is an FST whose words begin and end with symbols of their own, among the phones.

    Usage: phones-to-prons <L_align.fst> <word-start> <word-end> <phones-rspecifier> <words-rspecifier> <prons-wspecifier>
    e.g.: ali-to-phones final.mdl ark:1.ali ark:- | phones-to-prons L_align.fst 46 47 ark:- "ark:sym2int.pl -f 2- words.txt text|" ark:prons
    """
    begin, end = _symbol("<word-start>", word_start), _symbol("<word-end>", word_end)
    fst = read_fst(lexicon)
    kaldifst.arcsort(fst, "ilabel")
    texts = RandomAccess(words, read_ints)
    missing = 0
    with TableWriter(prons, write_prons) as out:
        for utt, sequence in read_table(phones, read_ints):
            text = texts.get(utt)
            if text is None:
                say(f"WARNING: {utt} has no transcript")
                missing += 1
                continue
            found = _divided(fst, sequence.tolist(), text.tolist(), begin, end)
            if found is None:
                say(f"WARNING: {utt}: the lexicon does not give its {len(sequence)} phones to its {len(text)} words")
                missing += 1
                continue
            out.write(utt, found)
    say(f"phones of {out.count} utterances divided, {missing} left out")
    return 0 if out.count else 1


def _symbol(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise UserError(f"{name} {text}: expected the symbol's number in phones.txt, above 0.")
    return int(text)


def _divided(lexicon: Any, phones: list[int], words: list[int], begin: int, end: int) -> Prons | None:
    """The phones of each word, by the best path of the lexicon; None where there is none."""
    acceptor = _linear(phones)
    for state in range(len(phones) + 1):  # the symbols may stand anywhere
        for symbol in (begin, end):
            acceptor.add_arc(state, kaldifst.StdArc(symbol, symbol, 0.0, state))
    path = kaldifst.shortest_path(kaldifst.compose(kaldifst.compose(acceptor, lexicon), _linear(words)))
    if path.start < 0:
        return None
    _, symbols, left, _ = kaldifst.get_linear_symbol_sequence(path)
    prons: Prons = []
    inside, rest = False, list(reversed(left))
    for symbol in symbols:
        if symbol in (begin, end):
            if inside == (symbol == begin):
                return None  # a word within a word, or the end of none
            inside = symbol == begin
            if inside:
                if not rest:
                    return None
                prons.append([rest.pop()])
        elif inside:
            prons[-1].append(symbol)
        else:
            prons.append([0, symbol])
    return None if inside or rest else prons


def _linear(labels: list[int]) -> Any:
    """The acceptor of one sequence."""
    fst = kaldifst.StdVectorFst()
    fst.add_state()
    fst.start = 0
    for number, label in enumerate(labels):
        fst.add_state()
        fst.add_arc(number, kaldifst.StdArc(label, label, 0.0, number + 1))
    fst.set_final(len(labels), 0.0)
    return fst


def prons_to_wordali(prons: str, lengths: str, target: str, *, per_frame: bool = False) -> int:
    """Make the frames of each word of its phones and their lengths.

    What comes out has pairs of word and frames: `u 600 22 ; 1028 32 ; 0 41`. The word 0 stands for frames that belong to no word.

    Usage: prons-to-wordali [options] <prons-rspecifier> <phone-lengths-rspecifier> <wordali-wspecifier>
    e.g.: prons-to-wordali ark:prons "ark:ali-to-phones --write-lengths=true final.mdl ark:1.ali ark,t:- |" ark,t:wordali

    Options:
      --per-frame: a word a frame (default: false)
    """
    phones = RandomAccess(lengths, _read_pairs)
    missing = 0
    with TableWriter(target, _write_frames if per_frame else write_pairs) as out:
        for utt, words in read_table(prons, read_prons):
            of_phones = phones.get(utt)
            own = [phone for word in words for phone in word[1:]]
            if of_phones is None or [pair[0] for pair in of_phones] != own:
                say(f"WARNING: {utt} has {'no lengths of its phones' if of_phones is None else 'other phones than those with lengths'}")
                missing += 1
                continue
            frames = iter(pair[1] for pair in of_phones)
            out.write(utt, [(word[0], sum(next(frames) for _ in word[1:])) for word in words])
    say(f"words of {out.count} utterances have frames, {missing} left out")
    return 0 if out.count else 1


def _write_frames(stream: IO[bytes], pairs: list[tuple[int, int]], binary: bool) -> None:
    words, frames = np.array(pairs, np.int32).reshape(-1, 2).T
    write_value(stream, np.repeat(words, frames), binary)


def write_prons(stream: IO[bytes], value: Prons, binary: bool) -> None:
    """Write lists of integers."""
    if binary:
        stream.write(b"\0B\4" + struct.pack("<i", len(value)) + b"".join(int_vector_bytes(np.array(own, np.int32)) for own in value))
    else:
        stream.write(("".join(" ".join(map(str, own)) + " ; " for own in value) + "\n").encode())


def read_prons(stream: io.BufferedReader) -> Prons:
    """Read lists of integers; raises one of archive.DAMAGE."""
    if stream.peek(1)[:1] != b"\0":
        return [[int(word) for word in part.split()] for part in stream.readline().split(b";") if part.strip()]
    _head(stream)
    return [[_integer(stream) for _ in range(_integer(stream))] for _ in range(_integer(stream))]


def _read_pairs(stream: io.BufferedReader) -> Prons:
    """Read pairs of integers; raises one of archive.DAMAGE."""
    if stream.peek(1)[:1] != b"\0":
        return read_prons(stream)
    _head(stream)
    return [[_integer(stream), _integer(stream)] for _ in range(_integer(stream))]


def _head(stream: io.BufferedReader) -> None:
    if take(stream, 2) != b"\0B":
        raise ValueError("expected lists of integers")


def _integer(stream: io.BufferedReader) -> int:
    if take(stream, 1) != b"\4":
        raise ValueError("expected an integer")
    return int(struct.unpack("<i", take(stream, 4))[0])
