"""Checksums of an archive's entries: whatever is changed in one, it is not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.io.specifiers import read_paths
from pykaldist.io.sums import sums_path
from pykaldist.io.tables import MatrixReader, MatrixWriter, output_archive, write_matrix


@pytest.fixture
def feats(tmp_path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"u{n}": rng.random((30, 4)).astype(np.float32) for n in range(3)}


def written(folder: Path, feats: dict[str, np.ndarray], method: int = 0) -> Path:
    with MatrixWriter(folder / "a.ark", folder / "a.scp", method) as writer:
        for utt, matrix in feats.items():
            writer.write(utt, matrix)
    return folder / "a.ark"


@pytest.mark.parametrize("method", [0, 2])
def test_every_flipped_bit_is_found(tmp_path: Path, feats: dict[str, np.ndarray], method: int) -> None:
    """A length among them: with one row less the matrix of Kaldi's format can still be read."""
    ark = written(tmp_path, feats, method)
    sound, rng = ark.read_bytes(), np.random.default_rng(1)
    exact = {utt: matrix for utt, matrix in MatrixReader(tmp_path / "a.scp").items()}
    assert method or all((exact[utt] == feats[utt]).all() for utt in feats)
    inside = [i for key in feats for start in [sound.index(f"{key} ".encode()) + 3] for i in range(start, start + 150)]
    for at in (3 + 2 + 3 + 2, *rng.choice(inside, 40, replace=False)):  # the first is the number of rows
        damaged = bytearray(sound)
        damaged[at] ^= 1 << int(rng.integers(8))
        ark.write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.scp, u\d: .*a\.ark:\d+ is no readable matrix \(its checksum is not that of a\.ark\.sums"):
            dict(MatrixReader(tmp_path / "a.scp").items())
    ark.write_bytes(sound[:-5])
    with pytest.raises(UserError, match=r"u2.*expected .* bytes, found"):
        dict(MatrixReader(tmp_path / "a.scp").items())


def test_an_archive_in_the_place_of_another(tmp_path: Path, feats: dict[str, np.ndarray]) -> None:
    ark = written(tmp_path, feats)
    stream = ark.open("wb")
    with stream:  # as another program would
        for utt, matrix in feats.items():
            stream.write(f"{utt} ".encode())
            write_matrix(stream, matrix + 1)
    with pytest.raises(UserError, match="the archive was damaged or replaced"):
        MatrixReader(tmp_path / "a.scp")["u0"]
    Path(sums_path(ark)).unlink()  # if it is meant
    assert (MatrixReader(tmp_path / "a.scp")["u0"] == feats["u0"] + 1).all()
    written(tmp_path, feats)
    (tmp_path / "a.scp").write_text(f"u0 {ark}:7\n")
    with pytest.raises(UserError, match=r"by a\.ark\.sums no entry begins there"):
        MatrixReader(tmp_path / "a.scp")["u0"]


def test_an_archive_written_again_has_no_old_checksums(tmp_path: Path, feats: dict[str, np.ndarray]) -> None:
    ark = written(tmp_path, feats)
    with output_archive(ark) as stream:
        for utt, matrix in feats.items():
            stream.write(f"{utt} ".encode())
            write_matrix(stream, matrix + 1)
    assert (MatrixReader(tmp_path / "a.scp")["u0"] == feats["u0"] + 1).all()
    written(tmp_path, feats)
    assert (MatrixReader(tmp_path / "a.scp")["u2"] == feats["u2"]).all()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01", b"x" * 100])
def test_damaged_checksums_are_a_sentence(tmp_path: Path, feats: dict[str, np.ndarray], content: bytes) -> None:
    ark = written(tmp_path, feats)
    Path(sums_path(ark)).write_bytes(content)
    with pytest.raises(UserError, match=r"a\.ark\.sums is damaged .*; make .*a\.ark again, or read that unchecked: rm "):
        MatrixReader(tmp_path / "a.scp")["u0"]
    with open(sums_path(ark), "wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(UserError, match=r"a\.ark\.sums is damaged \(no array of checksums\)"):
        MatrixReader(tmp_path / "a.scp")["u0"]


def test_parts_of_a_matrix_are_checked_too(tmp_path: Path, feats: dict[str, np.ndarray]) -> None:
    ark = written(tmp_path, feats)
    (tmp_path / "b.scp").write_text((tmp_path / "a.scp").read_text().replace("\n", "[0:4,1:2]\n"))
    assert read_paths(f"ark:{tmp_path}/a.ark*") == [str(ark)]  # checksums are no archive
    assert (MatrixReader(tmp_path / "b.scp")["u1"] == feats["u1"][:5, 1:3]).all()
    assert MatrixReader(tmp_path / "b.scp").archives() == [str(ark)]
