"""Filters of aligned words, which recipes call in their scoring: what went wrong in each utterance, for each speaker, with each word."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pykaldist.errors import UserError
from pykaldist.io.tables import read_map
from pykaldist.score.details import operation_details, speaker_details, utterance_details

PARTS = ("ref", "hyp")


def _lines() -> Iterator[tuple[int, list[str]]]:
    """The fields of each line of standard input that has some, with the line's number."""
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    yield from ((number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.split())


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def _wrong(number: int, expected: str, found: str, cure: str) -> UserError:
    return UserError(f"standard input, line {number}: expected {expected}, found {found}; {cure}")


def wer_per_utt_details_pl(*, special_symbol: str = "<eps>", separator: str = ";", output_ref: bool = True, output_hyp: bool = True,
                           output_ops: bool = True, output_csid: bool = True) -> int:
    """Write the lines ref, hyp, op and #csid of each utterance, from the output of align-text on standard input.

    Usage: wer_per_utt_details.pl [options] < <alignments> > <per-utt>
    e.g.: align-text ark:text.filt ark:10.txt ark,t:- | wer_per_utt_details.pl > per_utt

    Options:
      --special-symbol: what stands where a word has no partner (default: <eps>)
      --separator: what stands between pairs (default: ;)
      --output-ref: write the words of the reference (default: true)
      --output-hyp: write the words of the hypothesis (default: true)
      --output-ops: write C, S, I or D under each pair: correct, substitution, insertion, deletion (default: true)
      --output-csid: write how many there are of C, S, I and D (default: true)
    """
    wanted = [output_ref, output_hyp, output_ops, output_csid]
    for number, (utt, *words) in _lines():
        if len(words) % 3 == 1 or any(word != separator for word in words[2::3]):
            raise _wrong(number, f"pairs of words with {separator} between", " ".join(words[:6]), "give the --separator of align-text.")
        text, _ = utterance_details(utt, list(zip(words[::3], words[1::3], strict=True)), special_symbol)
        _write("".join(line for line, wants in zip(text.splitlines(keepends=True), wanted, strict=True) if wants))
    return 0


def wer_per_spk_details_pl(utt2spk: str) -> int:
    """Write a table of the errors of each speaker, from the output of wer_per_utt_details.pl on standard input.

    Usage: wer_per_spk_details.pl <utt2spk> < <per-utt> > <per-spk>
    e.g.: wer_per_spk_details.pl data/test/utt2spk < per_utt > per_spk
    """
    speakers = read_map(utt2spk)
    counts = []
    for number, fields in _lines():
        if fields[1:2] != ["#csid"]:
            continue
        if len(fields) != 6 or not "".join(fields[2:]).isdecimal():
            raise _wrong(number, "#csid and four counts", " ".join(fields[1:]), "give it the output of wer_per_utt_details.pl.")
        if fields[0] not in speakers:
            raise _wrong(number, f"an utterance of {utt2spk}", fields[0], "give the utt2spk of the data that were scored.")
        counts.append((speakers[fields[0]], dict(zip("CSID", map(int, fields[2:]), strict=True))))
    _write(speaker_details(counts))
    return 0


def wer_ops_details_pl(*, special_symbol: str = "<eps>", separator: str = ";") -> int:
    """Write how often each word was right, taken for another one, left out or put in, from the output of wer_per_utt_details.pl.

    Usage: wer_ops_details.pl [options] < <per-utt> > <ops>
    e.g.: wer_ops_details.pl --special-symbol "'***'" < per_utt | sort -b -i -k 1,1 -k 4,4nr -k 2,2 -k 3,3 > ops

    Options:
      --special-symbol: what stands where a word has no partner (default: <eps>)
      --separator: as of wer_per_utt_details.pl; it is not in its output (default: ;)
    """
    words: dict[str, dict[str, list[str]]] = {part: {} for part in PARTS}
    for number, fields in _lines():
        if fields[1:2] == ["ref"] or fields[1:2] == ["hyp"]:
            utt, part = fields[:2]
            if utt in words[part]:
                raise _wrong(number, f"one line {part} an utterance", f"a second one of {utt}", "give the output of one decoding.")
            words[part][utt] = fields[2:]
    for utt, ref in words["ref"].items():
        if len(ref) != len(words["hyp"].get(utt, ref)):
            raise UserError(f"standard input, utterance {utt}: expected as many words in ref as in hyp, found {len(ref)} and "
                            f"{len(words['hyp'][utt])}; give it the output of wer_per_utt_details.pl.")
    if alone := sorted(words["ref"].keys() ^ words["hyp"].keys()):
        raise UserError(f"standard input has only one of the lines ref and hyp of utterance {alone[0]}; leave out no line of the output of "
                        "wer_per_utt_details.pl.")
    _write(operation_details((list(zip(ref, words["hyp"][utt], strict=True)) for utt, ref in words["ref"].items()), special_symbol))
    return 0
