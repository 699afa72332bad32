"""Copies have the alignments and lattices of their originals, and nothing of speech that is not there; through the stage scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from jobs import environment

from pykaldist.decode.copied_alignments import copy_alignments, copy_lattices
from pykaldist.decode.lattice import read_lattices
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, archives, write_labels
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.tables import read_int_vectors


def data_dir(path: Path, utts: list[str]) -> DataDir:
    return write_datadir(path, {utt: f"{utt}.wav" for utt in utts}, dict.fromkeys(utts, "YES"), {utt: utt for utt in utts})


def values(kind: str, path: Path) -> dict[str, bytes]:
    """The bytes of each utterance's alignment, or lattice."""
    if kind == "ali":
        return {utt: ids.tobytes() for utt, ids in read_int_vectors(path)}
    return {utt: lattice.to_bytes() for utt, lattice in read_lattices(path)}


@pytest.fixture
def lattices(golden: Path, tmp_path: Path) -> Path:
    """Kaldi's lattices of AN4 as a directory that steps/align_fmllr_lats.sh leaves."""
    folder = tmp_path / "lats"
    folder.mkdir()
    shutil.copy(golden / "chain_an4/decode/lat.gz", folder / "lat.1.gz")
    shutil.copy(golden / "chain_an4/final.mdl", folder / "final.mdl")
    return folder


def test_stage_scripts_give_copies_what_their_originals_have(golden: Path, lattices: Path, tmp_path: Path, root: Path) -> None:
    ali = golden / "an4_kaldi/tri3_ali"
    source = {"ali": {utt: ids.tobytes() for utt, ids in AlignmentDir(ali).labels.items()}, "lat": values("lat", lattices / "lat.1.gz")}
    for kind, src in (("ali", ali), ("lat", lattices)):
        first = list(source[kind])[:4]
        others = [f"music-{first[0]}", f"babble-{first[0]}", "noise-else"]
        data_dir(tmp_path / kind, sorted([*first, *(f"noise-{utt}" for utt in first), *others]))
        out = tmp_path / f"{kind}_out"
        done = subprocess.run([root / f"steps/copy_{kind}_dir.sh", "--nj", "3", "--prefixes", "noise music", tmp_path / kind, src, out],
                              env=environment(), capture_output=True, text=True, check=True)
        what = "alignments" if kind == "ali" else "lattices"
        assert done.stdout == f"copy_{kind}_dir.sh: {what} of 9 of 11 utterances in {out}\n"
        assert (out / "num_jobs").read_text() == "3\n" and (out / "final.mdl").read_bytes() == (src / "final.mdl").read_bytes()
        assert len(archives(out, kind)) == 3
        expected, found = source[kind], {utt: value for path in archives(out, kind) for utt, value in values(kind, path).items()}
        assert list(found) == [utt for utt in DataDir(tmp_path / kind).utterances() if utt in found]
        assert found == {**{utt: expected[utt] for utt in first}, **{f"noise-{utt}": expected[utt] for utt in first},
                         f"music-{first[0]}": expected[first[0]]}


def test_originals_stay_behind_if_told(golden: Path, tmp_path: Path) -> None:
    ali = golden / "an4_kaldi/tri3_ali"
    utts = list(AlignmentDir(ali).labels)[:3]
    data = data_dir(tmp_path / "data", sorted([*utts, *(f"aug-{utt}" for utt in utts)]))
    made = copy_alignments(data, ali, tmp_path / "out", ["aug"], include_original=False)
    assert made == "alignments of 3 of 6 utterances"
    assert set(AlignmentDir(tmp_path / "out").labels) == {f"aug-{utt}" for utt in utts}


def test_pdfs_that_were_imported(tmp_path: Path) -> None:
    src = tmp_path / "src"
    src.mkdir()
    originals = {"a": np.array([0, 0, 1], np.int32), "b": np.array([2], np.int32)}
    write_labels(src, data_dir(tmp_path / "data", ["a", "b"]), originals, 1, num_pdfs=3)
    copy_alignments(data_dir(tmp_path / "copies", ["aug-a", "aug-b"]), src, tmp_path / "out", ["aug"], nj=2)
    found = AlignmentDir(tmp_path / "out")
    assert found.num_pdfs == 3 and {utt: found.labels[utt].tolist() for utt in found.labels} == {"aug-a": [0, 0, 1], "aug-b": [2]}


def test_a_second_copy_leaves_nothing_of_the_first(lattices: Path, tmp_path: Path) -> None:
    utts = [utt for utt, _ in read_lattices(lattices / "lat.1.gz")]
    data = data_dir(tmp_path / "data", [f"aug-{utt}" for utt in utts])
    copy_lattices(data, lattices, tmp_path / "out", ["aug"], nj=4)
    copy_lattices(data, lattices, tmp_path / "out", ["aug"], nj=2)
    assert [path.name for path in archives(tmp_path / "out", "lat")] == ["lat.1.gz", "lat.2.gz"]


def test_what_is_no_copy_is_refused(lattices: Path, tmp_path: Path) -> None:
    data = data_dir(tmp_path / "data", ["rev-x", "rev-y"])
    with pytest.raises(UserError, match=r"data/utt2spk, rev-x: expected names of .*lats behind a prefix \(aug\) and -, found none in 2 "
                                        r"utterances; give the prefixes as --prefixes"):
        copy_lattices(data, lattices, tmp_path / "out", ["aug"])
    with pytest.raises(UserError, match="both source and target"):
        copy_lattices(data, lattices, lattices, ["aug"])
    assert (lattices / "lat.1.gz").is_file() and not archives(tmp_path / "out", "lat")
