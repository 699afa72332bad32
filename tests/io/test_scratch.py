"""Arrays and values in nameless files are what was written, with and without their pages, and say where there is no room."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.scratch import RowWriter, StoredValues, block_array, in_parts, prefetch, release, scratch_array, slices


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(0, 20), st.booleans())
def test_rows_are_those_that_were_appended(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], limit: int, on_disk: bool) -> None:
    folder = tmp_path_factory.mktemp("scratch")
    rng, rows = np.random.default_rng(0), RowWriter(limit, folder if on_disk else None)
    parts = [rng.standard_normal((length, 3)).astype(np.float32) for length in lengths]
    for part in parts:
        rows.append(part)
    found = rows.array()
    assert len(found) == rows.count == sum(lengths) and not list(folder.iterdir())
    if parts:
        np.testing.assert_array_equal(found, np.concatenate(parts))


def test_pages_that_were_released_come_back(tmp_path: Path) -> None:
    array = scratch_array((10_000, 5), np.int32, 100, tmp_path / "new")
    assert not list((tmp_path / "new").iterdir()) and not array.any()
    expected = np.arange(50_000, dtype=np.int32).reshape(10_000, 5)
    for first in range(0, 10_000, 1_000):
        mine = array[first:first + 1_000]
        mine[:] = expected[first:first + 1_000]
        release(mine)
    prefetch(array)
    np.testing.assert_array_equal(array, expected)


@given(st.integers(0, 40), st.integers(1, 15))
def test_parts_are_all_rows_once_and_in_their_order(count: int, step: int) -> None:
    one, two = np.arange(count), np.arange(3 * count).reshape(count, 3)
    parts = list(in_parts(slices(count, step), one, two))
    assert all(len(part) == step for part, _ in parts[:-1])
    np.testing.assert_array_equal(np.concatenate([one[:0], *(part for part, _ in parts)]), one)
    np.testing.assert_array_equal(np.concatenate([two[:0], *(part for _, part in parts)]), two)


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_released_pages_are_no_memory_of_the_process(tmp_path: Path) -> None:
    array = scratch_array((1 << 23,), np.int64, 0, tmp_path)
    array[:] = 1
    full = resident()
    release(array)
    assert resident() < full - 50_000_000 and array[-1] == 1
    most = 0
    for part, in in_parts(slices(len(array), 1 << 19), array):
        assert part.all()
        most = max(most, resident())
    assert most < full - 45_000_000  # the last page brought up to a folio back, and a part is 4 MB


def test_parts_smaller_than_what_is_read_around_them_do_not_add_up(tmp_path: Path) -> None:
    rows = RowWriter(0, tmp_path)
    for _ in range(64):
        rows.append(np.ones(1 << 18, np.int32))
    array = rows.array()  # 67 MB
    before = resident()
    for first in range(0, len(array), 1200):
        mine = array[first:first + 1200]
        assert mine.all()
        release(mine)
    assert resident() < before + 10_000_000


def test_small_arrays_and_those_without_a_folder_lie_in_memory(tmp_path: Path) -> None:
    for array in (scratch_array((10, 2), np.float32, 10, tmp_path), scratch_array((10, 2), np.float32, 5)):
        array[3] = 7
        release(array)  # which does nothing to them
        prefetch(array[2:4])
        assert array.sum() == 14


@given(st.lists(st.tuples(st.text("aöß", max_size=3), st.binary(max_size=9)), max_size=60))
def test_stored_values_are_those_of_a_dictionary(tmp_path_factory: pytest.TempPathFactory, added: list[tuple[str, bytes]]) -> None:
    folder = tmp_path_factory.mktemp("stored")
    found, expected = StoredValues(bytes, lambda stream, value: stream.write(value), folder), dict[str, bytes]()
    for name, value in added:
        found.add(name, value)
        expected[name] = value
        assert found[name] == value
    assert list(found.items()) == list(expected.items()) and len(found) == len(expected)
    assert ("a" in found) == ("a" in expected) and "e" not in found and 7 not in found and found.get("e") is None
    assert not list(folder.iterdir())


def test_a_name_of_a_stored_value_takes_few_bytes_of_memory(tmp_path: Path) -> None:
    found = StoredValues(bytes, lambda stream, value: stream.write(value), tmp_path)
    found.add("", b"")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(20_000):
        found.add(f"speaker-{number:032d}", b"x")
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 50 * 20_000 and found[f"speaker-{19_999:032d}"] == b"x"


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=rf"{tmp_path}: no room for 4.0 MB .*No space left on device"):
        scratch_array((1_000_000,), np.float32, 10, tmp_path)


def test_memory_of_blocks_goes_back() -> None:
    """That of arrays of other sizes, between which something else is kept, too; malloc keeps 25 MB of these."""
    resident()
    before, kept = resident(), []
    for number in range(6):
        block = block_array(((1 << 19) - 40_000 * number, 13), np.float32)
        assert not block.any()
        block[:] = 1.0
        assert resident() - before > 0.9 * block.nbytes
        kept.append(np.ones(8000))
        del block
    assert resident() - before < 1 << 22 and len(kept) == 6
    assert block_array((0, 3), np.int32).shape == (0, 3)


def test_a_released_block_keeps_its_rows() -> None:
    block = block_array((1 << 18, 13), np.float32)
    block[:] = 1.0
    release(block)
    assert (block == 1.0).all()
