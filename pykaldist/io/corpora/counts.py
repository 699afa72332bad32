"""How many utterances, hours, speakers a data directory has, beside what public recipes say of the corpus.

A table of expected counts has five columns, with tabs between: data directory, what is counted, number, how far one may be from it, source.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.corpora.rules import read_columns
from pykaldist.io.datadir import DataDir
from pykaldist.io.tables import read_lines

COLUMNS = 5


@dataclass(frozen=True)
class Count:
    """One line of a table of counts, and what was found; None where the directory is not there."""

    folder: str
    what: str
    expected: float
    tolerance: float
    source: str
    found: float | None

    @property
    def differs(self) -> bool:
        return self.found is not None and abs(self.found - self.expected) > self.tolerance


def count(path: Path, what: str) -> float:
    """Count utterances, speakers, readers, recordings, conversations (files of two sides), hours or transcribed words of a data directory.

    Of a lang directory, words are counted. Of a reader LibriSpeech's speakers are the chapters. Hours are those of the segments, or of
    `utt2dur` where there are none. Raises UserError for anything else.
    """
    if what == "words":  # but for <eps>, disambiguation symbols, <s> and </s>
        return sum(not line.startswith(("<eps>", "#", "<s>", "</s>")) for line in read_lines(path / "words.txt"))
    data = DataDir(path)
    if what == "utterances":
        return len(data.utt2spk)
    if what == "speakers":
        return len(data.spk2utt)
    if what == "readers":
        return len({speaker.split("-")[0] for speaker in data.spk2utt})
    if what == "recordings":
        return len(data.wav_scp)
    if what == "conversations":
        return len({line.split()[0] for line in data.table("reco2file_and_channel").values()})
    if what == "hours":
        whole = not (path / "segments").is_file()
        seconds = map(float, data.table("utt2dur").values()) if whole else (end - start for _, start, end in data.segments.values())
        return sum(seconds) / 3600
    if what == "transcribed words":
        return sum(map(len, data.text.values()))
    raise UserError("expected utterances, speakers, readers, recordings, conversations, hours, transcribed words or words to be counted, "
                    f"found {what}.")


def compare(expected: str | os.PathLike[str], data: str | os.PathLike[str]) -> list[Count]:
    """Every line of the table `expected`, with what the directories below `data` have. Raises UserError for a line that is damaged."""
    counts = []
    for number, (folder, what, value, tolerance, source) in read_columns(expected, COLUMNS):
        path = Path(data) / folder
        try:
            counts.append(Count(folder, what, float(value), float(tolerance), source, count(path, what) if path.is_dir() else None))
        except ValueError as error:
            raise UserError(f"{expected}, line {number}: expected two numbers, found {value!r} and {tolerance!r}.") from error
    return counts


def report(counts: list[Count]) -> str:
    """The counts as a Markdown table."""
    lines = ["| data | count | expected | found | | source |", "| --- | --- | --- | --- | --- | --- |"]
    for one in counts:
        found = "not there" if one.found is None else f"{one.found:,.6g}" if one.found % 1 else f"{one.found:,.0f}"
        verdict = "" if one.found is None else f"differs by {one.found - one.expected:+,.6g}" if one.differs else "agrees"
        lines.append(f"| {one.folder} | {one.what} | {one.expected:,g} (+- {one.tolerance:,g}) | {found} | {verdict} | {one.source} |")
    return "\n".join(lines)
