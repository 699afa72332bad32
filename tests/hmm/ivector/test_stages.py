"""The stages of steps/online/nnet2 on random features: their files, what goes on from one of a speaker's utterances to the next, errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import OnlineCmvnOptions
from pykaldist.feats.make import speaker_cmvn
from pykaldist.hmm.gmm.ubm import read_ubm
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import IvectorFeatures
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.pca import pca_transform
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import DiagUbmOptions, ExtractorOptions, diag_ubm_dir, extractor_dir, read_extractor
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir, write_datadir
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


def test_frames_in_files_give_what_frames_in_memory_give(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykaldist.hmm.ivector.stages._BLOCK", 100)
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate._BATCH_FRAMES", 200)
    diag_ubm_dir(recipe / "data/train", 6, recipe / "exp/pca", tmp_path / "ubm", DiagUbmOptions(num_frames=1500),
                 recipe / "conf/online_cmvn.conf", log=str)
    found, expected = (read_ubm(folder / "final.dubm") for folder in (tmp_path / "ubm", recipe / "exp/ubm"))
    np.testing.assert_allclose(found.means_invvars, expected.means_invvars, rtol=1e-3, atol=1e-3)
    extractor_dir(recipe / "data/train", recipe / "exp/ubm", tmp_path / "extractor", ExtractorOptions(ivector_dim=3, num_iters=3),
                  PosteriorOptions(posterior_scale=0.5), log=str)
    one, two = (IvectorExtractor.read(folder / "final.ie") for folder in (tmp_path / "extractor", recipe / "exp/extractor"))
    np.testing.assert_allclose(one.projections, two.projections, rtol=1e-5, atol=1e-6)


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
