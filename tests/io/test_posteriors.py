"""Posteriors: both forms come back, the bytes are Kaldi's, damage ends in a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.posteriors import Posterior, read_posteriors, write_posteriors

FRAMES = st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(0, 4, width=16)), max_size=3), min_size=1, max_size=5)


def posterior(frames: list[list[tuple[int, float]]]) -> Posterior:
    pairs = [pair for frame in frames for pair in frame]
    return Posterior(np.concatenate([[0], np.cumsum([len(f) for f in frames], dtype=np.int64)]),
                     np.array([i for i, _ in pairs], dtype=np.int32), np.array([w for _, w in pairs], dtype=np.float32))


@settings(max_examples=60)
@given(st.lists(FRAMES, max_size=3), st.booleans())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, utterances: list[list[list[tuple[int, float]]]],
                                 binary: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "post.gz"
    expected = [posterior(frames) for frames in utterances]
    assert write_posteriors(path, ((f"u{n}", p) for n, p in enumerate(expected)), binary) == len(expected)
    found = list(read_posteriors(path))
    assert [key for key, _ in found] == [f"u{n}" for n in range(len(expected))]
    for (_, one), other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.offsets, other.offsets)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-6)


def test_bytes_are_kaldis(tmp_path: Path) -> None:
    p = posterior([[(3, 0.5), (7, 0.25)], [], [(1, 1.0)]])
    write_posteriors(tmp_path / "t", [("a", p)], binary=False)
    assert (tmp_path / "t").read_bytes() == b"a [ 3 0.5 7 0.25 ] [ ] [ 1 1 ] \n"
    write_posteriors(tmp_path / "b", [("a", p)])
    assert (tmp_path / "b").read_bytes() == (
        b"a \0B\4\3\0\0\0" b"\4\2\0\0\0\4\3\0\0\0\4\0\0\0\x3f\4\7\0\0\0\4\0\0\x80\x3e" b"\4\0\0\0\0" b"\4\1\0\0\0\4\1\0\0\0\4\0\0\x80\x3f")


@pytest.mark.parametrize("content", [
    b"a \n", b"a \0B\4\0\0\0\0",
    b"a [ 3 ] \n", b"a 3 4\n", b"a [ x 1 ] \n", b"a \0B\4\xff\xff\xff\x7f", b"a \0B\4\1\0\0\0\4\xff\xff\xff\x7f",
    b"a \0B\4\1\0\0\0\4\1\0\0\0\2\1\0\0\0\4\0\0\0\0", b"a \0B\2\1\0"])
def test_damage_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.ark").write_bytes(content)
    with pytest.raises(UserError, match=r"p\.ark is no readable archive: entry 1 \(a\)"):
        list(read_posteriors(tmp_path / "p.ark"))
