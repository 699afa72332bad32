"""The pipeline reads what it saved, and applies what its directory says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import CmvnOptions, OnlineCmvnOptions, apply_cmvn, cmvn_stats, online_cmvn
from pykaldist.feats.deltas import add_deltas
from pykaldist.feats.pipeline import FeaturePipeline, OnlineCmvn
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.tables import MatrixWriter


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    rng = np.random.default_rng(5)
    utts = {"a-1": "a", "a-2": "a", "b-1": "b"}
    data = write_datadir(tmp_path / "data", {u: f"{u}.wav" for u in utts}, {u: "yes" for u in utts}, utts)
    feats = {u: rng.normal(2, 3, (20, 4)).astype(np.float32) for u in utts}
    with MatrixWriter(tmp_path / "feats.ark", data.path / "feats.scp") as writer:
        for utt, x in feats.items():
            writer.write(utt, x)
    with MatrixWriter(tmp_path / "cmvn.ark", data.path / "cmvn.scp") as writer:
        for spk in ("a", "b"):
            writer.write(spk, cmvn_stats([feats[u] for u in utts if utts[u] == spk]))
    return DataDir(data.path)


def test_default_is_speaker_means_then_deltas(data: DataDir) -> None:
    pipeline = FeaturePipeline()
    raw = data.feats["a-2"]
    both = np.concatenate([data.feats["a-1"], raw])
    np.testing.assert_allclose(pipeline.apply(data, "a-2"), add_deltas(raw - both.mean(axis=0)), atol=1e-5)
    assert pipeline.dim(data) == 12
    assert pipeline.apply(data, "a-2").dtype == np.float32


@pytest.mark.parametrize(("cmvn", "delta"), [
    ("", ""), ("--norm-vars=true", "--delta-order=1"), ("--norm-means=false", "--delta-order=0"),
    ("--sliding=true --cmn-window=8 --center=true", "--delta-window=3")])
def test_saved_pipeline_comes_back(tmp_path: Path, cmvn: str, delta: str) -> None:
    pipeline = FeaturePipeline.from_options(cmvn, delta)
    pipeline.save(tmp_path / "exp")
    assert FeaturePipeline.from_dir(tmp_path / "exp") == pipeline
    (tmp_path / "exp/final.mdl").touch()
    assert FeaturePipeline.from_dir(tmp_path / "exp") == pipeline


def test_options_decide(data: DataDir) -> None:
    raw = data.feats["b-1"]
    none = FeaturePipeline.from_options("--norm-means=false", "--delta-order=0")
    np.testing.assert_array_equal(none.apply(data, "b-1"), raw)
    variance = FeaturePipeline.from_options("--norm-vars=true", "--delta-order=0")
    np.testing.assert_array_equal(variance.apply(data, "b-1"), apply_cmvn(raw, cmvn_stats([raw]), True))
    assert variance.dim(data) == 4


def test_kaldis_own_directories(golden: Path, tmp_path: Path) -> None:
    assert FeaturePipeline.from_dir(golden / "an4_kaldi/mono") == FeaturePipeline()
    (tmp_path / "final.nnet").touch()
    (tmp_path / "final.mdl").touch()
    found = FeaturePipeline.from_dir(tmp_path)  # of nnet1: what no file names is not done
    assert found.deltas.delta_order == 0 and not found.cmvn.norm_means
    (tmp_path / "cmvn_opts").write_text("--norm-vars=true\n")
    assert FeaturePipeline.from_dir(tmp_path).cmvn == CmvnOptions(norm_vars=True)
    (tmp_path / "cmvn_opts").unlink()
    (tmp_path / "online_cmvn_opts").touch()
    with pytest.raises(UserError, match="online_cmvn_opts"):
        FeaturePipeline.from_dir(tmp_path)


@pytest.mark.parametrize("order", [("a-1", "a-2", "b-1"), ("b-1", "a-2", "a-1")])
@pytest.mark.parametrize("in_file", [False, True])
def test_online_cmvn_goes_on_over_a_speakers_utterances(data: DataDir, tmp_path: Path, order: tuple[str, ...], in_file: bool) -> None:
    options = OnlineCmvnOptions(cmn_window=9, speaker_frames=7, global_frames=3)
    text = "--cmn-window=9 --speaker-frames=7 --global-frames=3\n"
    (tmp_path / "online.conf").write_text("# of the i-vectors, too\n" + text)
    (tmp_path / "cmvn_opts").write_text(f"--config={tmp_path}/online.conf\n" if in_file else text)
    (tmp_path / "online_cmvn").touch()
    with pytest.raises(UserError, match=r"global_cmvn.stats does not exist, which online CMVN needs"):
        FeaturePipeline.from_dir(tmp_path, nnet3=True)
    stats = cmvn_stats([data.feats["b-1"] + 1])
    with open(tmp_path / "global_cmvn.stats", "wb") as stream:
        KaldiWriter(stream, binary=False).matrix(stats)
    pipeline, earlier = FeaturePipeline.from_dir(tmp_path, nnet3=True), {"a-2": cmvn_stats([data.feats["a-1"]])}
    for utt in order:
        np.testing.assert_allclose(pipeline.apply(data, utt), online_cmvn(data.feats[utt], stats, options, earlier.get(utt)), atol=1e-5)


@pytest.mark.parametrize("window", [9, 600])
def test_online_cmvn_of_pieces_is_that_of_the_whole(tmp_path: Path, window: int) -> None:
    options = OnlineCmvnOptions(window, speaker_frames=7, global_frames=3)
    (tmp_path / "online.conf").write_text(f"--cmn-window={window}\n--speaker-frames=7\n--global-frames=3\n")
    rng = np.random.default_rng(1)
    x, first, everything = (rng.normal(size=(count, 4)).astype(np.float32) for count in (40, 5, 90))
    with pytest.raises(UserError, match=r"stats does not exist"):
        OnlineCmvn.from_files(tmp_path / "online.conf", tmp_path / "stats")
    with open(tmp_path / "stats", "wb") as stream:
        KaldiWriter(stream, binary=False).matrix(cmvn_stats([everything]))
    speaker = None
    for utt in (first, x):
        pieces = OnlineCmvn.from_files(tmp_path / "online.conf", tmp_path / "stats").stream(speaker)
        found = np.concatenate([pieces.accept(piece) for piece in np.split(utt, [1, 4, 4, 15])])
        np.testing.assert_allclose(found, online_cmvn(utt, cmvn_stats([everything]), options, speaker), atol=1e-5)
        speaker = pieces.heard
    assert speaker is not None
    np.testing.assert_allclose(speaker, cmvn_stats([first, x]))


@pytest.mark.parametrize(("cmvn", "delta", "files"), [
    ("", "", ("--norm-means=true", "--delta-order=2")),
    ("--norm-means=false", "--delta-order=0", ("--norm-means=false", "--delta-order=0")),
    ("--norm-vars=true", "--delta-window=3", ("--norm-vars=true", "--delta-window=3"))])
def test_no_file_of_a_network_is_empty(tmp_path: Path, cmvn: str, delta: str, files: tuple[str, str]) -> None:
    """Kaldi's scripts of networks take an empty file for no CMVN and no deltas."""
    pipeline = FeaturePipeline.from_options(cmvn, delta)
    pipeline.save(tmp_path, of_network=True)
    assert ((tmp_path / "cmvn_opts").read_text().strip(), (tmp_path / "delta_opts").read_text().strip()) == files
    assert FeaturePipeline.from_dir(tmp_path) == pipeline


def test_errors_name_the_file_and_the_cure(data: DataDir, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no features of c-1"):
        FeaturePipeline().apply(data, "c-1")
    (tmp_path / "cmvn_opts").write_text("--norm-war=true\n")
    with pytest.raises(UserError, match="cmvn_opts: there is no option --norm-war"):
        FeaturePipeline.from_dir(tmp_path)
    (tmp_path / "cmvn_opts").write_text("--norm-vars=yes\n")
    with pytest.raises(UserError, match="--norm-vars needs a value of type bool, found 'yes'"):
        FeaturePipeline.from_dir(tmp_path)
    (data.path / "cmvn.scp").write_text("a " + data.table("cmvn.scp")["a"] + "\n")
    with pytest.raises(UserError, match="no statistics of speaker b"):
        FeaturePipeline().apply(DataDir(data.path), "b-1")
