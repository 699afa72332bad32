"""The stages of steps/online/nnet2 on random features: their files, what goes on from one of a speaker's utterances to the next, errors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import OnlineCmvnOptions
from pykaldist.feats.make import speaker_cmvn
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.ubm import read_ubm
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import IvectorFeatures
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.pca import pca_transform
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, frame_posteriors
from pykaldist.hmm.ivector.stages import (
    DiagUbmOptions,
    ExtractorOptions,
    FullUbmOptions,
    _chosen,
    diag_ubm_dir,
    extractor_dir,
    full_ubm_dir,
    read_extractor,
)
from pykaldist.hmm.sgmm.full_gmm import FullGmm, read_full_ubm
from pykaldist.hmm.training.jobs import ArrayOptions
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir, write_datadir, write_table
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.tables import MatrixReader, MatrixWriter


@pytest.fixture(scope="module")
def recipe(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe's directory with 24 utterances of four speakers, who differ in their mean, and an extractor trained on them."""
    folder, rng = tmp_path_factory.mktemp("s5"), np.random.default_rng(0)
    for name in ("steps", "utils", "path.sh"):
        (folder / name).symlink_to(root / name)
    (folder / "conf").mkdir()
    (folder / "conf/online_cmvn.conf").write_text("# Kaldi's defaults\n")
    utts = {f"{spk}-{i}": spk for spk in ("ann", "bob", "cat", "dan") for i in range(6)}
    write_datadir(folder / "data/train", {u: f"{u}.wav" for u in utts}, {u: "yes" for u in utts}, utts)
    centres, means = rng.normal(0, 4, (3, 4)), {spk: rng.normal(0, 1, 4) for spk in set(utts.values())}
    with MatrixWriter(folder / "feats.ark", folder / "data/train/feats.scp") as writer:
        for utt, spk in utts.items():
            states = np.repeat(rng.integers(0, 3, 30), 5)[:int(rng.integers(60, 150))]
            writer.write(utt, (centres[states] + means[spk] + rng.normal(0, 1, (len(states), 4))).astype(np.float32))
    speaker_cmvn(DataDir(folder / "data/train"), folder)
    script(folder, "get_pca_transform.sh", "--splice-opts", "--left-context=1 --right-context=1", "--dim", "4", "--subsample", "1",
           "data/train", "exp/pca")
    script(folder, "train_diag_ubm.sh", "--num-frames", "1500", "--num-threads", "8", "data/train", "6", "exp/pca", "exp/ubm")
    script(folder, "train_ivector_extractor.sh", "--num-processes", "1", "--ivector-dim", "3", "--num-iters", "3",
           "--posterior-scale", "0.5", "data/train", "exp/ubm", "exp/extractor")
    script(folder, "extract_ivectors_online.sh", "--nj", "9", "--compress", "false", "data/train", "exp/extractor", "exp/ivectors")
    return folder


def run(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", f"steps/online/nnet2/{name}", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def script(folder: Path, name: str, *arguments: str) -> str:
    done = run(folder, name, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_files_are_kaldis(recipe: Path) -> None:
    exp = recipe / "exp"
    assert {path.name for path in (exp / "extractor").iterdir()} == {
        "final.ie", "final.ie.id", "final.dubm", "final.mat", "splice_opts", "global_cmvn.stats", "online_cmvn.conf", "log", ".lock"}
    assert {path.name for path in (exp / "ivectors").iterdir() if ".ark" not in path.name} == {
        *(f"ivector_online.{job}.scp" for job in range(1, 5)), "ivector_online.scp", "ivector_period", "final.ie.id", "conf", "log"}
    assert (exp / "ivectors/final.ie.id").read_text() == (exp / "extractor/final.ie.id").read_text()
    assert (exp / "ivectors/ivector_period").read_text() == "10\n"
    conf = dict(line.split("=", 1) for line in (exp / "ivectors/conf/ivector_extractor.conf").read_text().splitlines())
    assert conf["--ivector-extractor"] == "exp/extractor/final.ie" and conf["--max-remembered-frames"] == "1000"
    assert (exp / "ivectors/conf/splice.conf").read_text() == "--left-context=1\n--right-context=1\n"
    assert read_conf(OnlineCmvnOptions, exp / "ivectors/conf/online_cmvn.conf") == OnlineCmvnOptions()
    assert "--online-cmvn-iextractor" not in conf


def test_offline_ivectors_are_one_a_speaker(recipe: Path, tmp_path: Path) -> None:
    data, lang = DataDir(recipe / "data/train"), tmp_path / "lang/phones"
    lang.mkdir(parents=True)
    (lang / "silence.int").write_text("1\n")
    script(recipe, "extract_ivectors.sh", "--nj", "2", "--compress", "false", "data/train", str(lang.parent), "exp/extractor",
           str(tmp_path / "iv"))
    found = MatrixReader(tmp_path / "iv/ivector_online.scp")
    assert list(found) == data.utterances() and (tmp_path / "iv/ivector_period").read_text() == "10\n"
    assert (tmp_path / "iv/final.ie.id").read_text() == (recipe / "exp/extractor/final.ie.id").read_text()
    of_speaker = {spk: found[utts[0]][0] for spk, utts in data.spk2utt.items()}
    assert len({row.tobytes() for row in of_speaker.values()}) == 4
    for utt, x in data.feats.items():
        assert len(found[utt]) == -(-len(x) // 10) and (found[utt] == of_speaker[data.utt2spk[utt]]).all()

    with MatrixWriter(tmp_path / "weights.ark", tmp_path / "weights.scp") as writer:
        for utt, x in data.feats.items():
            writer.write(utt, np.zeros(len(x), np.float32))
    script(recipe, "extract_ivectors.sh", "--nj", "1", "--compress", "false", "data/train", str(lang.parent), "exp/extractor",
           str(tmp_path / "weights.ark"), str(tmp_path / "none"))
    nothing = MatrixReader(tmp_path / "none/ivector_online.scp")
    assert all((np.abs(matrix) < 1e-6).all() for matrix in nothing.values())  # the prior's mean


def test_ivectors_are_those_of_the_library_and_tell_speakers_apart(recipe: Path) -> None:
    data, found = DataDir(recipe / "data/train"), MatrixReader(recipe / "exp/ivectors/ivector_online.scp")
    assert list(found) == data.utterances()
    extract = read_extractor(recipe / "exp/extractor", OnlineOptions(), PosteriorOptions())
    ends = {}
    for utts in data.spk2utt.values():
        state = extract.new_speaker()
        for utt in utts:
            np.testing.assert_array_equal(found[utt], extract(data.feats[utt], state))
            ends[utt] = found[utt][-1]
    last = np.array([[ends[utt] for utt in utts[2:]] for utts in data.spk2utt.values()])
    within, between = last.var(axis=1).sum(), last.mean(axis=1).var(axis=0).sum()
    assert between > 5 * within


def test_the_ubm_and_the_log_likelihoods(recipe: Path) -> None:
    assert read_ubm(recipe / "exp/ubm/final.dubm").num_gauss == 6
    for folder, lines in (("ubm", 24), ("extractor", 3)):
        log = (recipe / "exp" / folder / "log/train.log").read_text().splitlines()
        values = [float(line.split("log-likelihood ")[1].split()[0]) for line in log if "log-likelihood" in line]
        assert len(values) == lines and values[-1] > values[0]


def test_blocks_and_jobs_give_what_one_block_gives(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Nearly the same in several blocks, which end within speakers; the same bits by jobs on these blocks, with any number of them."""
    monkeypatch.setenv("PATH", f"{root}/src/bin:{root}/utils", prepend=":")
    made = {}
    for name, jobs, nj in (("threads", ArrayOptions("", 170), 2), ("array", ArrayOptions("run.pl", 170), 3)):
        work = tmp_path / name
        diag_ubm_dir(recipe / "data/train", 6, recipe / "exp/pca", work / "ubm", DiagUbmOptions(num_frames=1500),
                     recipe / "conf/online_cmvn.conf", nj, log=str, jobs=jobs)
        extractor_dir(recipe / "data/train", recipe / "exp/ubm", work / "extractor", ExtractorOptions(ivector_dim=3, num_iters=3),
                      PosteriorOptions(posterior_scale=0.5), nj, str, jobs)
        made[name] = [(work / path).read_bytes() for path in ("ubm/final.dubm", "extractor/final.ie")]
        assert not (work / "extractor/jobs").exists()
    assert made["threads"] == made["array"]
    assert len(list((tmp_path / "array/extractor/log").glob("e_step.*.log"))) == 9
    found, expected = (read_ubm(folder / "final.dubm") for folder in (tmp_path / "array/ubm", recipe / "exp/ubm"))
    np.testing.assert_allclose(found.means_invvars, expected.means_invvars, rtol=1e-3, atol=1e-3)
    one, two = (IvectorExtractor.read(folder / "final.ie") for folder in (tmp_path / "array/extractor", recipe / "exp/extractor"))
    np.testing.assert_allclose(one.projections, two.projections, rtol=1e-5, atol=1e-6)


def test_a_ubm_with_full_covariances(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """It fits better than the diagonal one, by threads and jobs alike; the extractor begins with it, and extraction offline asks it."""
    monkeypatch.setenv("PATH", f"{root}/src/bin:{root}/utils", prepend=":")
    data, mix = DataDir(recipe / "data/train"), np.random.default_rng(5).normal(size=(4, 4)) + 2 * np.eye(4)
    for name in ("utt2spk", "spk2utt", "text", "wav.scp"):
        (tmp_path / "data").mkdir(exist_ok=True)
        shutil.copy(data.path / name, tmp_path / "data" / name)
    with MatrixWriter(tmp_path / "feats.ark", tmp_path / "data/feats.scp") as writer:
        for utt, x in data.feats.items():
            writer.write(utt, x @ mix.astype(np.float32))
    speaker_cmvn(DataDir(tmp_path / "data"), tmp_path)
    monkeypatch.chdir(recipe)
    script(recipe, "get_pca_transform.sh", "--splice-opts", "--left-context=0 --right-context=0", "--dim", "4", "--subsample", "1",
           str(tmp_path / "data"), str(tmp_path / "pca"))
    with (tmp_path / "pca/final.mat").open("wb") as stream:
        KaldiWriter(stream).matrix(np.eye(4))  # the features as they are, whose dimensions belong together
    diag_ubm_dir(tmp_path / "data", 4, tmp_path / "pca", tmp_path / "diag", DiagUbmOptions(), recipe / "conf/online_cmvn.conf", log=str)
    said = script(recipe, "train_full_ubm.sh", "--subsample", "1", "--num-gselect", "4", str(tmp_path / "data"), str(tmp_path / "diag"),
                  str(tmp_path / "full"))
    assert "Gaussians with full covariances, of dimension 4" in said
    values = [float(line.split("log-likelihood ")[1].split()[0]) for line in (tmp_path / "full/log/train.log").read_text().splitlines()
              if line.startswith("iteration")]
    assert len(values) == 4 and values[-1] > values[0] + 0.3
    full, twin = read_full_ubm(tmp_path / "full/final.ubm"), read_ubm(tmp_path / "full/final.dubm")
    np.testing.assert_allclose(1 / twin.inv_vars, np.diagonal(full.covariances(), axis1=1, axis2=2), rtol=1e-4)
    for name, jobs in (("threads", ArrayOptions("", 500)), ("array", ArrayOptions("run.pl", 500))):
        full_ubm_dir(tmp_path / "data", tmp_path / "full", tmp_path / name, FullUbmOptions(num_iters=1, subsample=2), 2, str, jobs)
    assert (tmp_path / "threads/final.ubm").read_bytes() == (tmp_path / "array/final.ubm").read_bytes()
    diag_ubm_dir(tmp_path / "data", 4, tmp_path / "pca", tmp_path / "array", DiagUbmOptions(), recipe / "conf/online_cmvn.conf", log=str)
    assert not (tmp_path / "array/final.ubm").exists()

    extractor_dir(tmp_path / "data", tmp_path / "full", tmp_path / "ie", ExtractorOptions(ivector_dim=2, num_iters=2),
                  PosteriorOptions(posterior_scale=0.5), log=str)
    options = PosteriorOptions(posterior_scale=0.5)
    online, offline = (read_extractor(tmp_path / "ie", OnlineOptions(), options, offline) for offline in (False, True))
    assert isinstance(online.ubm, AmDiagGmm) and isinstance(offline.ubm, FullGmm)
    x = np.concatenate([DataDir(tmp_path / "data").feats[utt] for utt in data.utterances()[:3]])
    posteriors, dense = frame_posteriors(offline.ubm, x, PosteriorOptions(4, 0.0, 1.0)), np.zeros((len(x), 4))
    np.put_along_axis(dense, posteriors.gauss.astype(np.int64), posteriors.weight, 1)
    gaussians = zip(full.weights, full.means, full.covariances(), strict=True)
    densities = np.stack([weight * multivariate_normal(mean, covariance).pdf(x) for weight, mean, covariance in gaussians], 1)
    np.testing.assert_allclose(dense, densities / densities.sum(1, keepdims=True), atol=2e-3)


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 100))
def test_frames_are_chosen_at_random_without_repetition(count: int, most: int, seed: int) -> None:
    chosen = _chosen(np.random.default_rng(seed), count, most)
    if count <= most:
        assert chosen is None
    else:
        assert chosen is not None and len(set(chosen.tolist())) == most and (np.diff(chosen) > 0).all()
        assert chosen[0] >= 0 and chosen[-1] < count


@pytest.mark.parametrize("count", [15, 60])
def test_each_frame_is_chosen_as_often_as_another(count: int) -> None:
    rng, often = np.random.default_rng(0), np.zeros(count)
    for _ in range(4000):
        often[_chosen(rng, count, 5)] += 1
    assert abs(often / 4000 - 5 / count).max() < 0.03


def test_frames_that_the_directory_does_not_state_are_named(recipe: Path, tmp_path: Path) -> None:
    data = DataDir(recipe / "data/train")
    for name in ("feats.scp", "spk2utt", "utt2spk", "cmvn.scp"):
        shutil.copy(data.path / name, tmp_path / name)
    write_table(tmp_path / "utt2num_frames", {utt: str(len(data.feats[utt]) + (utt == "bob-2")) for utt in data.utterances()})
    with pytest.raises(UserError, match=r"bob-2: expected features of \d+ frames, as utt2num_frames says, found"):
        diag_ubm_dir(tmp_path, 6, recipe / "exp/pca", tmp_path / "ubm", DiagUbmOptions(), recipe / "conf/online_cmvn.conf", log=str)
    with pytest.raises(UserError, match="--nj: expected a number from 1 to 24"):
        diag_ubm_dir(tmp_path, 6, recipe / "exp/pca", tmp_path / "ubm", DiagUbmOptions(), recipe / "conf/online_cmvn.conf", 25, log=str)


def test_normalised_input_goes_on_to_the_extraction(recipe: Path, tmp_path: Path) -> None:
    script(recipe, "train_ivector_extractor.sh", "--online-cmvn-iextractor", "true", "--num-iters", "1", "--ivector-dim", "3",
           "--posterior-scale", "0.5", "data/train", "exp/ubm", str(tmp_path / "ie"))
    script(recipe, "extract_ivectors_online.sh", "--nj", "1", "--max-count", "2", "data/train", str(tmp_path / "ie"), str(tmp_path / "iv"))
    assert "--online-cmvn-iextractor=true" in (tmp_path / "iv/conf/ivector_extractor.conf").read_text().splitlines()
    extract = read_extractor(tmp_path / "ie", OnlineOptions(max_count=2), PosteriorOptions())
    assert extract.normalised_input
    expected = extract(DataDir(recipe / "data/train").feats["ann-0"], extract.new_speaker())
    np.testing.assert_allclose(MatrixReader(tmp_path / "iv/ivector_online.scp")["ann-0"], expected, atol=0.05)  # compressed


def test_pca_makes_frames_white() -> None:
    rng = np.random.default_rng(2)
    frames = [(rng.normal(0, 1, (50, 5)) @ rng.normal(0, 1, (5, 5)) + 3).astype(np.float32) for _ in range(2)]
    matrix, x = pca_transform(frames, 3), np.concatenate(frames)
    y = x @ matrix[:, :-1].T + matrix[:, -1]
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(y.T, bias=True), np.eye(3), atol=1e-4)
    plain = pca_transform(frames, 5, normalize_mean=False, normalize_variance=False)
    np.testing.assert_allclose(plain @ plain.T, np.eye(5), atol=1e-5)
    variances = (x @ plain.T).var(axis=0)
    assert (np.diff(variances) < 0).all() and variances.sum() == pytest.approx(x.var(axis=0).sum(), rel=1e-4)


def test_speakers_of_a_few_utterances(recipe: Path, tmp_path: Path) -> None:
    script(recipe, "copy_data_dir.sh", "--utts-per-spk-max", "2", "data/train", str(tmp_path / "two"))
    assert len(DataDir(tmp_path / "two").spk2utt) == 12
    script(recipe, "copy_data_dir.sh", "data/train", str(tmp_path / "same"))
    assert DataDir(tmp_path / "same").spk2utt == DataDir(recipe / "data/train").spk2utt


def test_a_ubm_of_few_frames_has_fewer_gaussians(recipe: Path, tmp_path: Path) -> None:
    done = run(recipe, "train_diag_ubm.sh", "--num-frames", "75", "data/train", "512", "exp/pca", str(tmp_path / "ubm"))
    assert done.returncode == 0 and read_ubm(tmp_path / "ubm/final.dubm").num_gauss == 7
    assert "train_diag_ubm.sh: WARNING: 75 frames are too few for 512 Gaussians, so that the UBM has 7 at most" in done.stderr


def test_what_does_not_fit_is_named(recipe: Path, tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    for arguments, said in (
            (("train_diag_ubm.sh", "data/train", "6", "exp/none", new), "exp/none/final.mat does not exist"),
            (("get_pca_transform.sh", "--dim", "400", "data/train", new), "PCA from 36 dimensions cannot have 400"),
            (("train_ivector_extractor.sh", "--posterior-scale", "0.01", "data/train", "exp/ubm", new), "no Gaussian of the UBM"),
            (("extract_ivectors_online.sh", "--use-vad", "true", "data/train", "exp/extractor", new), "vad.scp does not exist")):
        done = run(recipe, *arguments)
        assert done.returncode == 1 and said in done.stderr, done.stderr
    with pytest.raises(UserError, match=r"final.mat does not exist"):
        IvectorFeatures.from_dir(tmp_path)
