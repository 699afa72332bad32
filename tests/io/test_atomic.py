"""Files appear whole or not at all."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest

from pykaldist.errors import UserError, os_error_sentence
from pykaldist.io import atomic
from pykaldist.io.atomic import atomic_open, copy_file, write_text
from pykaldist.io.tables import MatrixReader, MatrixWriter


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "f", "old")
    with pytest.raises(RuntimeError), atomic_open(tmp_path / "f") as stream:
        stream.write("new")
        raise RuntimeError
    assert (tmp_path / "f").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_copy_is_what_a_second_reading_gives(tmp_path, monkeypatch):
    (tmp_path / "in").write_bytes(bytes(range(256)) * 100)
    copy_file(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    read, parts = atomic._read_part, []

    def flipped(stream, path):
        part = read(stream, path)
        parts.append(part)
        return part if len(parts) > 1 else part[:9] + b"?" + part[10:]

    monkeypatch.setattr(atomic, "_read_part", flipped)
    with pytest.raises(UserError, match=r"in was read twice while it was copied to .*out2, and was not the same"):
        copy_file(tmp_path / "in", tmp_path / "out2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_archive_cut_short_leaves_neither_ark_nor_scp(tmp_path):
    with pytest.raises(RuntimeError), MatrixWriter(tmp_path / "a.ark", tmp_path / "a.scp") as writer:
        writer.write("utt", np.ones((3, 2), np.float32))
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with MatrixWriter(tmp_path / "a.ark", tmp_path / "a.scp") as writer:
        writer.write("utt", np.ones((3, 2), np.float32))
    assert np.array_equal(MatrixReader(tmp_path / "a.scp")["utt"], np.ones((3, 2)))


def test_a_full_disk_is_one_sentence_and_nothing_half_written(tmp_path):
    """The limit on file size stands in for a full disk: both end in an OSError from write."""
    script = ("import sys; from pathlib import Path; import numpy as np; from pykaldist.io.tables import MatrixWriter\n"
              "from pykaldist.errors import os_error_sentence\n"
              "try:\n"
              f"    with MatrixWriter(r'{tmp_path}/a.ark', r'{tmp_path}/a.scp') as w: w.write('u', np.ones((1000, 40), np.float32))\n"
              "except OSError as e: sys.exit(os_error_sentence(e))\n")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
    assert result.returncode == 1 and "a.ark; raise it and run the same command again" in result.stderr
    assert not list(tmp_path.iterdir())
    assert "no space left" in os_error_sentence(OSError(28, "No space left on device", "x"))


def test_an_array_that_numpy_could_not_write_whole(tmp_path):
    """numpy's error has no number, and names no file."""
    with pytest.raises(OSError, match="No space left on device") as caught, atomic_open(tmp_path / "rows.npy", "wb"):
        raise OSError("2000 requested and 1000 written")
    assert os_error_sentence(caught.value).startswith(f"no space left on the device while writing {tmp_path}/rows.npy; free some space")
    assert not list(tmp_path.iterdir())
