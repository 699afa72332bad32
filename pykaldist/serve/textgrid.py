"""TextGrid files, which Praat and its kin read: tiers of intervals that follow each other without gaps.

The long text form, as the Montreal Forced Aligner writes it: tiers `words` and `phones`, an empty label where nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykaldist.hmm.import_ali.sources.base import Interval


def without_gaps(intervals: Sequence[Interval], end: float) -> list[Interval]:
    """The intervals, and an empty one wherever something is missing between 0 and `end`."""
    found, time = [], 0.0
    for interval in [*intervals, Interval(end, end, "")]:
        if interval.start > time:
            found.append(Interval(time, interval.start, ""))
        if interval.end > interval.start:
            found.append(interval)
        time = max(time, interval.end)
    return found


def text_grid(tiers: dict[str, list[Interval]], end: float) -> str:
    """The text of a TextGrid file from 0 to `end` seconds; a label's quotation marks are doubled, as Praat wants them."""
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0 ", f"xmax = {_number(end)} ", "tiers? <exists> ",
             f"size = {len(tiers)} ", "item []: "]
    for number, (name, intervals) in enumerate(tiers.items(), 1):
        whole = without_gaps(intervals, end)
        lines += [f"    item [{number}]:", '        class = "IntervalTier" ', f'        name = "{name}" ', "        xmin = 0 ",
                  f"        xmax = {_number(end)} ", f"        intervals: size = {len(whole)} "]
        for i, interval in enumerate(whole, 1):
            label = interval.label.replace('"', '""')
            lines += [f"        intervals [{i}]:", f"            xmin = {_number(interval.start)} ",
                      f"            xmax = {_number(interval.end)} ", f'            text = "{label}" ']
    return "\n".join(lines) + "\n"


def _number(seconds: float) -> str:
    """Seconds to a millionth, however many they are."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")
