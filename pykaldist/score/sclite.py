"""Scoring by NIST's toolkit: word times of each point of the sweep (CTM files) against the references of an evaluation (stm, glm).

hubscr.pl maps both by the evaluation's rules (glm), and sclite aligns them in time. Words that the evaluation does not score, and acronyms
as the references write them, are data of the recipe: tables that are given here. Files lie where Kaldi's local/score_sclite.sh has them:
<decode-dir>/score_<lmwt>_<wip>/<set>.ctm, <set>.ctm.filt.sys and others; of a part of the set, <set>.ctm.<part> and so on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pykaldist.decode.ctm import WordTimer, frame_shift_of
from pykaldist.decode.lattice import Lattice, read_decode_dir
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora.rules import Rules, read_columns
from pykaldist.io.corpora.swbd_lexicon import read_acronyms
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_lines
from pykaldist.options import option
from pykaldist.progress import progress
from pykaldist.score.sweep import Point, SweepOptions
from pykaldist.score.wer import WerStats

HUBSCR = "hubscr.pl"
DEBIAN = "/usr/lib/sctk/bin"
PLAIN = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
WHOLE = ""
"""The part of a set that is all of it."""

Word = tuple[str, str, float, float, str]
"""File, channel, begin and length in seconds, word."""


@dataclass
class ScliteOptions(SweepOptions):
    """How a decode directory is scored by sclite."""

    frame_shift: float | None = option(None, "seconds from frame to frame (0.01, times the model's frame_subsampling_factor)")
    nj: int = option(1, "scorings at a time")
    acronyms: str = option("", "acronyms of a dictionary directory, whose letters are scored one by one (acronyms.txt)")
    not_scored: str = option("", "table of rules (tsv) for recognised words; one of which nothing is left is not scored")
    subsets: str = option("", "table of the parts of test sets that are scored by themselves (tsv: set, name, pattern)")


@dataclass
class Reference:
    """The reference of a set: `comments` (with the names of labels), and the lines of each part."""

    comments: list[str]
    parts: dict[str, list[str]] = field(default_factory=dict)

    def files(self, part: str) -> set[tuple[str, str]]:
        """The files and channels of a part, in small letters."""
        return {(fields[0].lower(), fields[1].lower()) for fields in map(str.split, self.parts[part])}


def find_hubscr() -> Path:
    """NIST's hubscr.pl: on PATH, or of Debian's package. Raises UserError where it is not installed."""
    found = shutil.which(HUBSCR) or shutil.which(HUBSCR, path=DEBIAN)
    if found is None:
        raise UserError(f"{HUBSCR} is neither on PATH nor in {DEBIAN}; install it with apt-get install sctk, or put the toolkit's bin "
                        "folder on PATH.")
    return Path(found)


def read_reference(stm: Path, name: str, subsets: str | os.PathLike[str] | None) -> Reference:
    """The reference of the set `name`, whole and in parts: those of `subsets` whose pattern is found in `<file> <labels>` of a line.

    Raises UserError for a pattern that is none, and for a part without lines.
    """
    lines = read_lines(stm)
    spoken = [line for line in lines if line.strip() and not line.startswith(";;")]
    found = Reference([line for line in lines if line.startswith(";;")], {WHOLE: spoken})
    for number, (of, part, pattern) in read_columns(subsets, 3) if subsets else []:
        if not PLAIN.fullmatch(part):
            raise UserError(f"{subsets}, line {number}: expected a name of letters, digits and ._- for a part, found {part!r}.")
        if of == name:
            try:
                own = [line for line in spoken if re.search(pattern, "{0} {5}".format(*line.split(maxsplit=6)))]
            except (re.error, IndexError) as error:
                raise UserError(f"{subsets}, line {number}, with {stm}: {error}; correct the pattern or the reference.") from error
            if not own:
                raise UserError(f"{subsets}, line {number}: no line of {stm} has {pattern!r} in its file's name and labels, so {part} "
                                "would be empty; correct the pattern.")
            found.parts[part] = own
    return found


def timed_words(data: DataDir, lang: LangDir, timer: WordTimer, lattices: Iterable[tuple[str, Lattice]], points: list[Point],
                frame_shift: float) -> list[list[Word]]:
    """The words of the best paths with their times, at each point: a language model weight and a word insertion penalty.

    Raises UserError where lattices, model and lexicon do not fit.
    """
    channels = data.table("reco2file_and_channel") if data.has("reco2file_and_channel") else {}
    segments = data.segments if data.has("segments") else {}
    found: list[list[Word]] = [[] for _ in points]
    for utt, lattice in lattices:
        recording, start, _ = segments.get(utt, (utt, 0.0, 0.0))
        file, channel = channels.get(recording, f"{recording} 1").split()
        placed: dict[bytes, list[Word]] = {}  # many points have one path
        for words, (lmwt, wip) in zip(found, points, strict=True):
            path = best_path(lattice, 1 / lmwt, 1.0, float(wip))
            key = np.asarray(path.transition_ids).tobytes() + np.asarray(path.words, np.int32).tobytes()
            if key not in placed:
                try:
                    spoken = timer.spoken(path.words, path.transition_ids)
                except UserError as error:
                    raise UserError(f"utterance {utt}: {error}") from error
                placed[key] = [(file, channel, start + one.start * frame_shift, one.frames * frame_shift, lang.words.symbol(one.word))
                               for one in spoken if one.word]
            words += placed[key]
    return found


def scored_words(words: Iterable[Word], not_scored: Rules | None, acronyms: Mapping[str, list[str]]) -> list[Word]:
    """The words that are scored, letters of acronyms one by one in equal shares of the time, in the order of files and time."""
    found: list[Word] = []
    for file, channel, start, seconds, word in words:
        letters = acronyms.get(word) or [word if not_scored is None else not_scored(word)]
        share = seconds / len(letters)
        found += [(file, channel, start + i * share, share, letter) for i, letter in enumerate(letters) if letter]
    return sorted(found, key=lambda one: one[:3])


def score_dir(data: DataDir, lang: LangDir, decode_dir: str | os.PathLike[str], options: ScliteOptions) -> dict[str, tuple[WerStats, Path]]:
    """Score the lattices of `decode_dir`; returns the best counts and their file of each part of the set, all of it (WHOLE) first.

    Writes `wer_<lmwt>_<wip>` and `best_wer` in `decode_dir`, of a part in `<decode-dir>/<part>`, beside the reports of sclite. What an
    earlier scoring left is removed. Raises UserError where something is missing or does not fit, or NIST's scoring fails.
    """
    hubscr, decode_dir, points, name = find_hubscr(), Path(decode_dir), options.points(), data.path.resolve().name
    if not PLAIN.fullmatch(name):  # hubscr.pl hands names of files to a shell
        raise UserError(f"{data.path}: NIST's scoring takes names of letters, digits and ._- alone; give the directory such a name.")
    for needed in ("stm", "glm"):
        if not (data.path / needed).is_file():
            raise UserError(f"{data.path / needed} does not exist; prepare the test set again, or score it by steps/score_kaldi.sh.")
    reference = read_reference(data.path / "stm", name, options.subsets or None)
    rules = Rules(options.not_scored) if options.not_scored else None
    acronyms = read_acronyms(options.acronyms) if options.acronyms else {}
    timer = WordTimer(lang, read_transition_model(decode_dir.parent / "final.mdl"))
    lattices = progress(read_decode_dir(decode_dir), "word times", total=len(data.utt2spk), unit="utt")
    at_points = timed_words(data, lang, timer, lattices, points, options.frame_shift or frame_shift_of(decode_dir.parent))
    for old in (*decode_dir.glob("score_*_*"), *(path.parent for path in decode_dir.glob("*/best_wer"))):
        shutil.rmtree(old, ignore_errors=True)
    for old in (*decode_dir.glob("wer_*_*"), decode_dir / "best_wer"):
        old.unlink(missing_ok=True)

    def score(task: tuple[int, str]) -> WerStats:
        index, part = task
        return _score(hubscr, folders[index], name, reference, part, data.path / "glm", words[index])

    words = [scored_words(found, rules, acronyms) for found in at_points]
    folders = [decode_dir / "score_{}_{}".format(*point) for point in points]
    tasks = [(index, part) for part in reference.parts for index in range(len(points))]
    first: dict[tuple[str, bytes], tuple[int, str]] = {}  # a part of one text is scored once: in a small set most points have the same
    alike = {(index, part): first.setdefault((part, _digest(words[index], reference.files(part))), (index, part)) for index, part in tasks}
    with ThreadPoolExecutor(options.nj) as pool:
        scored = dict(zip(first.values(), pool.map(score, first.values()), strict=True))
    for (index, part), (other, _) in alike.items():
        if index != other:
            _copy(folders[other], folders[index], name, part)
    stats = {task: scored[alike[task]] for task in tasks}
    best = {}
    for part in reference.parts:
        for index, (lmwt, wip) in enumerate(points):
            write_text(decode_dir / part / f"wer_{lmwt}_{wip}", f"{stats[index, part].wer_line()}\n")
        index = min(range(len(points)), key=lambda i: stats[i, part].errors)  # the first of equals
        path = decode_dir / part / "wer_{}_{}".format(*points[index])
        write_text(decode_dir / part / "best_wer", f"{stats[index, part].wer_line()} {path}\n")
        best[part] = stats[index, part], path
    return best


def _lines(words: Iterable[Word], files: set[tuple[str, str]]) -> Iterator[str]:
    """The lines of a ctm of the words of some files and channels."""
    return ("{} {} {:.2f} {:.2f} {}\n".format(*word) for word in words if (word[0].lower(), word[1].lower()) in files)


def _digest(words: Iterable[Word], files: set[tuple[str, str]]) -> bytes:
    found = hashlib.sha256()
    for line in _lines(words, files):
        found.update(line.encode())
    return found.digest()


def _copy(source: Path, target: Path, name: str, part: str) -> None:
    """The files of one part's scoring: what it is made of, and sclite's reports."""
    target.mkdir(exist_ok=True)
    suffix = f".{part}" if part else ""
    whole = [source / f"{kind}{suffix}" for kind in ("stm", "glm", f"{name}.ctm")]
    for path in (*whole, *source.glob(f"stm{suffix}.filt*"), *source.glob(f"{name}.ctm{suffix}.filt*")):
        shutil.copyfile(path, target / path.name)


def _score(hubscr: Path, folder: Path, name: str, reference: Reference, part: str, glm: Path, words: list[Word]) -> WerStats:
    """NIST's scoring of one part at one point."""
    suffix = f".{part}" if part else ""
    files = reference.files(part)
    ctm, stm = folder / f"{name}.ctm{suffix}", folder / f"stm{suffix}"
    write_text(stm, "".join(f"{line}\n" for line in [*reference.comments, *reference.parts[part]]))
    write_text(ctm, "".join(_lines(words, files)))
    shutil.copyfile(glm, folder / f"glm{suffix}")  # under a plain name
    command: list[str | Path] = [hubscr, "-p", hubscr.parent, "-V", "-l", "english", "-h", "hub5", "-g", f"glm{suffix}", "-r", stm.name,
                                 ctm.name]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    raw = folder / f"{ctm.name}.filt.raw"
    if done.returncode or not raw.is_file():
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if "rror" in line]
        raise UserError(f"NIST's scoring of {ctm} ended with status {done.returncode} ({said[0] if said else 'it says nothing'}); see "
                        f"what it makes of {stm} and {glm}.")
    return read_raw(raw)


def read_raw(path: Path) -> WerStats:
    """The counts of sclite's report with numbers of words (.raw). Raises UserError where it has no sum."""
    for line in path.read_text(errors="replace").splitlines():
        match = re.match(r"\s*\|\s*Sum\s*\|([\d\s]+)\|([\d\s]+)\|", line)
        if match:
            sentences, words = map(int, match[1].split())
            _, substituted, deleted, inserted, _, wrong = map(int, match[2].split())
            return WerStats(words, inserted, deleted, substituted, sentences, wrong)
    raise UserError(f"{path} has no line Sum; score again (steps/score_sclite.sh).")
