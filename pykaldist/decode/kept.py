"""The finished lattices of a decoding job, kept on disk so that a job that was stopped goes on at its next utterance.

`lat.JOB.part` grows by an utterance at a time, each a gzip member of its own, so that the file is an archive at any length. `lat.JOB.done`
has a checksum of all that the lattices depend on, then a line an utterance: where its lattice ends in the archive, or why it has none. The
archive becomes `lat.JOB.gz` when all are done; the list stays, and a job that is run again has nothing left to do.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from pykaldist.decode.lattice import Lattice
from pykaldist.io import provenance


def fingerprint(files: Iterable[Path], *rest: object) -> str:
    """The checksum of files, those of them that exist, and of whatever else a result depends on."""
    digest = hashlib.blake2b(repr(rest).encode(), digest_size=16)
    for path in files:
        if path.is_file():
            digest.update(f"{path.name} {provenance.checksum(path)}\n".encode())
    return digest.hexdigest()


class KeptLattices:
    """The lattices that job `job` has put into `decode_dir`; what belongs to another `key` is removed.

    `done`: the utterances that have a lattice; `failed`: why others have none; `finished`: whether the job had come to its end.
    """

    def __init__(self, decode_dir: Path, job: int, key: str) -> None:
        self.archive, self._part, self._list = (decode_dir / f"lat.{job}.{end}" for end in ("gz", "part", "done"))
        self.done: list[str] = []
        self.failed: dict[str, str] = {}
        lines = self._list.read_text(encoding="utf-8").splitlines(keepends=True) if self._list.is_file() else []
        here = bool(lines) and lines[0] == f"{key}\n"
        self.finished = here and self.archive.is_file()
        size = (self.archive if self.finished else self._part).stat().st_size if self.finished or (here and self._part.is_file()) else 0
        kept, end = [f"{key}\n"], 0
        for line in lines[1:] if here else []:
            utt, _, what = line.rstrip("\n").partition(" ")
            if not line.endswith("\n") or (what.isdecimal() and int(what) > size):
                break  # it was ended within this line, or the machine before the archive was on disk
            kept.append(line)
            if what.isdecimal():
                end = int(what)
                self.done.append(utt)
            else:
                self.failed[utt] = what
        if self.finished:
            return
        decode_dir.mkdir(parents=True, exist_ok=True)
        self.archive.unlink(missing_ok=True)
        self._list.write_text("".join(kept), encoding="utf-8")
        self._archive, self._lines = open(self._part, "ab"), open(self._list, "a", encoding="utf-8")  # noqa: SIM115 (closed by `finish`)
        os.truncate(self._part, end)

    def left(self, utts: Iterable[str]) -> list[str]:
        """Those of these utterances that are still to be decoded."""
        over = {*self.done, *self.failed}
        return [utt for utt in utts if utt not in over]

    def add(self, utt: str, lattice: Lattice) -> None:
        """Keep a lattice."""
        self._archive.write(gzip.compress(utt.encode("utf-8") + b" " + lattice.to_bytes(), mtime=0))
        self._archive.flush()
        self._note(utt, str(self._archive.tell()))
        self.done.append(utt)

    def fail(self, utt: str, why: str) -> None:
        """Keep that an utterance has no lattice, and why."""
        why = " ".join(why.split())
        self._note(utt, why)
        self.failed[utt] = why

    def _note(self, utt: str, what: str) -> None:
        self._lines.write(f"{utt} {what}\n")
        self._lines.flush()

    def finish(self) -> None:
        """Give the archive its name: all utterances are done."""
        self._archive.close()
        self._lines.close()
        os.replace(self._part, self.archive)
        self.finished = True
