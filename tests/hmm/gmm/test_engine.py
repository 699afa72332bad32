"""The engine of a device, run by torch on the CPU, beside the one of numpy; which engine an option asks for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm import device_engine
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.device_engine import DeviceEngine
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.io.lang import LangDir

from .test_gmm import random_gmm

Frames = tuple[AmDiagGmm, np.ndarray, AlignedFrames]


@pytest.fixture
def engines() -> tuple[Engine, DeviceEngine]:
    return Engine(), DeviceEngine(torch.device("cpu"), threads=2)


@pytest.fixture
def frames() -> Frames:
    """Mixtures of 1 to 40 Gaussians; their frames fill several tiles, part of one, or none, and some frames have no pdf."""
    rng = np.random.default_rng(0)
    gmm = random_gmm(rng, [3, 40, 1, 12, 7])
    counts = [300, 1000, 5, 0, 128]
    feats = (2 * rng.standard_normal((sum(counts) + 20, 5))).astype(np.float32)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    return gmm, feats, AlignedFrames(rng.permutation(len(feats))[:bounds[-1]], bounds, np.zeros(1))


@pytest.fixture(params=[1 << 24, 3000], ids=["one batch", "many batches"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_engine, "_VALUES", request.param)


def test_likelihoods(engines: tuple[Engine, DeviceEngine], frames: Frames) -> None:
    gmm, feats, _ = frames
    expected, found = (engine.scorer(gmm, feats)(100, 260, np.array([4, 1, 2])) for engine in engines)
    assert found.dtype == np.float32 and found.shape == (160, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("twofold", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics(engines: tuple[Engine, DeviceEngine], frames: Frames, twofold: bool, weighted: bool,
                    monkeypatch: pytest.MonkeyPatch) -> None:
    gmm, feats, aligned = frames
    other = feats[::-1] + 1 if twofold else None
    if weighted:  # a weight of 2 is the frame twice, one of 0 none
        whole = np.tile([1.0, 2.0, 0.0], 500)[:aligned.num_frames]
        whole[-128:] = 1.0
        aligned = AlignedFrames(aligned.order, aligned.bounds, aligned.transition_counts, whole)
        times = whole.astype(int)
        bounds = np.concatenate([[0], np.cumsum(times)])[aligned.bounds]
        repeated = AlignedFrames(np.repeat(aligned.order, times), bounds, aligned.transition_counts)
        (stats, value), (twice, same) = (engines[0].accumulate(gmm, feats, one, other) for one in (aligned, repeated))
        assert value == pytest.approx(same, rel=1e-5)
        np.testing.assert_allclose(stats.x, twice.x, rtol=1e-4, atol=1e-2)
    (expected, value), (found, same) = (engine.accumulate(gmm, feats, aligned, other) for engine in engines)
    assert same == pytest.approx(value, rel=1e-6)
    for name in ("occupancy", "x", "x2"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-3)
    assert found.occupancy[56:].sum() == pytest.approx(128, rel=1e-6)
    monkeypatch.setattr("pykaldist.hmm.gmm.engine._PIECE", 130)  # one pdf in three pieces, one in eight
    (pieces, same), (again, _) = (Engine(threads).accumulate(gmm, feats, aligned, other) for threads in (1, 3))
    assert same == pytest.approx(value, rel=1e-6)
    for name in ("occupancy", "x", "x2"):
        np.testing.assert_allclose(getattr(pieces, name), getattr(expected, name), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(getattr(again, name), getattr(pieces, name))


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("weighted", [False, True])
def test_expected_parameters(engines: tuple[Engine, DeviceEngine], frames: Frames, weighted: bool) -> None:
    """Also of frames that stand under several pdfs with their posteriors, and for a twin's parameters."""
    gmm, feats, aligned = frames
    target = None
    if weighted:
        rng = np.random.default_rng(1)
        rows = np.concatenate([rng.permutation(len(feats))[:count] for count in np.diff(aligned.bounds)])  # each once a pdf
        aligned = AlignedFrames(rows, aligned.bounds, np.zeros(1), rng.random(len(rows)))
        target = gmm.projection * 2 + 1
    expected, found = (engine.expected_parameters(gmm, feats, aligned, target) for engine in engines)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert weighted or not found[np.setdiff1d(np.arange(len(feats)), aligned.order)].any()


@pytest.mark.usefixtures("batches")
def test_outer_products(engines: tuple[Engine, DeviceEngine]) -> None:
    rng = np.random.default_rng(2)
    x, weights = rng.normal(size=(5000, 6)).astype(np.float32), rng.random((5000, 3)).astype(np.float32)
    expected, found = (engine.outer_products(x, weights) for engine in engines)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)


def test_features_are_of_the_array_that_was_given(engines: tuple[Engine, DeviceEngine], frames: Frames) -> None:
    """Arrays are kept on the device from call to call; one after another gets its own."""
    gmm, feats, aligned = frames
    for shift in (0, 1, 2, 1, 0):
        moved = feats + np.float32(shift)
        expected, found = (engine.accumulate(gmm, moved, aligned)[1] for engine in engines)
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_training_comes_out_the_same(toy_corpus: Corpus, toy_lang: LangDir, engines: tuple[Engine, DeviceEngine]) -> None:
    options = MonoOptions(num_starts=1, num_iters=6, max_iter_inc=4, totgauss=30)
    numpys, torchs = (train_mono(toy_corpus, toy_lang, options, AlignOptions(), engine, lambda line: None) for engine in engines)
    assert (numpys.alignments.tids == torchs.alignments.tids).mean() > 0.999
    assert torchs.log_likelihood == pytest.approx(numpys.log_likelihood, abs=1e-3) and torchs.gmm.num_gauss == numpys.gmm.num_gauss


def test_features_of_another_dimension(engines: tuple[Engine, DeviceEngine], frames: Frames) -> None:
    gmm, feats, aligned = frames
    for engine in engines:
        with pytest.raises(UserError, match="expects features of dimension 5, found 4"):
            engine.scorer(gmm, feats[:, :4])(0, 3, np.array([0]))
        for compute in (engine.accumulate, engine.expected_parameters):
            with pytest.raises(UserError, match="expects features of dimension 5, found 4"):
                compute(gmm, feats[:, :4], aligned)


def test_features_that_do_not_fit_the_device(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(array: np.ndarray) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError

    feats = frames[1]
    monkeypatch.setattr(torch, "from_numpy", full)
    with pytest.raises(UserError, match=r"the features take 0\.0 GiB on cpu, which has less left .* use --device cpu"):
        DeviceEngine(torch.device("cpu"))._features(feats)


@pytest.mark.parametrize(("device", "message"), [("tpu", "is not supported; use cpu, cuda, cuda:0 or auto"), ("cuda:x", "is not supported"),
                                                 ("cuda:999", r"this machine has \d+ CUDA devices; use --device cpu")])
def test_devices_that_are_not_there(device: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_engine(device)


def test_engines_by_name() -> None:
    assert type(make_engine("cpu", 3)) is Engine and make_engine("cpu", 3).threads == 3
    assert isinstance(make_engine("auto"), DeviceEngine) == torch.cuda.is_available()
