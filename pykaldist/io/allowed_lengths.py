"""Copies of utterances at such speeds that their lengths are among a few, for training on whole utterances (Hadian et al., 2018).

Allowed lengths are `spacing` apart, from about the shortest utterance to the longest. An utterance between two of them has a copy `pv1-` as
short as the shorter one, a copy `pv2-` as long as the longer one, and one at its own speed, `pv3-`, which training makes as long as the
longer one by copies of its last frame (Kaldi's copy has silence there). No audio is written: `reco2speed` has the speeds.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir, write_datadir, write_table
from pykaldist.io.durations import utt2dur

SHORTEST = 0.3  # s; with shorter utterances there would be too many lengths
SAME = 1e-4  # s


@dataclass(frozen=True)
class LengthOptions:
    """What lengths are allowed: a factor between them, the share of speech in % left out at each end, and the frames of features.

    `shift_ms`, `window_ms`: of a frame of features; `subsampling`: frames to an output, of which lengths are multiples.
    """

    spacing: float
    left_out: float = 0.05
    shift_ms: int = 10
    window_ms: int = 25
    subsampling: int = 3


def allowed_lengths(seconds: Iterable[float], options: LengthOptions) -> dict[int, float]:
    """The allowed lengths in frames, and the seconds that have so many, half a frame away from having others."""
    durations = sorted(seconds)
    total = sum(durations)

    def bound(order: Iterable[float]) -> float:
        """The first duration, in this order, that is not within the share left out."""
        passed = 0.0
        for duration in order:
            passed += duration
            if passed * 100 > total * options.left_out:
                return duration
        raise UserError(f"a share of {options.left_out:g} % left out at each end leaves no utterance; give less.")

    found: dict[int, float] = {}
    duration, longest = max(bound(durations), SHORTEST), bound(reversed(durations))
    while duration < longest:
        frames = (int(duration * 1000) - options.window_ms) / options.shift_ms + 1
        length = max(int(frames // options.subsampling), max(found, default=0) // options.subsampling + 1) * options.subsampling
        if frames != length:
            duration = (options.shift_ms * (length - 1) + options.window_ms + options.shift_ms / 2) / 1000
        found[length] = duration
        duration *= options.spacing
    if not found:
        raise UserError("all utterances are of about one length; they need no allowed lengths.")
    return found


def copies(duration: float, allowed: list[float], spacing: float, speeds: bool) -> Iterator[tuple[str, float]]:
    """The copies of an utterance: the mark before their names, and their speeds."""
    place = bisect_left(allowed, duration)
    shorter = duration / allowed[place - 1] if place > 0 else 0.0
    longer = duration / allowed[place] if place < len(allowed) else 0.0
    if speeds and 0 < shorter <= spacing:
        yield "pv1-", shorter
    if longer >= 1 / spacing:
        if speeds:
            yield "pv2-", longer
        if not speeds or allowed[place] - duration > SAME:
            yield "pv3-", 1.0


def perturb_to_allowed_lengths(source: str | os.PathLike[str], target: str | os.PathLike[str], options: LengthOptions,
                               speeds: bool = True) -> DataDir:
    """Write to `target` the copies of the utterances of `source`, and the lengths, `allowed_lengths.txt` and `allowed_durs.txt`.

    Without `speeds` only those at their own speed. Raises UserError where there are segments, or the data is perturbed already.
    """
    data = DataDir(source)
    data.validate(text=True)
    if data.has("segments"):
        raise UserError(f"{source} has segments, of which no copies are made; write their audio first, with "
                        "utils/data/extract_wav_segments_data_dir.sh.")
    if data.has("reco2speed") and speeds:
        raise UserError(f"{source} is already perturbed (it has reco2speed); perturb the data that it was made of.")
    if Path(source).resolve() == Path(target).resolve():
        raise UserError(f"the perturbed data cannot replace {source} itself; name another directory.")
    if not 1.0 < options.spacing <= 2.0:
        raise UserError(f"lengths {100 * (options.spacing - 1):g} % apart make no sense; give a number above 0, at most 100, such as 12.")
    durations = utt2dur(data)
    lengths = allowed_lengths(durations.values(), options)
    tables: dict[str, dict[str, str]] = {name: {} for name in ("wav", "text", "utt2spk", "reco2speed", "reco2vol", "utt2uniq", "utt2dur")}
    for utt, speaker in data.utt2spk.items():
        for mark, speed in copies(durations[utt], [*lengths.values()], options.spacing, speeds):
            copy = mark + utt
            tables["wav"][copy], tables["text"][copy], tables["utt2spk"][copy] = data.wav_scp[utt], " ".join(data.text[utt]), mark + speaker
            tables["utt2uniq"][copy], tables["utt2dur"][copy] = data.original(utt), f"{durations[utt] / speed:.5g}"
            if (whole := speed * data.reco2speed.get(utt, 1.0)) != 1.0:
                tables["reco2speed"][copy] = f"{whole:.10g}"
            if utt in data.reco2vol:
                tables["reco2vol"][copy] = f"{data.reco2vol[utt]:g}"
    made = write_datadir(target, tables["wav"], tables["text"], tables["utt2spk"], None)
    for name in ("reco2speed", "reco2vol", "utt2uniq", "utt2dur"):
        if tables[name]:
            write_table(made.path / name, tables[name])
    write_text(made.path / "allowed_lengths.txt", "".join(f"{length}\n" for length in lengths))
    write_text(made.path / "allowed_durs.txt", "".join(f"{duration}\n" for duration in lengths.values()))
    return made
