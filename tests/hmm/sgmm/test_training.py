"""UBM, subspace training and alignment as stages, on toy speech that each speaker moves in his way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.model_files import read_tree
from pykaldist.hmm.gmm.ubm import UbmOptions
from pykaldist.hmm.sgmm.experiment import align_sgmm_dir, train_sgmm_dir, train_ubm_dir
from pykaldist.hmm.sgmm.full_gmm import read_full_ubm
from pykaldist.hmm.sgmm.model import read_sgmm
from pykaldist.hmm.sgmm.speaker_vectors import read_speaker_vectors
from pykaldist.hmm.sgmm.training import SgmmOptions, SpokenCorpus, accumulate_sgmm, train_sgmm
from pykaldist.hmm.sgmm.update import UpdateOptions
from pykaldist.hmm.training.experiment import load_corpus, read_start, train_mono_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.mono import MonoOptions
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter

OPTIONS = SgmmOptions(num_iters=8, num_iters_alimdl=2, max_iter_inc=4, realign_iters="3 6", spkvec_iters="2 5", update_m_iter=1,
                      leaves_per_group=2, phn_dim=6, spk_dim=2)


def quiet(line: str) -> None:
    """No log."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Corpus, toy_lang: LangDir) -> Iterator[Path]:
    """`data`: six speakers, ten utterances each, each speaker's features moved by a vector of his own; `mono` aligned it; `ubm`; `sgmm`."""
    base, rng = tmp_path_factory.mktemp("sgmm"), np.random.default_rng(7)
    text = {utt: " ".join(map(toy_lang.words.symbol, words)) for utt, words in zip(toy_corpus.utts, toy_corpus.words, strict=True)}
    data = write_datadir(base / "data", {u: "none" for u in text}, text, {u: u[:4] for u in text})
    away = {s: (rng.normal(size=6) * [2, 2, 0, 0, 0, 0]).astype(np.float32) for s in data.spk2utt}
    with MatrixWriter(base / "feats.ark", data.path / "feats.scp") as writer:
        for number, utt in enumerate(toy_corpus.utts):
            writer.write(utt, toy_corpus.utterance_feats(number) + away[utt[:4]])
    train_mono_dir(data.path, toy_lang.path, base / "mono", MonoOptions(num_iters=10, totgauss=40), AlignOptions(),
                   "--norm-means=false", "--delta-order=0", log=quiet)
    train_ubm_dir(8, data.path, toy_lang.path, base / "mono", base / "ubm", UbmOptions(silence_weight=0.5), log=quiet)
    lines: list[str] = []
    said = train_sgmm_dir(12, 20, data.path, toy_lang.path, base / "mono", base / "ubm/final.ubm", base / "sgmm", OPTIONS, AlignOptions(),
                          UpdateOptions(), nj=2, log=lines.append)
    (base / "said").write_text(said)
    (base / "log").write_text("\n".join(lines))
    yield base


def test_ubm(work: Path) -> None:
    """It describes the frames better than its beginning; the folder says what it was made of."""
    ubm = read_full_ubm(work / "ubm/final.ubm")
    assert 4 <= ubm.num_gauss <= 8 and ubm.dim == 6
    off = np.abs(ubm.covariances() * (1 - np.eye(6))).max()
    assert off > 0.05
    assert {"final.ubm", "num_jobs", "inputs.json", "phones.txt"} <= {path.name for path in (work / "ubm").iterdir()}


def test_training(work: Path) -> None:
    """The likelihood rises from one iteration to the next where nothing is aligned or split; all is there that decoding needs."""
    values = [float(line.split("log-likelihood ")[1].split()[0]) for line in (work / "log").read_text().splitlines()
              if line.startswith("iteration")]
    assert len(values) == 8 and values[-1] > values[0] + 1 and values[7] > values[6]
    assert "60 of 60 utterances aligned" in (work / "said").read_text()
    assert {path.name for path in (work / "sgmm").iterdir()} == {
        "final.mdl", "final.alimdl", "tree", "pdf2group.map", "final.occs", "vecs.1", "vecs.2", "ali.1.gz", "ali.2.gz", "num_jobs",
        "cmvn_opts", "delta_opts", "phones.txt", "inputs.json", "texts.crc", ".lock"}
    transition_model, model = read_sgmm(work / "sgmm/final.mdl")
    twin = read_sgmm(work / "sgmm/final.alimdl")[1]
    assert model.symmetric and model.speaker_dim == 2 and twin.speaker_dim == 0 and twin.num_substates == model.num_substates > 12
    assert read_tree(work / "sgmm/tree").num_pdfs == model.num_pdfs == transition_model.num_pdfs
    groups = [int(line) for line in (work / "sgmm/pdf2group.map").read_text().split()]
    np.testing.assert_array_equal(groups, model.pdf2group)
    vectors = read_speaker_vectors(work / "sgmm")
    assert len(vectors) == 6 and np.linalg.norm(list(vectors.values()), axis=1).min() > 0


def test_vectors_say_who_speaks(work: Path, toy_lang: LangDir) -> None:
    """With the speakers' vectors frames are more likely than without, and than with each other's."""
    data, lang = DataDir(work / "data"), LangDir(toy_lang.path)
    transition_model, model = read_sgmm(work / "sgmm/final.mdl")
    corpus = load_corpus(data, lang, pipeline_of(work), 1, quiet)
    tids, _ = read_start(work / "sgmm", lang, corpus)
    spoken = SpokenCorpus.of(corpus, data.utt2spk, model, Engine())
    own = read_speaker_vectors(work / "sgmm")
    vectors = np.stack([own[name] for name in spoken.names]).astype(np.float64)
    values = [accumulate_sgmm(spoken, tids, transition_model.tid2pdf, model, chosen).log_likelihood
              for chosen in (vectors, None, np.roll(vectors, 1, axis=0))]
    assert values[0] > max(values[1:]) + 0.05 * len(tids)


def pipeline_of(work: Path) -> FeaturePipeline:
    return FeaturePipeline.from_dir(work / "sgmm")


def test_alignment(work: Path, toy_lang: LangDir) -> None:
    """Vectors are estimated for the data; nearly all frames have the phones that training has aligned them with."""
    line = align_sgmm_dir(work / "data", toy_lang.path, work / "sgmm", work / "ali", AlignOptions(), nj=2, log=quiet)
    assert "60 of 60 utterances aligned" in line
    one, two = (AlignmentDir(work / name) for name in ("sgmm", "ali"))
    same = [(one.model.tid2phone[one.labels[utt]] == two.model.tid2phone[two.labels[utt]]).mean() for utt in one.labels]
    assert np.mean(same) > 0.98 and len(read_speaker_vectors(work / "ali")) == 6
    assert (work / "ali/final.mdl").read_bytes() == (work / "sgmm/final.mdl").read_bytes()


def test_blocks_and_threads_change_nothing(work: Path, toy_lang: LangDir) -> None:
    """A corpus in several blocks, by any number of threads, gives nearly the same model; threads alone give the same bits."""
    data, lang = DataDir(work / "data"), LangDir(toy_lang.path)
    made = []
    for block, threads in ((0, 1), (0, 3), (900, 2)):
        corpus = load_corpus(data, lang, pipeline_of(work), 1, quiet)
        corpus.block = block
        tids, old = read_start(work / "mono", lang, corpus)
        state, twin, _ = train_sgmm(corpus, data.utt2spk, lang, tids, old, read_full_ubm(work / "ubm/final.ubm"), 12, 16,
                                    SgmmOptions(**{**vars(OPTIONS), "num_iters": 3, "num_iters_alimdl": 1, "realign_iters": "2"}),
                                    AlignOptions(), UpdateOptions(), Engine(threads), quiet)
        made.append((state.model, twin))
    for one, two in zip(made[0], made[1], strict=True):
        np.testing.assert_array_equal(one.vectors, two.vectors)
        np.testing.assert_array_equal(one.precisions, two.precisions)
    np.testing.assert_allclose(made[2][0].precisions, made[0][0].precisions, rtol=0.05, atol=0.05)


@pytest.mark.slow
def test_jobs_train_the_same_models(work: Path, toy_lang: LangDir, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A UBM, a system and alignments, by threads and by jobs on the same blocks, which end within speakers."""
    monkeypatch.setenv("PATH", f"{root}/src/bin:{root}/utils", prepend=":")
    options = SgmmOptions(**{**vars(OPTIONS), "num_iters": 3, "num_iters_alimdl": 1, "realign_iters": "2", "spkvec_iters": "1"})
    for name, jobs in (("threads", JobsOptions("", 900)), ("array", JobsOptions("run.pl", 900))):
        made, where = tmp_path / name, (work / "data", toy_lang.path)
        train_ubm_dir(8, *where, work / "mono", made / "ubm", UbmOptions(num_iters=2), 4, nj=2, log=quiet, jobs=jobs)
        train_sgmm_dir(12, 16, *where, work / "mono", made / "ubm/final.ubm", made / "sgmm", options, AlignOptions(), UpdateOptions(), 2,
                       quiet, jobs)
        align_sgmm_dir(*where, made / "sgmm", made / "ali", AlignOptions(), nj=2, log=quiet, jobs=jobs)
    for path in ("ubm/final.ubm", "sgmm/final.mdl", "sgmm/final.alimdl", "sgmm/tree", "sgmm/vecs.1", "sgmm/vecs.2", "ali/vecs.1"):
        assert (tmp_path / "threads" / path).read_bytes() == (tmp_path / "array" / path).read_bytes(), path
    one, two = (AlignmentDir(tmp_path / name / "ali") for name in ("threads", "array"))
    assert all(np.array_equal(ids, two.labels[utt]) for utt, ids in one.items())
    assert not (tmp_path / "array/sgmm/jobs").exists()


def test_without_speakers(work: Path, toy_lang: LangDir) -> None:
    """--spk-dim 0: there are no vectors, and no other model for alignment, which is one pass."""
    plain = SgmmOptions(**{**vars(OPTIONS), "spk_dim": 0, "num_iters": 4, "self_weight": 1.0})
    train_sgmm_dir(12, 20, work / "data", toy_lang.path, work / "mono", work / "ubm/final.ubm", work / "plain", plain, AlignOptions(),
                   UpdateOptions(), log=quiet)
    assert not (work / "plain/vecs.1").exists() and not (work / "plain/final.alimdl").exists()
    align_sgmm_dir(work / "data", toy_lang.path, work / "plain", work / "plain_ali", AlignOptions(), log=quiet)
    assert (work / "plain_ali/ali.1.gz").is_file() and not (work / "plain_ali/vecs.1").exists()


def test_what_does_not_fit_is_refused(work: Path, toy_lang: LangDir, tmp_path: Path) -> None:
    def train(**changed: object) -> None:
        options = SgmmOptions(**{**vars(OPTIONS), **changed})
        train_sgmm_dir(12, 20, work / "data", toy_lang.path, work / "mono", work / "ubm/final.ubm", tmp_path / "exp", options,
                       AlignOptions(), UpdateOptions(), log=quiet)

    with pytest.raises(UserError, match="--phn-dim must be 1 to 7"):
        train(phn_dim=8)
    with pytest.raises(UserError, match="--self-weight"):
        train(self_weight=0.0)
    with pytest.raises(UserError, match="--spkvec-iters: expected numbers"):
        train(spkvec_iters="x")
    with pytest.raises(UserError, match="is no subspace model"):
        align_sgmm_dir(work / "data", toy_lang.path, work / "mono", tmp_path / "ali", AlignOptions(), log=quiet)
    with pytest.raises(UserError, match="a UBM of 4000 cannot be made"):
        train_ubm_dir(4000, work / "data", toy_lang.path, work / "mono", tmp_path / "ubm", UbmOptions(), log=quiet)
