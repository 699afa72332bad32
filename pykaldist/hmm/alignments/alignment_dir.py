"""Alignment directories: the files that hold the pdf, and the phone, of every frame between stages.

All alignments, made here or imported, have this one form.

Where a system made them it is Kaldi's: `ali.<job>.gz` with a transition_id a frame, from which `final.mdl` gives pdf and phone. Labels
that came without transition_ids (another toolkit's pdfs) are `ali_pdf.<job>.gz`, and `num_pdfs` with their number; `tree` and
`final.mdl` stand beside them if they are known. `num_jobs` has the number of archives, `provenance.json` of an imported alignment where
it came from and what was matched. `texts.crc` has a checksum of each utterance's transcript (CRC-32): where a
data directory has another one under the same name, the alignment is of other audio.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.transition_model import TransitionModel, check_range
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.line_index import LineIndex
from pykaldist.io.schema import read_json
from pykaldist.io.scratch import RowWriter, release
from pykaldist.io.tables import read_int_vectors, write_int_vectors

PathLike = str | os.PathLike[str]

#: what an alignment directory may hold that belongs to one alignment
TEXTS = "texts.crc"
_IN_MEMORY = 1 << 18  # labels
FILES = ("final.mdl", "tree", "phones.txt", "cmvn_opts", "splice_opts", "delta_opts", "final.mat", "full.mat", "final.alimdl", "num_jobs",
         "num_pdfs", "provenance.json", "resume.npz", "pdf2group.map", "final.occs", TEXTS, provenance.FILE)
_OF_SPEAKERS = ("trans.*", "vecs.*")  # transforms, vectors


@dataclass
class Imported:
    """What `provenance.json` holds: from where an alignment was imported, with which options, and what was matched."""

    source: str
    format: str
    labels: str
    data: str
    lang: str
    options: dict[str, Any]
    report: dict[str, Any]


class Labels(Mapping[str, np.ndarray]):
    """The labels of utterances in one array, which may be one of io/scratch.py.

    Utterance number n = `int(numbers[utt])` has the rows `offsets[n]:offsets[n + 1]`.
    """

    def __init__(self, numbers: Mapping[str, int] | Mapping[str, str], offsets: Sequence[int] | np.ndarray, labels: np.ndarray) -> None:
        self._numbers, self._offsets, self._labels = numbers, offsets, labels

    @classmethod
    def read(cls, items: Iterable[tuple[str, np.ndarray]], scratch: Path, origin: Path) -> Labels:
        """Read the labels of `origin`; names, and many labels, lie in nameless files in the folder `scratch`.

        Raises UserError where an utterance is there twice.
        """
        rows, ends = RowWriter(_IN_MEMORY, scratch), array("q", [0])

        def numbers() -> Iterator[tuple[str, str]]:
            for number, (utt, labels) in enumerate(items):
                rows.append(labels)
                ends.append(rows.count)
                yield utt, str(number)

        return cls(LineIndex.of(numbers(), scratch, origin), ends, rows.array())

    def __getitem__(self, utt: str) -> np.ndarray:
        number = int(self._numbers[utt])
        mine = self._labels[self._offsets[number]:self._offsets[number + 1]]
        copy = mine.copy()
        release(mine)
        return copy

    def __contains__(self, utt: object) -> bool:
        return utt in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class AlignmentDir:
    """A directory of alignments; archives are read when first asked for, and many labels kept in a nameless file in `scratch`, if given.

    `model` is the transition model, or None; `num_pdfs` the number of pdfs that frames can have. `only`: whether an utterance of the
    archives is kept; all are without. Raises UserError where the directory holds no alignments, or archives and model are of different
    systems.
    """

    def __init__(self, path: PathLike, scratch: Path | None = None, only: Callable[[str], bool] | None = None) -> None:
        self.path, self.scratch, self.only = Path(path), scratch, only
        provenance.check(path)
        self._labels: Mapping[str, np.ndarray] | None = None
        self.model = read_transition_model(self.path / "final.mdl") if (self.path / "final.mdl").is_file() else None
        self.archives = archives(self.path, "ali")
        self.has_transition_ids = bool(self.archives)
        if self.has_transition_ids and self.model is None:
            raise UserError(f"{path} has ali.*.gz but no final.mdl, which says what their transition_ids mean; copy it there (cp "
                            f"MODEL/final.mdl {path}).")
        if not self.has_transition_ids:
            self.archives = archives(self.path, "ali_pdf")
            if not self.archives:
                raise UserError(f"{path} has no ali.*.gz; run steps/align_si.sh or steps/import_ali.sh first.")
        self.num_pdfs = self.model.num_pdfs if self.model is not None else self._stated_num_pdfs()

    def _stated_num_pdfs(self) -> int:
        path = self.path / "num_pdfs"
        text = path.read_text(encoding="utf-8").strip() if path.is_file() else "nothing"
        if not text.isdecimal():
            raise UserError(f"{path}: expected the number of pdfs, found {text}; run steps/import_ali.sh again.")
        return int(text)

    @property
    def provenance(self) -> dict[str, Any]:
        """The origin of an imported alignment; empty for one that was made here."""
        path = self.path / "provenance.json"
        return dataclasses.asdict(read_json(path, Imported, "run steps/import_ali.sh again")) if path.is_file() else {}

    def check_texts(self, data: DataDir) -> None:
        """Compare the transcripts with those that were aligned, where `texts.crc` tells; raises UserError where one is another."""
        path = self.path / TEXTS
        if not path.is_file() or not data.has("text"):
            return
        aligned = LineIndex(path)
        if other := [utt for utt, crc in _text_sums(data) if aligned.get(utt, crc) != crc]:
            raise UserError(f"{data.path}/text, {other[0]}: {len(other)} of {len(data.text)} transcripts are not those that {self.path} "
                            f"has aligned; align this data ({ALIGNING}), or remove {path} if its audio is the same.")

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Read all archives, one utterance after the other: (utterance, labels)."""
        low, high = (1, self.model.num_transition_ids) if self.has_transition_ids and self.model else (0, self.num_pdfs - 1)
        return read_archives(self.path, "ali" if self.has_transition_ids else "ali_pdf", low, high)

    @property
    def labels(self) -> Mapping[str, np.ndarray]:
        """Utterance -> transition_ids where `has_transition_ids`, else pdfs (int32, one a frame)."""
        if self._labels is None:
            items = ((utt, labels) for utt, labels in self.items() if self.only is None or self.only(utt))
            self._labels = dict(items) if self.scratch is None else Labels.read(items, self.scratch, self.path)
        return self._labels

    def pdfs(self, utt: str) -> np.ndarray | None:
        """The pdf of each frame (int32), or None where the utterance has no alignment."""
        ids = self.labels.get(utt)
        return self.model.tid2pdf[ids] if ids is not None and self.has_transition_ids and self.model else ids

    def phones(self, utt: str) -> np.ndarray | None:
        """The phone of each frame (int32), or None.

        None stands where the utterance has no alignment, or only its pdfs are known.
        """
        ids = self.labels.get(utt)
        return self.model.tid2phone[ids] if ids is not None and self.has_transition_ids and self.model else None


def archives(path: Path, stem: str) -> list[Path]:
    """The archives `<stem>.<job>.gz` of a directory, in the order of jobs."""
    found = [p for p in path.glob(f"{stem}.*.gz") if p.name.split(".")[1].isdecimal() and p.name.count(".") == 2]
    return sorted(found, key=lambda p: int(p.name.split(".")[1]))


def read_archives(path: Path, stem: str, low: int, high: int) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over (utterance, ids) of all `<stem>.<job>.gz`.

    Raises UserError where there are none, an utterance has none, or an id is outside low .. high.
    """
    found = False
    for archive in archives(path, stem):
        for utt, ids in read_int_vectors(archive):
            check_range(ids, low, high, f"{archive}, {utt}")
            if len(ids) == 0:
                raise UserError(f"{archive}, {utt}: expected a label for each frame, found none; the file is damaged: align again "
                                f"({ALIGNING}).")
            found = True
            yield utt, ids
    if not found:
        raise UserError(f"{path} has no alignments ({stem}.*.gz); align again from the beginning ({ALIGNING}).")


def of_speakers(path: Path) -> list[Path]:
    """The files of a directory that have something of each speaker."""
    return [found for pattern in _OF_SPEAKERS for found in path.glob(pattern)]


def clear(path: Path) -> None:
    """Remove the files of an older alignment."""
    path.mkdir(parents=True, exist_ok=True)
    of_jobs = (archive for stem in ("ali", "ali_pdf", "pre_ali") for archive in archives(path, stem))
    for old in (*(path / name for name in FILES), *of_jobs, *of_speakers(path)):
        old.unlink(missing_ok=True)


def write_labels(path: Path, data: DataDir, labels: Mapping[str, np.ndarray], nj: int, num_pdfs: int | None = None,
                 stem: str = "ali") -> None:
    """Write transition_ids, or pdfs where `num_pdfs` is given, of the utterances of `data` that have labels, in `nj` archives."""
    stem = stem if num_pdfs is None else "ali_pdf"
    for job in range(1, nj + 1):
        write_int_vectors(path / f"{stem}.{job}.gz", ((utt, labels[utt]) for utt in data.part(job, nj) if utt in labels))
    if num_pdfs is not None:
        write_text(path / "num_pdfs", f"{num_pdfs}\n")
    write_text(path / "num_jobs", f"{nj}\n")


def record(path: Path, made_by: str, data: DataDir | None = None, features: bool = True) -> None:
    """Leave in a finished directory which transcripts and `features` it was made of, and which of its files belong together."""
    (path / TEXTS).unlink(missing_ok=True)
    if data is not None and data.has("text"):
        write_text(path / TEXTS, "".join(f"{utt} {crc}\n" for utt, crc in _text_sums(data)))
    own = [*FILES, *(found.name for found in (*archives(path, "ali"), *archives(path, "ali_pdf"), *of_speakers(path)))]
    inputs = [] if data is None or not features else provenance.of_archives(data.feats.archives())
    provenance.record(path, made_by, inputs, [name for name in own if name not in ("resume.npz", TEXTS, provenance.FILE)])


def _text_sums(data: DataDir) -> Iterator[tuple[str, str]]:
    """Iterate over the utterances, each with the CRC-32 of its transcript."""
    return ((utt, f"{zlib.crc32(' '.join(words).encode()):08x}") for utt, words in data.text.items())


def silence_pdfs(model: TransitionModel, silence_phones: list[int]) -> np.ndarray:
    """The pdfs that only silence phones have."""
    silent = np.isin(model.tuples[:, 0], silence_phones)
    return np.setdiff1d(model.tuples[silent, 2:], model.tuples[~silent, 2:])
