"""What went wrong where: the tables of Kaldi's wer_per_utt_details.pl, wer_per_spk_details.pl and wer_ops_details.pl, of aligned words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pykaldist.score.alignment import GAP

NAMES = {"C": "correct", "S": "substitution", "I": "insertion", "D": "deletion"}
WIDEST = 16  # column of words


def _operation(ref: str, hyp: str, gap: str) -> str:
    return "D" if hyp == gap else "I" if ref == gap else "C" if ref == hyp else "S"


def _centred(text: str, width: int) -> str:
    right = (width - len(text)) // 2
    return " " * (width - len(text) - right) + text + " " * right


def utterance_details(utt: str, pairs: Sequence[tuple[str, str]], gap: str = GAP) -> tuple[str, dict[str, int]]:
    """The lines ref, hyp, op and #csid of an utterance, and its counts of C, S, I and D, from its aligned words; `gap` stands for none."""
    columns = [(r, h, _operation(r, h, gap)) for r, h in pairs]
    counts = {op: sum(c[2] == op for c in columns) for op in "CSID"}
    lines = []
    for row, name in enumerate(("ref ", "hyp ", "op  ")):
        cells = [_centred(column[row], max(map(len, column))) for column in columns]
        lines.append(f"{utt} {name} " + "  ".join(cells))
    lines.append(f"{utt} #csid " + " ".join(str(counts[op]) for op in "CSID"))
    return "\n".join(lines) + "\n", counts


def speaker_details(counts: Iterable[tuple[str, dict[str, int]]]) -> str:
    """The table of wer_per_spk_details.pl from (speaker, counts of C, S, I, D) of each utterance, with the sum over speakers."""
    totals: dict[str, dict[str, int]] = {}
    for speaker, count in counts:
        for name in (speaker, "\0SUM"):
            total = totals.setdefault(name, dict.fromkeys(("sentences", "wrong", *"CSID"), 0))
            for op in "CSID":
                total[op] += count[op]
            total["sentences"] += 1
            total["wrong"] += count["S"] + count["I"] + count["D"] > 0
    width = max([15, *(len(s) for s in totals)])
    header = ("#SENT", "#WORD", "Corr", "Sub", "Ins", "Del", "Err", "S.Err")
    lines = [f"{'SPEAKER':<{width}} id  " + " ".join(f"{name:>10}" for name in header)]
    for name in [*sorted(n for n in totals if n != "\0SUM"), "\0SUM"]:
        t = totals[name]
        words, errors = t["C"] + t["S"] + t["D"], t["S"] + t["I"] + t["D"]
        raw = (t["sentences"], words, t["C"], t["S"], t["I"], t["D"], errors, t["wrong"])
        label = f"{name.lstrip(chr(0)):<{width}}"
        lines.append(f"{label} raw " + " ".join(f"{n:10d}" for n in raw))
        if words:
            rates = [100 * n / words for n in raw[2:7]] + [100 * t["wrong"] / t["sentences"]]
            lines.append(f"{label} sys {raw[0]:10d} {words:10d} " + " ".join(f"{rate:10.2f}" for rate in rates))
    return "\n".join(lines) + "\n"


def operation_details(alignments: Iterable[Sequence[tuple[str, str]]], gap: str = GAP) -> str:
    """How often each word was right, taken for which other one, left out and put in: by kind, the most frequent first."""
    counts = Counter(pair for pairs in alignments for pair in pairs)
    width = min(WIDEST, max((len(word) for pair in counts for word in pair), default=0))
    digits = max((len(str(count)) for count in counts.values()), default=0)
    rows = sorted((NAMES[_operation(*pair, gap)], -count, pair) for pair, count in counts.items())
    return "".join(f"{kind:<14}{ref:>{width}}    {hyp:>{width}}    {-count:>{digits}}\n" for kind, count, (ref, hyp) in rows)
