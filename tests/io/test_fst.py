from __future__ import annotations

from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, to_kaldifst

COLUMNS = ("final", "offset", "ilabel", "olabel", "weight", "nextstate")


@st.composite
def fsts(draw: st.DrawFn) -> Fst:
    states = draw(st.integers(2, 6))
    count = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    source = rng.integers(0, states, count)
    target = rng.integers(0, states, count)
    final = np.where(rng.random(states) < 0.4, rng.integers(0, 5, states), np.inf)
    final[-1] = 1
    return Fst.from_arcs(0, final, source, rng.integers(0, 3, count), rng.integers(0, 3, count), rng.integers(1, 9, count) / 4, target)


def same(a: Fst, b: Fst) -> bool:
    return a.start == b.start and all(np.array_equal(getattr(a, c), getattr(b, c)) for c in COLUMNS)


@given(fsts())
def test_what_is_written_is_read_by_us_and_by_kaldifst(fst: Fst) -> None:
    there = to_kaldifst(fst)
    assert there.num_states == fst.num_states
    assert same(from_kaldifst(there), fst)


@pytest.mark.parametrize("name", ["graph_mono/HCLG.fst", "graph_tri3/HCLG.fst", "lang/G.fst", "lang/L_disambig.fst"])
def test_golden_files(golden: Path, tmp_path: Path, name: str) -> None:
    path = golden / "an4_kaldi" / name
    fst = Fst.read(path)
    other = kaldifst.StdConstFst.read(str(path)) if "HCLG" in name else kaldifst.StdVectorFst.read(str(path))
    arcs = [(s, a.ilabel, a.olabel, a.weight.value, a.nextstate) for s in kaldifst.StateIterator(other)
            for a in kaldifst.ArcIterator(other, s.value if hasattr(s, "value") else s)]
    assert fst.start == other.start
    assert arcs == list(zip(fst.source.tolist(), fst.ilabel.tolist(), fst.olabel.tolist(), fst.weight.tolist(), fst.nextstate.tolist(),
                            strict=True))
    fst.write(tmp_path / "copy")
    assert same(Fst.read(tmp_path / "copy"), fst)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, golden: Path) -> list[bytes]:
    return [(golden / "an4_kaldi" / name).read_bytes() for name in ("graph_mono/HCLG.fst", "lang/G.fst")]


@settings(max_examples=200)
@given(data=st.data())
def test_damage_is_an_error_or_harmless(files: list[bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(files)))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, min(200, len(content) - 1)))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.fst"
    path.write_bytes(content)
    try:
        fst = Fst.read(path)
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert len(fst.offset) == fst.num_states + 1 and fst.offset[-1] == fst.num_arcs


def test_truncation_is_an_error(files: list[bytes], tmp_path: Path) -> None:
    for content in files:
        (tmp_path / "x").write_bytes(content[:-1])
        with pytest.raises(UserError, match="truncated"):
            Fst.read(tmp_path / "x")


@pytest.mark.parametrize("name", ["graph_mono", "graph_tri1", "graph_tri3"])
def test_kaldi_const_graphs_are_written_again_byte_for_byte(golden, tmp_path, name):
    """All but the properties of the header, of which we state only what a const file must have."""
    path = golden / "an4_kaldi" / name / "HCLG.fst"
    Fst.read(path).write(tmp_path / "again.fst", "const")
    ours, theirs = bytearray((tmp_path / "again.fst").read_bytes()), bytearray(path.read_bytes())
    properties = slice(4 + 4 + 5 + 4 + 8 + 8, 4 + 4 + 5 + 4 + 8 + 16)
    ours[properties] = theirs[properties]
    assert ours == theirs
