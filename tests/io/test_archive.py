"""Archives: what is written is read, compressed matrices against an independent reader, damage ends in a sentence and costs no memory."""

from __future__ import annotations

import gzip
import io
import pickle
import tracemalloc
from pathlib import Path

import kaldiio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pykaldist.errors import UserError
from pykaldist.io.archive import read_value
from pykaldist.io.entries import DAMAGE, read_key
from pykaldist.io.kaldi import KaldiReader
from pykaldist.io.tables import (
    SPEECH_FEATURE,
    MatrixReader,
    MatrixWriter,
    read_archive,
    read_int_vectors,
    write_int_vectors,
    write_matrix,
)

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Zs", "Cc", "Zl", "Zp", "Cs")), min_size=1, max_size=9)
VECTORS = st.dictionaries(KEYS, hnp.arrays(np.int32, st.integers(0, 6)), max_size=4)


@settings(max_examples=60)
@given(VECTORS, st.booleans(), st.booleans())
def test_int_vectors_come_back(tmp_path_factory: pytest.TempPathFactory, vectors: dict[str, np.ndarray], binary: bool, gz: bool) -> None:
    path = tmp_path_factory.getbasetemp() / ("v.gz" if gz else "v.ark")
    assert write_int_vectors(path, vectors.items(), binary) == len(vectors)
    again = dict(read_int_vectors(path))
    assert list(again) == list(vectors)
    for key, vector in vectors.items():
        np.testing.assert_array_equal(again[key], vector)


def test_golden_text_and_binary(golden: Path, tmp_path: Path) -> None:
    source = golden / "an4_kaldi/tri1"
    as_text = dict(read_int_vectors(source / "ali20.txt"))
    as_binary = {utt: tids for utt, tids in read_int_vectors(source / "ali.1.gz") if utt in as_text}
    assert list(as_text) == list(as_binary)
    write_int_vectors(tmp_path / "t", as_binary.items(), binary=False)
    assert (tmp_path / "t").read_bytes() == (source / "ali20.txt").read_bytes()
    write_int_vectors(tmp_path / "g.gz", read_int_vectors(source / "ali.1.gz"), binary=False)
    assert gzip.decompress((tmp_path / "g.gz").read_bytes()) == gzip.decompress((source / "ali.1.gz").read_bytes())


@pytest.mark.parametrize("method", [1, 2, 3, 4, 5, 6, 7])
def test_compressed_matrices(tmp_path: Path, method: int) -> None:
    """kaldiio's writer and reader are the reference; methods make CM, CM2 and CM3."""
    x = np.random.default_rng(method).normal(size=(23, 5)).astype(np.float32)
    if method >= 5:
        x = np.clip(np.abs(x), 0, 1) if method != 5 else np.round(x)
    kaldiio.save_ark(str(tmp_path / "c.ark"), {"a": x, "b": x[:9]}, compression_method=method)
    expected = dict(kaldiio.load_ark(str(tmp_path / "c.ark")))
    for key, found in read_archive(tmp_path / "c.ark"):
        np.testing.assert_allclose(found, expected[key], atol=2e-6)
    content = (tmp_path / "c.ark").read_bytes()
    np.testing.assert_allclose(KaldiReader(content[2:], "c").matrix(), expected["a"], atol=2e-6)


@pytest.mark.parametrize("kind", ["float32", "float64", "vector", "text", "CM", "CM2", "CM3"])
def test_the_number_of_rows_is_read_without_the_rows(tmp_path: Path, kind: str) -> None:
    """Also of the rows that an scp file chooses, and where the elements are missing, if the value is binary."""
    x = np.random.default_rng(1).random((23, 5)).astype("float64" if kind == "float64" else "float32")
    methods, ark = {"CM": 2, "CM2": 3, "CM3": 7}, tmp_path / "x.ark"
    kaldiio.save_ark(str(ark), {"a": x[:, 0] if kind == "vector" else x}, scp=str(tmp_path / "x.scp"), text=kind == "text",
                     compression_method=methods.get(kind))
    where = (tmp_path / "x.scp").read_text().strip()
    (tmp_path / "x.scp").write_text(f"{where}\n{where.replace('a ', 'some ', 1)}[3:9]\n")
    reader = MatrixReader(tmp_path / "x.scp")
    assert {key: reader.num_rows(key) for key in reader} == {key: len(value) for key, value in reader.items()} == {"a": 23, "some": 7}
    ark.write_bytes(ark.read_bytes()[:40])
    if kind == "text":
        with pytest.raises(UserError, match=r"x.scp, a: .* is no readable matrix"):
            reader.num_rows("a")
    else:
        assert reader.num_rows("a") == 23
    ark.write_bytes(ark.read_bytes()[:9])
    with pytest.raises(UserError, match=r"x.scp, a: .* is no readable matrix"):
        reader.num_rows("a")


@settings(max_examples=80)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(-3, 3), st.booleans(), st.booleans(), st.integers(0, 99))
def test_a_compressed_matrix_has_kaldiios_bytes(rows: int, cols: int, size: int, double: bool, constant: bool, seed: int) -> None:
    """Also where columns are constant, alone or all, and where there are fewer rows than percentiles."""
    x = (np.random.default_rng(seed).normal(size=(rows, cols)) * 10.0 ** size).astype(np.float64 if double else np.float32)
    x[:, 0] = 3.5
    if constant:
        x[:] = x[0, -1]
    expected, found = io.BytesIO(), io.BytesIO()
    kaldiio.save_mat(expected, x, compression_method=2)
    write_matrix(found, x, SPEECH_FEATURE)
    assert found.getvalue() == expected.getvalue()


def test_compressed_golden(golden: Path) -> None:
    """The same utterances compressed and as text; CM keeps them within a step of their column's range."""
    exact = dict(read_archive(golden / "an4_kaldi/dnn/loglikes4.txt.gz"))
    compressed = {utt: x for utt, x in read_archive(golden / "an4_kaldi/dnn/loglikes.ark") if utt in exact}
    assert compressed
    for utt, x in compressed.items():
        assert np.abs(exact[utt] - x).max() < np.ptp(x, axis=0).max() / 64


def test_text_matrices_and_vectors(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("m  [\n  1 2.5\n  3 4 ]\nv  [ 1 2.5 ]\ni 1 2\nn\nf 0.5\ne  [ ]\n")
    found = dict(read_archive(tmp_path / "a"))
    assert found["m"].tolist() == [[1, 2.5], [3, 4]] and found["v"].tolist() == [1, 2.5]
    assert found["i"].dtype == np.int32 and found["n"].shape == (0,) and found["f"].dtype == np.float32 and found["e"].size == 0


def test_scp_offsets_and_ranges(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float32).reshape(8, 5)
    with MatrixWriter(tmp_path / "m.ark", tmp_path / "m.scp") as writer:
        writer.write("a", x)
        writer.write("b", x.astype(np.float64) + 1)
    where = MatrixReader(tmp_path / "m.scp")._where["b"]
    (tmp_path / "r.scp").write_text(f"rows {where}[2:4]\nboth {where}[2:4,1:1]\ncols {where}[:,0:2]\nwrong {where}[5:8]\n")
    found = MatrixReader(tmp_path / "r.scp")
    np.testing.assert_array_equal(found["rows"], x[2:5] + 1)
    np.testing.assert_array_equal(found["both"], x[2:5, 1:2] + 1)
    np.testing.assert_array_equal(found["cols"], x[:, :3] + 1)
    assert found["rows"].dtype == np.float64
    with pytest.raises(UserError, match=r"r\.scp, wrong: .*range"):
        found["wrong"]


@pytest.fixture(scope="module")
def an_archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("archive") / "a.ark"
    x = np.random.default_rng(0).normal(size=(7, 3))
    kaldiio.save_ark(str(path), {"f": x.astype(np.float32), "d": x, "v": x[0], "i": np.arange(5, dtype=np.int32)})
    kaldiio.save_ark(str(path), {"c": x.astype(np.float32)}, append=True, compression_method=2)
    return path.read_bytes()


def entries(content: bytes) -> int:
    stream = io.BufferedReader(io.BytesIO(content))  # type: ignore[arg-type]  # BytesIO is raw enough
    count = 0
    while read_key(stream) is not None:
        read_value(stream)
        count += 1
    return count


def test_every_truncation_is_noticed(an_archive: bytes) -> None:
    whole = entries(an_archive)
    assert whole == 5
    for length in range(1, len(an_archive)):
        try:
            assert entries(an_archive[:length]) < whole
        except DAMAGE:
            continue


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=4), st.binary(max_size=8))
def test_damage_raises_nothing_else(an_archive: bytes, changes: list[tuple[int, int]], inserted: bytes) -> None:
    content = bytearray(an_archive)
    for where, byte in changes:
        content[where % len(content)] = byte
    content[changes[0][0] % len(content):0] = inserted
    try:
        entries(bytes(content))
    except DAMAGE:
        return


@pytest.mark.parametrize("value", [
    b"FM \4\xff\xff\xff\x7f\4\xff\xff\xff\x7f", b"DV \4\xff\xff\xff\x7f", b"FM \4\xff\xff\xff\xff\4\5\0\0\0", b"\4\xff\xff\xff\x7f",
    b"CM \0\0\0\0\0\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f", b"CM2 " + b"\0" * 12 + b"\xff\xff\xff\xff",
    b"XM \4\1\0\0\0", b"\4\1\0\0\0\2\0\0\0\0"])
def test_lengths_are_not_believed(tmp_path: Path, value: bytes) -> None:
    (tmp_path / "bad.ark").write_bytes(b"utt1 \0B" + value)
    (tmp_path / "bad.scp").write_text(f"utt1 {tmp_path}/bad.ark:5\n")
    tracemalloc.start()
    with pytest.raises(UserError, match=r"bad\.ark is no readable archive: entry 1 \(utt1\)"):
        list(read_archive(tmp_path / "bad.ark"))
    with pytest.raises(UserError, match=r"bad\.scp, utt1: .* is no readable matrix"):
        MatrixReader(tmp_path / "bad.scp")["utt1"]
    assert tracemalloc.get_traced_memory()[1] < 1 << 26
    tracemalloc.stop()


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path(tmp_path / "was_run"),)  # type: ignore[return-value]

    (tmp_path / "p.ark").write_bytes(b"utt1 PKL" + pickle.dumps(Evil()))
    with pytest.raises(UserError, match="damaged"):
        list(read_archive(tmp_path / "p.ark"))
    assert not (tmp_path / "was_run").exists()


def test_wrong_kinds_are_named(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("utt1  [\n 1 2 ]\n")
    with pytest.raises(UserError, match="m, utt1: expected a vector of integers, found a matrix"):
        list(read_int_vectors(tmp_path / "m"))
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"utt1 1 2 3\n" * 99)[:-12])
    with pytest.raises(UserError, match=r"x\.gz is no readable archive"):
        list(read_int_vectors(tmp_path / "x.gz"))
