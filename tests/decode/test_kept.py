"""Decoding that goes on where it was ended: files cut at any place, and the script on Kaldi's system."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.kept import KeptLattices, fingerprint
from pykaldist.decode.lattice import Lattice, read_lattices

from .conftest import make_recipe, run, succeed


def chain(length: int) -> Lattice:
    """A lattice with one path of so many frames."""
    next_state, none = np.arange(1, length + 1, dtype=np.int32), np.zeros(length, np.float32)
    return Lattice.from_arcs(np.minimum(np.arange(length + 2), length), next_state, np.zeros(length, np.int32), none, none, next_state,
                             np.r_[np.full(length, np.inf), 0.0])


def lengths(path: Path) -> dict[str, int]:
    return {utt: lattice.num_frames for utt, lattice in read_lattices(path)}


def test_whatever_is_cut_off_is_decoded_again(tmp_path: Path) -> None:
    """At every byte of the list, and of the archive: what both have is kept, and the finished archive is the same."""
    first = KeptLattices(tmp_path, 1, "key")
    utts = ["a", "b", "c", "d"]
    for number, utt in enumerate(utts[:3]):
        if utt == "b":
            first.fail(utt, "no path\nsurvived")
        else:
            first.add(utt, chain(number + 2))
    first._archive.close()
    first._lines.close()
    whole = {name: (tmp_path / f"lat.1.{name}").read_bytes() for name in ("part", "done")}
    assert b"\nb no path survived\n" in whole["done"]
    for name in whole:
        for size in range(len(whole[name]) + 1):
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
            for other, data in whole.items():
                (tmp_path / f"lat.1.{other}").write_bytes(data[:size] if other == name else data)
            again = KeptLattices(tmp_path, 1, "key")
            left = again.left(utts)
            assert left[-1] == "d" and left == utts[-len(left):] and not again.finished
            for utt in left:
                if utt == "b":
                    again.fail(utt, "no path survived")
                else:
                    again.add(utt, chain(utts.index(utt) + 2))
            again.finish()
            assert lengths(tmp_path / "lat.1.gz") == {"a": 2, "c": 4, "d": 5}
            done = KeptLattices(tmp_path, 1, "key")
            assert done.finished and done.done == ["a", "c", "d"] and done.failed == {"b": "no path survived"} and done.left(utts) == []


def test_another_key_begins_anew(tmp_path: Path) -> None:
    kept = KeptLattices(tmp_path, 1, "key")
    kept.add("a", chain(3))
    kept.finish()
    assert KeptLattices(tmp_path, 1, "key").finished
    other = KeptLattices(tmp_path, 1, "other")
    assert not other.finished and other.done == [] and not (tmp_path / "lat.1.gz").exists()


def test_a_fingerprint_is_of_contents(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    before = fingerprint([tmp_path / "one", tmp_path / "none"], 3)
    assert before == fingerprint([tmp_path / "one"], 3) != fingerprint([tmp_path / "one"], 4)
    (tmp_path / "one").write_text("2")
    assert fingerprint([tmp_path / "one"], 3) != before


@pytest.fixture(scope="module")
def recipe(root: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = ("final.mdl", "tree", "cmvn_opts")
    return make_recipe(tmp_path_factory.mktemp("s5"), root, shared, shared / "golden/an4_kaldi/mono", "mono", files, 2)


def test_lattices_are_made_once(recipe: Path) -> None:
    """A second run decodes nothing; one that was ended, the rest. Utterances without features are listed; other options are another run."""
    command = ["steps/make_denlats.sh", "--nj", "1", "data/test", "data/lang", "exp/mono", "exp/denlats"]
    log = recipe / "exp/denlats/log/decode.1.log"
    succeed(recipe, *command)
    expected = lengths(recipe / "exp/denlats/lat.1.gz")
    graph = (recipe / "exp/denlats/dengraph/HCLG.fst").stat().st_mtime_ns
    succeed(recipe, *command)
    assert "4 of 4 utterances have their lattices already" in log.read_text() and "Done" not in log.read_text()
    assert (recipe / "exp/denlats/dengraph/HCLG.fst").stat().st_mtime_ns == graph
    archive = (recipe / "exp/denlats/lat.1.gz").read_bytes()
    listed = (recipe / "exp/denlats/lat.1.done").read_text().splitlines(keepends=True)
    (recipe / "exp/denlats/lat.1.gz").unlink()
    (recipe / "exp/denlats/lat.1.part").write_bytes(archive[: int(listed[2].split()[1]) + 20])
    (recipe / "exp/denlats/lat.1.done").write_text("".join(listed[:3]) + listed[3][:7])
    succeed(recipe, *command)
    assert "2 of 4 utterances have their lattices already" in log.read_text() and "Done 2 utterances" in log.read_text()
    assert (recipe / "exp/denlats/lat.1.gz").read_bytes() == archive
    succeed(recipe, command[0], "--beam", "9", *command[1:])
    assert "0 of 4 utterances have their lattices already" in log.read_text()
    scp = recipe / "data/test/feats.scp"
    lines = scp.read_text().splitlines(keepends=True)
    scp.write_text("".join(lines[1:]))
    done = run(recipe, *command)
    assert done.returncode == 0 and "1 utterances have no lattice; exp/denlats/failed says why" in done.stderr
    assert (recipe / "exp/denlats/failed").read_text().startswith(lines[0].split()[0])
    assert lengths(recipe / "exp/denlats/lat.1.gz").keys() == set(list(expected)[1:])
    scp.write_text("".join(lines))
