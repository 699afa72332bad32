"""The table programs: there and back by every kind of table and pipe, beside numpy and Kaldi's own numbers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pykaldist.cli import main
from pykaldist.io.archive import read_value
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_object, read_table, write_value
from pykaldist.io.tables import read_archive

ROOT = Path(__file__).resolve().parents[2]
KEYS = st.lists(st.text("abc-_09", min_size=1, max_size=6), unique=True, max_size=5)
NUMBERS = st.floats(-1e4, 1e4, width=32).map(lambda x: float(np.float32(f"{x:.7g}")))
MATRICES = arrays(np.float32, st.tuples(st.integers(1, 5), st.just(3)), elements=NUMBERS)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, np.ndarray]:
    return {key: draw(MATRICES) for key in sorted(draw(KEYS))}


def write(path: str, table: dict[str, np.ndarray]) -> None:
    with TableWriter(path, write_value) as out:
        for key, value in table.items():
            out.write(key, value)


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)


@settings(max_examples=25)
@given(tables())
def test_any_table_comes_back_by_every_way(table: dict[str, np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as d:
        for target, source in ((f"ark:{d}/a", f"ark:{d}/a"), (f"ark,t:{d}/t", f"ark,s,cs:{d}/t"), (f"ark,scp:{d}/b,{d}/s", f"scp:{d}/s"),
                               (f"ark:| gzip -c > {d}/z.gz", f"ark:gunzip -c {d}/z.gz|"), (f"ark,t:|cat>{d}/c", f"ark,o:cat {d}/c |"),
                               (f"ark,f:{d}/a.gz", f"scp:cat {d}/s |")):
            write(target, table)
            same(dict(read_table(source, read_value)), table)
        same({key: value for key in table if (value := RandomAccess(f"ark:{d}/a", read_value).get(key)) is not None}, table)


@settings(max_examples=25)
@given(tables(), tables(), st.booleans())
def test_random_access_finds_what_is_there(table: dict[str, np.ndarray], other: dict[str, np.ndarray], in_order: bool) -> None:
    with tempfile.TemporaryDirectory() as d:
        write(f"ark,scp:{d}/a,{d}/s", table)
        for source in (f"ark{',s,cs' if in_order else ''}:{d}/a", f"scp:{d}/s"):
            reader = RandomAccess(source, read_value)
            keys = sorted({*table, *other}, reverse=not in_order)
            assert {key for key in keys if reader.get(key) is not None} == set(table)


@settings(max_examples=25)
@given(tables(), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 2))
def test_selections_are_numpys(table: dict[str, np.ndarray], dims: list[int], n: int, offset: int) -> None:
    with tempfile.TemporaryDirectory() as d:
        write(f"ark:{d}/a", table)
        for words, expected in (
                (["select-feats", ",".join(map(str, dims))], {key: x[:, dims] for key, x in table.items()}),
                (["subsample-feats", f"--n={n}", f"--offset={offset}"], {k: x[offset::n] for k, x in table.items() if len(x) > offset}),
                (["subsample-feats", f"--n=-{n}"], {key: np.repeat(x, n, axis=0) for key, x in table.items()}),
                (["splice-feats", f"--left-context={offset}", "--right-context=0"],
                 {k: np.hstack([x[np.maximum(np.arange(len(x)) - i, 0)] for i in range(offset, -1, -1)]) for k, x in table.items()})):
            assert main([*words, f"ark:{d}/a", f"ark:{d}/b"]) == (0 if expected else 1)
            same(dict(read_archive(f"{d}/b")), expected)
        assert main(["paste-feats", f"ark:{d}/a", f"ark:{d}/a", f"ark:{d}/b"]) == (0 if table else 1)
        same(dict(read_archive(f"{d}/b")), {key: np.hstack([x, x]) for key, x in table.items()})


@settings(max_examples=25)
@given(tables())
def test_sums_are_numpys(table: dict[str, np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as d:
        table = {key: x[:1] for key, x in table.items()}
        write(f"ark:{d}/a", table)
        assert main(["matrix-sum", f"ark:{d}/a", f"{d}/sum"]) == (0 if table else 1)
        assert main(["matrix-sum", "--scale1=2", f"ark:{d}/a", f"ark:{d}/a", f"ark:{d}/twice"]) == (0 if table else 1)
        assert main(["matrix-sum-rows", f"ark:{d}/a", f"ark:{d}/rows"]) == (0 if table else 1)
        same(dict(read_archive(f"{d}/twice")), {key: x * 2 + x for key, x in table.items()})
        if table:
            assert main(["vector-sum", "--binary=false", f"ark:{d}/rows", f"{d}/vector"]) == 0
            total = np.sum(list(table.values()), axis=0, dtype=np.float64)
            found = np.array(Path(f"{d}/vector").read_text().strip(" []\n").split(), float)
            np.testing.assert_allclose(found, total[0], rtol=1e-6, atol=1e-3)


def test_kaldis_numbers_down_a_pipe(golden: Path, tmp_path: Path) -> None:
    """MFCC, their statistics, normalisation, deltas and splicing, as Kaldi's own programs made them, by our programs of the same names."""
    feats = golden / "feats"
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}", "F": str(feats)}
    env.setdefault("PYKALDIST_PYTHON", __import__("sys").executable)

    def shell(line: str) -> str:
        return subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout

    shell('copy-feats "ark:gunzip -c $F/mfcc13_16k.txt.gz|" ark,scp:m.ark,m.scp')
    for command, expected in (
            ("compute-cmvn-stats scp:m.scp ark,t:-", "cmvn_stats_16k"),
            ("apply-cmvn --norm-vars=true 'ark:compute-cmvn-stats scp:m.scp ark:- |' scp:m.scp ark:- | copy-feats ark:- ark,t:-",
             "mfcc13_cmvn_16k"),
            ("cat m.ark | add-deltas ark:- ark,t:-", "mfcc39_deltas_16k"),
            ("splice-feats --left-context=3 --right-context=3 scp:m.scp ark,t:-", "mfcc13_splice3_16k")):
        (tmp_path / "out").write_text(shell(command))
        found, golden_values = (dict(read_archive(path)) for path in (tmp_path / "out", feats / f"{expected}.txt.gz"))
        assert list(found) == list(golden_values)
        for key, value in golden_values.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=2e-3)
    assert shell("feat-to-dim scp:m.scp -") == "13\n"
    lengths = {key: len(value) for key, value in read_archive(tmp_path / "m.ark")}
    assert shell("feat-to-len scp:m.scp ark,t:-") == "".join(f"{key} {length}\n" for key, length in lengths.items())
    assert shell("feat-to-len scp:m.scp") == f"{sum(lengths.values())}\n"
    assert shell("head -1 m.scp | copy-feats scp:- ark,t:- | wc -l") == f"{next(iter(lengths.values())) + 1}\n"
    assert shell("set -o pipefail; copy-feats scp:m.scp ark,t:- | head -1 || true").endswith("  [\n")


def test_copies_with_a_change(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(" [\n 1 2\n 3 4 ]\n")
    (tmp_path / "v").write_text("a  [ 1 2 3 ]\nb  [ ]\n")
    base = f"{tmp_path}/"
    for options, expected in ((["--scale=2"], [[2, 4], [6, 8]]), (["--apply-log=true"], np.log([[1, 2], [3, 4]])),
                              (["--apply-exp"], np.exp([[1, 2], [3, 4]])), (["--apply-power=2", "--scale=2"], [[4, 16], [36, 64]])):
        assert main(["copy-matrix", *options, base + "m", base + "n"]) == 0
        np.testing.assert_allclose(read_object(base + "n", read_value), expected, rtol=1e-6)
    assert main(["copy-matrix", "--scale=-1", "--apply-log", base + "m", base + "x"]) == 1
    for dim, expected in ((2, "a  [ 1 2 ]\nb  [ 0 0 ]\n"), (4, "a  [ 1 2 3 0 ]\nb  [ 0 0 0 0 ]\n")):
        assert main(["copy-vector", f"--change-dim={dim}", f"ark:{base}v", f"ark,t:{base}w"]) == 0
        assert (tmp_path / "w").read_text() == expected
    assert main(["vector-scale", "--scale=0.5", f"ark:{base}v", f"ark,t:{base}w"]) == 0
    assert (tmp_path / "w").read_text() == "a  [ 0.5 1 1.5 ]\nb  [ ]\n" and not (tmp_path / "x").exists()
    assert main(["matrix-dim", base + "m"]) == 0


def test_by_speaker(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {f"s{s}-{u}": rng.normal(s, 1 + s, (20, 2)).astype(np.float32) for s in range(2) for u in range(3)}
    write(f"ark,scp:{tmp_path}/f,{tmp_path}/f.scp", table)
    (tmp_path / "utt2spk").write_text("".join(f"{utt} {utt[:2]}\n" for utt in table))
    (tmp_path / "spk2utt").write_text("s0 s0-0 s0-1 s0-2\ns1 s1-0 s1-1 s1-2 absent\n")
    assert main(["compute-cmvn-stats", f"--spk2utt=ark:{tmp_path}/spk2utt", f"scp:{tmp_path}/f.scp",
                 f"ark,scp:{tmp_path}/c,{tmp_path}/c.scp"]) == 0
    assert main(["apply-cmvn", "--norm-vars=true", f"--utt2spk=ark:{tmp_path}/utt2spk", f"scp:{tmp_path}/c.scp", f"scp:{tmp_path}/f.scp",
                 f"ark:{tmp_path}/n"]) == 0
    normalised = dict(read_archive(tmp_path / "n"))
    for speaker in ("s0", "s1"):
        frames = np.vstack([x for utt, x in normalised.items() if utt.startswith(speaker)])
        np.testing.assert_allclose(frames.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(frames.std(0), 1, atol=1e-5)
    transforms = {"s0": np.array([[1, 1, 5]], np.float32), "s1": np.array([[2, 0]], np.float32)}
    write(f"ark:{tmp_path}/trans", transforms)
    assert main(["transform-feats", f"--utt2spk=ark:{tmp_path}/utt2spk", f"ark:{tmp_path}/trans", f"scp:{tmp_path}/f.scp",
                 f"ark:{tmp_path}/y"]) == 0
    for utt, y in read_archive(tmp_path / "y"):
        x = table[utt]
        np.testing.assert_allclose(y[:, 0], x.sum(1) + 5 if utt.startswith("s0") else 2 * x[:, 0], rtol=1e-5)


def test_nothing_half_written_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("u  [\n 1 2\n 3 4 ]\nv  [\n 1 2\n")
    assert main(["copy-feats", f"ark:{tmp_path}/a", f"ark,scp:{tmp_path}/b,{tmp_path}/b.scp"]) == 1
    assert "entry 2 (v) is damaged or truncated" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a"]
    assert main(["copy-feats", f"ark,p:{tmp_path}/a", f"ark:{tmp_path}/b"]) == 0
    assert list(dict(read_archive(tmp_path / "b"))) == ["u"]
    (tmp_path / "s").write_text("u cat nothing|\n")
    assert main(["copy-feats", f"scp:{tmp_path}/s", f"ark:{tmp_path}/c"]) == 1
    assert "a pipe in an scp file is not run" in capsys.readouterr().err and not (tmp_path / "c").exists()
    assert main(["copy-feats", f"ark:{tmp_path}/b", "ark:| cat > /dev/null; exit 4"]) == 1
    assert "which was written to, ended with status 4" in capsys.readouterr().err
