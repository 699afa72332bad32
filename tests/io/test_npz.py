"""Archives of arrays: the same as numpy's, whatever was damaged, and memory that does not grow with what lies in files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from pykaldist.io import npz
from pykaldist.io.entries import numpy_damage
from pykaldist.io.npz import read_npz, write_npz
from pykaldist.io.scratch import scratch_array
from tests.io.test_scratch import resident

ARRAYS = arrays_of.arrays(st.sampled_from(["<i4", "<f8", "u1", "?", "<U3"]),
                          arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))


class InTwo:
    """Rows of two files."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.parts, self.dtype, self.shape = (first, second), first.dtype, (len(first) + len(second), *first.shape[1:])

    def pieces(self) -> Iterator[np.ndarray]:
        yield from self.parts


@given(st.dictionaries(st.sampled_from("abcd"), ARRAYS, max_size=4), st.sampled_from([4, 100]))
def test_numpy_reads_what_is_written_and_the_other_way_round(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray],
                                                             piece: int) -> None:
    folder = tmp_path_factory.mktemp("npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npz, "PIECE", piece)
        written = io.BytesIO()
        write_npz(written, arrays)
        written.seek(0)
        theirs = np.load(written, allow_pickle=False)
        assert set(theirs) == set(arrays)
        np.savez(folder / "theirs.npz", **arrays)
        ours = {scratch: read_npz(folder / "theirs.npz", scratch) for scratch in (None, folder)}
        for name, array in arrays.items():
            for found in (theirs[name], ours[None][name], ours[folder][name]):
                assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()


def test_rows_of_several_files_are_one_array(tmp_path: Path) -> None:
    rows = np.arange(35.0).reshape(7, 5)
    with open(tmp_path / "a.npz", "wb") as stream:
        write_npz(stream, {"rows": InTwo(rows[:3], rows[3:])})
    assert np.array_equal(read_npz(tmp_path / "a.npz", None)["rows"], rows)


def test_what_lies_in_files_stays_there(tmp_path: Path) -> None:
    rows = scratch_array((25_000_000,), np.int32, 10, tmp_path)
    rows[:] = 7
    before = resident()
    with open(tmp_path / "a.npz", "wb") as stream:
        write_npz(stream, {"rows": rows})
    assert resident() < before
    before = resident()
    found = read_npz(tmp_path / "a.npz", tmp_path)["rows"]
    assert resident() < before + 40e6  # of 100 MB
    assert found[0] == found[-1] == 7 and len(found) == len(rows)


@pytest.mark.parametrize("change", ["cut", "flip", "objects", "fortran", "longer"])
def test_damage_is_found(tmp_path: Path, change: str) -> None:
    path, rows = tmp_path / "a.npz", np.arange(3000.0).reshape(50, 60)
    if change == "objects":
        np.savez(path, rows=np.array([{}], object))
    elif change == "fortran":
        np.savez(path, rows=np.asfortranarray(rows))
    else:
        np.savez(path, rows=rows)
        content = bytearray(path.read_bytes())
        if change == "cut":
            del content[2000:]
        elif change == "flip":
            content[2000] ^= 1
        else:
            content = content.replace(b"(50, 60)", b"(51, 60)")
        path.write_bytes(content)
    with pytest.raises(numpy_damage()):
        read_npz(path, None)
