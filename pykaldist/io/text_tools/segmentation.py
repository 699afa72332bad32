"""The tool that makes segments of recordings from what their frames are: silence, noise, speech.

What is between silences is a segment. Segments take silence from both sides, a frame at a time, until it is the wanted proportion of them.
Those that have come to touch are joined, those with the least silence between them first, as long as they stay short. What is still too
long is cut into equal pieces. Noise alone goes. The steps are those of the head of Kaldi's utils/segmentation.pl.
"""

from __future__ import annotations

import re

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import number, rows_of, tool, warn

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykaldist.io.text_tools.tool import Output

Spans = list[list[int]]  # first frame of each, and the one behind its last
RANGES = {"silence-proportion": (0.2, 0.01, 0.99), "frame-shift": (0.01, 0.0001, 1.0), "max-segment-length": (15.0, 1.0, 100.0),
          "hard-max-segment-length": (30.0, 4.0, 500.0)}  # default, and the limits of what makes sense


@tool("""segmentation.pl [options] < <frames> > <segments>
 e.g.: copy-vector scp:data/train/vad.scp ark,t:- | sed 's/[][]//g' | \\
         utils/segmentation.pl --remove-noise-only-segments false > data/train/subsegments
Reads a line a recording, its name and for each frame 0 (silence), 1 (noise) or 2 (speech); prints lines of `segments`.
Options:
  --silence-proportion <p>                  # silence of the segments, at their sides (default: 0.2)
  --frame-shift <s>                         # seconds a frame (default: 0.01)
  --max-segment-length <s>                  # segments are joined to no more (default: 15)
  --hard-max-segment-length <s>             # longer ones are cut (default: 30)
  --first-separator <text>                  # in a segment's name behind the recording (default: -)
  --second-separator <text>                 # and between its times, in hundredths of a second (default: -)
  --remove-noise-only-segments <true|false> # leave out segments without speech (default: true)""",
      "silence-proportion= frame-shift= max-segment-length= hard-max-segment-length= first-separator= second-separator= "
      "remove-noise-only-segments=", (0, 0))
def segmentation_pl(options: dict[str, str]) -> Output:
    """Make segments of what frames are."""
    values = {name: _within(name, options) for name in RANGES}
    if values["hard-max-segment-length"] < values["max-segment-length"]:
        raise UserError("--hard-max-segment-length is less than --max-segment-length; give no less.")
    speech = options.get("remove-noise-only-segments", "true")
    if speech not in ("true", "false"):
        raise UserError(f"--remove-noise-only-segments is true or false, found {speech!r}.")
    return _segments(values, options.get("first-separator", "-"), options.get("second-separator", "-"), speech == "true")


def _within(name: str, options: dict[str, str]) -> float:
    default, least, most = RANGES[name]
    value = number(options.get(name, str(default)), f"--{name}")
    if not least <= value <= most:
        raise UserError(f"--{name} {value:g}: expected a number from {least:g} to {most:g}.")
    return value


def _segments(values: dict[str, float], first: str, second: str, speech: bool) -> Iterator[bytes]:
    shift = values["frame-shift"]
    for fields, _, line_number in rows_of("-", 2, -1, "recording class ..."):
        recording, frames = fields[0].decode("utf-8"), b"".join(fields[1:])
        if len(frames) != len(fields) - 1 or frames.strip(b"012"):
            raise UserError(f"standard input, line {line_number}: expected 0, 1 or 2 for each frame of {recording}.")
        spans = [list(found.span()) for found in re.finditer(b"[12]+", frames)]
        if spans:
            core = [span[:] for span in spans]
            _take_silence(spans, len(frames), values["silence-proportion"])
            spans = _joined(spans, core, values["max-segment-length"], shift)
            spans = _cut(spans, int(values["hard-max-segment-length"] / shift), recording)
        if speech:
            spans = [span for span in spans if b"2" in frames[span[0] : span[1]]]
        if not spans:
            warn(f"WARNING: {recording} has no segments")
            continue
        last = int(100.0 * shift * spans[-1][1])
        digits = len(str(last - 1)) + 1 if last > 1 else 1
        for begin, end in spans:
            start, stop = f"{shift * begin:.2f}", f"{shift * end:.2f}"
            times = [f"{int(float(time) * 100):0{digits}d}" for time in (start, stop)]
            yield f"{recording}{first}{times[0]}{second}{times[1]} {recording} {start} {stop}\n".encode()


def _take_silence(spans: Spans, length: int, proportion: float) -> None:
    """Widen segments by a frame on either side, by turns, until so much of them is silence, or there is none left to take."""
    size = sum(stop - start for start, stop in spans)
    wanted = int(size / (1.0 - proportion))
    changed = True
    while size < wanted and changed:
        changed = False
        for n, span in enumerate(spans):
            if span[0] > (spans[n - 1][1] if n else 0) and size < wanted:
                span[0], size, changed = span[0] - 1, size + 1, True
            if span[1] < (spans[n + 1][0] if n + 1 < len(spans) else length) and size < wanted:
                span[1], size, changed = span[1] + 1, size + 1, True


def _joined(spans: Spans, core: Spans, most: float, shift: float) -> Spans:
    """Join segments that touch, those with the least silence between them first, where together they are no longer than `most` seconds."""
    touching = [n for n in range(1, len(spans)) if spans[n - 1][1] == spans[n][0]]
    begins, ends = {span[0]: span for span in spans}, {span[1]: span for span in spans}
    for boundary in [spans[n][0] for n in sorted(touching, key=lambda n: core[n][0] - core[n - 1][1])]:
        left, right = ends[boundary], begins[boundary]
        if (right[1] - left[0]) * shift <= most:
            left[1] = right[1]
            ends[left[1]] = left
            begins.pop(boundary)
    return [begins[start] for start in sorted(begins)]


def _cut(spans: Spans, most: int, recording: str) -> Spans:
    """Cut segments of more than `most` frames into the fewest equal pieces."""
    pieces: Spans = []
    for start, stop in spans:
        count = -(-(stop - start) // most)
        if count > 1:
            warn(f"WARNING: {recording}: a segment of {stop - start} frames without silence is cut into {count}")
        size = (stop - start) // count
        pieces += [[start + n * size, stop if n == count - 1 else start + (n + 1) * size] for n in range(count)]
    return pieces
