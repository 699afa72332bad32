"""Kaldi data directories: `wav.scp`, `segments`, `text`, `utt2spk`, `spk2utt`, `feats.scp`, `cmvn.scp`.

Every table is sorted by key in the C locale, so that lists can be merged by one pass, as Kaldi's own tools demand.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path

from pykaldist.errors import MADE, UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.io.line_index import LineIndex, ParsedLines, table_entries
from pykaldist.io.sorted_entries import Entry, in_order, only_in_one
from pykaldist.io.tables import MatrixReader, read_map
from pykaldist.progress import progress

PER_RECORDING = ("wav.scp", "reco2speed", "reco2vol", "reco2dur", "reco2file_and_channel")
PER_SPEAKER = ("spk2utt", "cmvn.scp", "spk2gender")
PER_UTTERANCE = ("segments", "text", "utt2spk", "feats.scp", "vad.scp", "utt2dur", "utt2num_frames", "utt2uniq", "utt2lang")
TABLES = PER_RECORDING + PER_SPEAKER + PER_UTTERANCE  # by what a table's keys are
MAKERS = {"feats.scp": "steps/make_mfcc.sh", "cmvn.scp": "steps/compute_cmvn_stats.sh", "utt2dur": "utils/data/get_utt2dur.sh",
          "utt2num_frames": "utils/data/get_utt2num_frames.sh"}  # the script that makes a table


def pipe_command(source: str) -> str | None:
    """The shell command of an entry of `wav.scp`, which ends in `|`; None where the entry is a file."""
    source = source.strip()
    return source[:-1].strip() if source.endswith("|") else None


class DataDir:
    """One data directory; tables are read when first asked for, and most of their lines stay in their files (io/line_index.py).

    Raises UserError for a missing directory or table, a repeated key, or tables that disagree (`validate`).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(f"{path} is no data directory; {MADE}.")

    def has(self, table: str) -> bool:
        return (self.path / table).is_file()

    def table(self, name: str) -> dict[str, str]:
        """Read a table of two columns: key -> rest of the line."""
        return read_map(self._file(name))

    def lines(self, name: str) -> LineIndex:
        """A table of two columns whose lines stay in their file."""
        return LineIndex(self._file(name))

    def _file(self, name: str) -> Path:
        """The file of a table; raises UserError where it is not there."""
        if not self.has(name):
            made = f"make it first: {MAKERS[name]} {shlex.quote(str(self.path))}" if name in MAKERS else MADE
            raise UserError(f"{self.path / name} does not exist; {made}.")
        return self.path / name

    @cached_property
    def utt2spk(self) -> LineIndex:
        return self.lines("utt2spk")

    @cached_property
    def spk2utt(self) -> dict[str, list[str]]:
        """Speaker -> utterances, made from utt2spk, so that the two tables cannot disagree."""
        speakers: dict[str, list[str]] = {}
        for utt, spk in self.utt2spk.items():
            speakers.setdefault(spk, []).append(utt)
        return speakers

    def speakers(self) -> tuple[int, Iterator[tuple[str, list[str]]]]:
        """The number of speakers, and an iterator over them with their utterances, in the order of `spk2utt`.

        Where the speakers of utt2spk are sorted, as Kaldi wants them, the iterator has no more than one's utterances in memory.
        """
        count, last = 0, ""
        for count, (spk, _) in enumerate(itertools.groupby(self._entries("utt2spk"), itemgetter(1)), 1):
            if spk <= last and count > 1:
                return len(self.spk2utt), iter(self.spk2utt.items())
            last = spk
        together = itertools.groupby(self._entries("utt2spk"), itemgetter(1))
        return count, ((spk, [utt for utt, _ in lines]) for spk, lines in together)

    @cached_property
    def text(self) -> ParsedLines[list[str]]:
        """Utterance -> words."""
        return ParsedLines(self.lines("text"), lambda _, line: line.split())

    @cached_property
    def wav_scp(self) -> LineIndex:
        return self.lines("wav.scp")

    @cached_property
    def reco2speed(self) -> dict[str, float]:
        """Recording -> factor by which its audio is to be sped up when it is read; recordings without an entry are read as they are."""
        return self._factors("reco2speed", 0.1, 10)

    @cached_property
    def reco2vol(self) -> dict[str, float]:
        """Recording -> factor on its samples when they are read; recordings without an entry are read as they are."""
        return self._factors("reco2vol", 1e-3, 1e3)

    def _factors(self, name: str, least: float, most: float) -> dict[str, float]:
        """A table of factors; none where the directory does not have it. Raises UserError for one outside of its bounds."""
        table = {}
        for key, text in (self.table(name) if self.has(name) else {}).items():
            try:
                table[key] = float(text)
            except ValueError:
                table[key] = 0.0
            if not least <= table[key] <= most:
                raise UserError(f"{self.path / name}, {key}: expected a factor from {least:g} to {most:g}, found {text!r}.")
        return table

    def original(self, utt: str) -> str:
        """The utterance that this one is a perturbed copy of, as utt2uniq says; itself where it is none."""
        return self._utt2uniq.get(utt, utt)

    def is_copy(self, utt: str) -> bool:
        """Whether this utterance is a perturbed copy of one that is here, or at another speed.

        Where unchanged utterances have other names than their originals too (sp1.0-...), no utterance is its own original.
        """
        original = self.original(utt)
        if original == utt:
            return False
        return original in self.utt2spk or (self.segments[utt][0] if self.has("segments") else utt) in self.reco2speed

    @cached_property
    def _utt2uniq(self) -> Mapping[str, str]:
        return self.lines("utt2uniq") if self.has("utt2uniq") else {}

    @cached_property
    def segments(self) -> ParsedLines[tuple[str, float, float]]:
        """Utterance -> (recording, start in s, end in s; -1 for the recording's end)."""
        return ParsedLines(LineIndex(self._file("segments"), self._segment), self._segment)

    def _segment(self, utt: str, rest: str) -> tuple[str, float, float]:
        """The recording, start and end of a line of `segments`; raises UserError."""
        fields = rest.split()
        try:
            recording, start, end = fields[0], float(fields[1]), float(fields[2])
        except (IndexError, ValueError) as error:
            raise UserError(f"{self.path / 'segments'}, {utt}: expected `recording start end`, found {rest!r}.") from error
        if start < 0 or (end != -1 and end <= start):
            raise UserError(f"{self.path / 'segments'}, {utt}: segment {start} to {end} s has no length; correct it.")
        return recording, start, end

    @cached_property
    def feats(self) -> MatrixReader:
        if not self.has("feats.scp"):
            raise UserError(f"{self.path}/feats.scp does not exist; run steps/make_mfcc.sh first.")
        return MatrixReader(self.path / "feats.scp")

    @cached_property
    def cmvn(self) -> MatrixReader:
        if not self.has("cmvn.scp"):
            raise UserError(f"{self.path}/cmvn.scp does not exist; run steps/compute_cmvn_stats.sh first.")
        return MatrixReader(self.path / "cmvn.scp")

    def pipes(self) -> list[tuple[str, str, str]]:
        """The pipes in the scp files: (the file's name, key, command), wav.scp's first. None of them is run.

        What another scp file has with a `|` before or behind it is refused where it is read (MatrixReader).
        """
        found = []
        for path in sorted(self.path.glob("*.scp"), key=lambda path: (path.name != "wav.scp", path.name)):
            for key, source in self.table(path.name).items():
                command = pipe_command(source)
                if command is None and source.startswith("|") and path.name != "wav.scp":
                    command = source[1:].strip()
                if command is not None:
                    found.append((path.name, key, command))
        return found

    def utterances(self) -> list[str]:
        return list(self.utt2spk)

    def validate(self, text: bool = True, wav: bool = True, feats: bool = False) -> None:
        """Check that the tables are sorted, non-empty and about the same utterances; raises UserError.

        The tables are gone through as streams.
        """
        if not self._file("utt2spk").stat().st_size:
            raise UserError(f"{self.path}/utt2spk is empty; the data directory has no utterances.")
        checks: list[Callable[[], None]] = [partial(self._check_order, name) for name in TABLES if self.has(name)]
        checks.append(self._check_speakers)
        if wav and self.has("segments"):
            checks += [partial(self._same, "segments"), self._check_segments]
        elif wav:
            checks.append(partial(self._same, "wav.scp"))
        if text:
            checks += [partial(self._same, "text"), self._check_text]
        if feats:
            checks.append(partial(self._same, "feats.scp"))
        for check in progress(checks, f"checking {self.path.name}", unit="check"):
            check()

    def _check_speakers(self) -> None:
        for utt, spk in self._entries("utt2spk"):
            if not spk or len(spk.split()) != 1:
                raise UserError(f"{self.path}/utt2spk, {utt}: expected one speaker, found {spk!r}.")

    def _check_segments(self) -> None:
        last = ""
        for utt, rest in self._entries("segments"):
            recording, _, _ = self._segment(utt, rest)
            if recording != last and recording not in self.wav_scp:
                raise UserError(f"{self.path}/segments, {utt}: recording {recording} is not in wav.scp; run utils/fix_data_dir.sh "
                                f"{self.path}.")
            last = recording

    def _check_text(self) -> None:
        for utt, line in self._entries("text"):
            if not line:
                raise UserError(f"{self.path}/text, {utt}: the transcript is empty; remove the utterance or "
                                f"run utils/fix_data_dir.sh {self.path}.")

    def _entries(self, name: str) -> Iterator[tuple[str, str]]:
        return table_entries(self._file(name))

    def _check_order(self, name: str) -> None:
        """Check that a table is sorted, with each key once; raises UserError also for what else is no table."""
        last = ""
        with contextlib.suppress(UnicodeDecodeError, IndexError), open(self.path / name, encoding="utf-8", newline="\n") as stream:
            for line in stream:
                if (key := line.split(None, 1)[0]) <= last:
                    break
                last = key
            else:
                return
        for before, after in itertools.pairwise(self.lines(name)):  # which says of most damage what it is
            if before > after:
                raise UserError(f"{self.path / name} is not sorted ({after} stands after {before}); run utils/fix_data_dir.sh {self.path}.")

    def _same(self, name: str) -> None:
        """Check that a table has the utterances of utt2spk; both are sorted, so that they are gone through side by side."""
        missing, extra = only_in_one(*(map(itemgetter(0), self._entries(table)) for table in ("utt2spk", name)))
        if missing or extra:
            what = f"lacks {missing[0]} utterances of utt2spk, such as {missing[1]}" if missing else \
                f"has {extra[0]} utterances that utt2spk lacks, such as {extra[1]}" if extra else ""
            raise UserError(f"{self.path / name} {what}; run utils/fix_data_dir.sh {self.path}.")

    def part(self, job: int, nj: int) -> list[str]:
        """The utterances of job `job` of `nj` (from 1): whole speakers, contiguous, numbers of utterances as equal as possible.

        With fewer speakers than jobs the utterances themselves are divided.
        """
        if not 1 <= job <= nj:
            raise UserError(f"job {job} of {nj} does not exist; use a number from 1 to {nj}.")
        speakers = list(self.spk2utt.values())
        groups = speakers if len(speakers) >= nj else [[utt] for utts in speakers for utt in utts]
        total = sum(map(len, groups))
        part, seen = [], 0
        for group in groups:
            middle = seen + len(group) / 2
            if int(middle * nj / total) == job - 1:
                part += group
            seen += len(group)
        return part


def write_table(path: Path, table: Mapping[str, str]) -> None:
    """Write a table sorted by key (C locale order). Raises UserError for an entry with the end of a line in it, which would be two."""
    if all(before <= after for before, after in itertools.pairwise(table)):
        write_entries(path, table.items())
    else:
        write_entries(path, ((key, table[key]) for key in sorted(table)))


def write_entries(path: Path, entries: Iterable[Entry]) -> int:
    """Write the entries of a table, which are sorted by key, and return their number.

    Raises UserError for one with the end of a line in it, which would be two.
    """
    count = 0
    with atomic_open(path) as stream:
        for key, value in entries:
            if "\n" in key or "\n" in value:
                raise UserError(f"{path}, {key!r}: {value!r} has the end of a line in it; rename the file, or correct the entry.")
            stream.write(f"{key} {value}".rstrip() + "\n")
            count += 1
    return count


def write_datadir(path: str | os.PathLike[str], wav: Mapping[str, str], text: Mapping[str, str] | None, utt2spk: Mapping[str, str],
                  segments: dict[str, str] | None = None) -> DataDir:
    """Write a data directory, sorted, with its spk2utt; old features in it are removed, for they are of other data."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        (path / name).unlink(missing_ok=True)
    write_table(path / "wav.scp", wav)
    write_table(path / "utt2spk", utt2spk)
    if text is not None:
        write_table(path / "text", text)
    if segments is not None:
        write_table(path / "segments", segments)
    data = DataDir(path)
    write_spk2utt(data)
    return data


def write_spk2utt(data: DataDir) -> None:
    """Write the table spk2utt of a data directory, made from its utt2spk."""
    _, speakers = data.speakers()
    write_entries(data.path / "spk2utt", in_order(((spk, " ".join(utts)) for spk, utts in speakers), data.path))


def restrict(data: DataDir, keep: Sequence[str], target: str | os.PathLike[str]) -> DataDir:
    """A copy of `data` with only the utterances of `keep`: every table, recordings and speakers reduced to match.

    What `target` held before is replaced. Raises UserError where it is `data` itself, or `segments` lacks an utterance.
    """
    target = Path(target)
    if target.resolve() == data.path.resolve():
        raise UserError(f"{target} is both source and target; write to another directory.")
    wanted = set(keep)
    recordings = wanted
    if data.has("segments"):
        missing = wanted - set(data.segments)
        if missing:
            raise UserError(f"{data.path}/segments lacks {len(missing)} utterances of utt2spk, such as {min(missing)}; "
                            f"run utils/fix_data_dir.sh {data.path}.")
        recordings = {data.segments[u][0] for u in wanted}
    speakers = {spk for utt, spk in data.utt2spk.items() if utt in wanted}
    target.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        (target / name).unlink(missing_ok=True)
        if name == "spk2utt" or not data.has(name):
            continue
        keys = recordings if name in PER_RECORDING else speakers if name in PER_SPEAKER else wanted
        write_entries(target / name, in_order(((key, value) for key, value in data.lines(name).items() if key in keys), target))
    result = DataDir(target)
    write_spk2utt(result)
    return result
