"""LDA+MLLT and fMLLR: against a slow reference, and against features that Kaldi made of the same speech."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import apply_cmvn, cmvn_stats
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.feats.make import speaker_cmvn
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.splice import SpliceOptions
from pykaldist.feats.transforms import SpeakerTransforms, apply_transform, write_speaker_transforms
from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.tables import MatrixWriter, read_archive


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    rng = np.random.default_rng(5)
    utts = {"a-1": "a", "a-2": "a", "b-1": "b"}
    data = write_datadir(tmp_path / "data", {u: f"{u}.wav" for u in utts}, None, utts)
    with MatrixWriter(tmp_path / "feats.ark", data.path / "feats.scp") as writer:
        for utt in utts:
            writer.write(utt, rng.normal(2, 3, (11, 4)).astype(np.float32))
    speaker_cmvn(data, tmp_path)
    return DataDir(data.path)


def test_linear_and_affine() -> None:
    rng = np.random.default_rng(1)
    x, a, b = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(2, 3)), rng.normal(size=2)
    np.testing.assert_allclose(apply_transform(x, a, "a"), [a @ row for row in x], rtol=1e-5, atol=1e-5)
    affine = np.hstack([a, b[:, None]])
    np.testing.assert_allclose(apply_transform(x, affine, "a"), [affine @ np.append(row, 1) for row in x], rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match=r"final\.mat: a transform of shape \(2, 6\) does not fit features of dimension 3"):
        apply_transform(x, np.ones((2, 6)), "final.mat")


def test_the_whole_way_by_hand(data: DataDir, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    pipeline = FeaturePipeline(splice=SpliceOptions(1, 2), lda=rng.normal(size=(3, 16)), fmllr={"a": rng.normal(size=(3, 4))})
    pipeline.save(tmp_path / "gmm")
    (tmp_path / "gmm/final.mdl").touch()
    with MatrixWriter(tmp_path / "trans.1", tmp_path / "trans.scp") as writer:
        writer.write("a", pipeline.fmllr["a"])
    again = FeaturePipeline.from_dir(tmp_path / "gmm", tmp_path)
    x = apply_cmvn(data.feats["a-2"], cmvn_stats([data.feats["a-1"], data.feats["a-2"]]))
    for t, found in enumerate(again.apply(data, "a-2")):
        spliced = np.concatenate([x[min(max(t + offset, 0), 10)] for offset in (-1, 0, 1, 2)])
        np.testing.assert_allclose(found, pipeline.fmllr["a"] @ np.append(pipeline.lda @ spliced, 1), rtol=1e-4, atol=1e-4)
    with pytest.raises(UserError, match="no fMLLR transform of speaker b"):
        again.apply(data, "b-1")
    assert FeaturePipeline.from_dir(tmp_path / "gmm").apply(data, "b-1").shape == (11, 3)


@pytest.mark.parametrize("binary", [True, False])
def test_transforms_of_speakers_are_read_when_they_are_asked_for(tmp_path: Path, binary: bool) -> None:
    rng = np.random.default_rng(3)
    written = {f"s{n}": rng.normal(size=(3, 4)).astype(np.float32) for n in range(5)}
    items = list(written.items())
    for job, part in ((1, items[:3]), (2, items[3:])):
        if binary:
            write_speaker_transforms(tmp_path / f"trans.{job}", part)
        else:
            rows = [(speaker, [" ".join(f"{value:.9g}" for value in row) for row in matrix.tolist()]) for speaker, matrix in part]
            form = "{}  [\n  {}\n  {}\n  {} ]\n"
            (tmp_path / f"trans.{job}").write_text("".join(form.format(speaker, *lines) for speaker, lines in rows))
    open_files = len(os.listdir("/proc/self/fd"))
    found = SpeakerTransforms.read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= open_files + 1  # whatever the number of jobs
    write_speaker_transforms(tmp_path / "trans.1", [("s9", np.zeros((3, 4)))])  # found are what there was
    (tmp_path / "trans.2").unlink()
    assert list(found) == list(written) and len(found) == 5 and "s9" not in found
    for speaker in reversed(written):
        assert np.array_equal(found[speaker], written[speaker])
    with pytest.raises(KeyError):
        found["s9"]


def test_transforms_of_many_speakers_do_not_lie_in_memory(tmp_path: Path) -> None:
    matrix = np.arange(40 * 41.0).reshape(40, 41)
    tracemalloc.start()
    found = SpeakerTransforms(((f"s{n}", matrix + n) for n in range(2000)), tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000  # 26 MB of numbers
    tracemalloc.stop()
    found.add("s7", -matrix)
    assert np.array_equal(found["s7"], -matrix) and np.array_equal(found["s1999"], matrix + 1999) and found["s0"].dtype == np.float64
    assert len(found) == 2000 and not list(tmp_path.iterdir())


def test_errors_in_directories(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no trans\.1"):
        SpeakerTransforms.read(tmp_path)
    (tmp_path / "splice_opts").write_text("--left-context=-1\n")
    with pytest.raises(UserError, match=r"splice_opts: .*must not be negative"):
        FeaturePipeline.from_dir(tmp_path)
    (tmp_path / "splice_opts").write_text("\n")
    (tmp_path / "final.mat").write_bytes(b"\0BFM \4\x28")
    with pytest.raises(UserError, match=r"final\.mat, byte"):
        FeaturePipeline.from_dir(tmp_path)


@pytest.mark.parametrize(("part", "transforms"), [("train", "tri3_ali"), ("test", "tri3_decode")])
def test_golden_fmllr_features(golden: Path, tmp_path: Path, part: str, transforms: str) -> None:
    """Kaldi's MFCC had random dither, ours here none: that is all the difference there may be, largest in silence.

    No bias, correlation above 0.999, RMS below 0.07 where the features' standard deviation is 1.4.
    """
    torch.set_num_threads(1)
    kaldi = golden / "an4_kaldi"
    whole = DataDir(kaldi / "data" / part)
    utts = {utt: spk for spk in list(whole.spk2utt)[:2] for utt in whole.spk2utt[spk]}
    data = write_datadir(tmp_path / "data", {u: whole.wav_scp[u] for u in utts}, None, utts)
    audio = [(utt, read_audio(str(golden.parent / whole.wav_scp[utt]))[0]) for utt in utts]
    with MatrixWriter(tmp_path / "feats.ark", data.path / "feats.scp") as writer:
        for utt, feats in zip(utts, Extractor(MfccOptions(use_energy=False, dither=0)).extract(audio), strict=True):
            writer.write(utt, feats)
    speaker_cmvn(data, tmp_path)
    data = DataDir(data.path)
    pipeline = FeaturePipeline.from_dir(kaldi / "tri3_ali", kaldi / transforms)
    expected = {utt: x for utt, x in read_archive(kaldi / f"fmllr/{part}.ark") if utt in utts}
    pairs = [(pipeline.apply(data, utt), expected[utt]) for utt in utts]
    assert all(found.shape == x.shape for found, x in pairs)
    found, wanted = (np.concatenate(side) for side in zip(*pairs, strict=True))
    error = found - wanted
    assert np.abs(error.mean(axis=0)).max() < 0.005
    assert np.sqrt(np.mean(error**2)) < 0.07
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.999
