"""i-vectors of whole speakers beside a loop over frames, and the parts of speakers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import OnlineCmvnOptions, cmvn_stats
from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import IvectorFeatures
from pykaldist.hmm.ivector.offline import OfflineOptions, speaker_ivector, sub_speakers
from pykaldist.hmm.ivector.online import OnlineExtractor
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, frame_posteriors
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.tables import MatrixWriter

from .conftest import DIM, IVECTOR_DIM


@pytest.fixture
def extract(ubm: AmDiagGmm, extractor: IvectorExtractor) -> OnlineExtractor:
    stats = np.array([[1.0, 2.0, 3.0, 50.0], [400.0, 300.0, 200.0, 0.0]])
    features = IvectorFeatures(OnlineCmvnOptions(), stats, SpliceOptions(0, 0), None)
    return OnlineExtractor(features, ubm, extractor, posteriors=PosteriorOptions(3, 0.02, 0.1))


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    utts, rng = {"ann-1": "ann", "ann-2": "ann", "bob-1": "bob"}, np.random.default_rng(4)
    made = write_datadir(tmp_path / "data", dict.fromkeys(utts, "none"), dict.fromkeys(utts, "yes"), utts)
    with MatrixWriter(tmp_path / "feats.ark", made.path / "feats.scp") as writer:
        for utt in utts:
            writer.write(utt, rng.normal(0, 2, (int(rng.integers(20, 40)), DIM)).astype(np.float32))
    return DataDir(made.path)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_count", [0.0, 1.5, 1000.0])
def test_it_is_that_of_all_frames_of_the_speaker(extract: OnlineExtractor, data: DataDir, max_count: float, weighted: bool) -> None:
    rng, extractor, heard = np.random.default_rng(5), extract.extractor, None
    feats = {utt: data.feats[utt] for utt in ("ann-1", "ann-2")}
    weights = {utt: rng.integers(0, 3, len(x)).astype(np.float32) for utt, x in feats.items()}
    entries: list[tuple[np.ndarray, int, float]] = []
    for utt, x in feats.items():
        post = frame_posteriors(extract.ubm, extract.features.normalised(x, utt, heard), extract.posteriors)
        heard = cmvn_stats([x]) if heard is None else heard + cmvn_stats([x])
        entries += [(x[t].astype(float), int(g), float(w) * (float(weights[utt][t]) if weighted else 1.0)) for t in range(len(x))
                    for g, w in zip(post.gauss[t], post.weight[t], strict=True)]
    count = sum(w for _, _, w in entries)
    scale = min(1.0, max_count / count) if max_count else 1.0
    assert scale < 1 or max_count != 1.5
    quadratic, linear = np.eye(IVECTOR_DIM), extractor.prior_offset * np.eye(IVECTOR_DIM)[0]
    for y, g, w in entries:
        m, s = extractor.projections[g], extractor.precisions[g]
        quadratic, linear = quadratic + scale * w * m.T @ s @ m, linear + scale * w * m.T @ s @ y
    expected = np.linalg.solve(quadratic, linear) - extractor.prior_offset * np.eye(IVECTOR_DIM)[0]
    found, frames = speaker_ivector(extract, data, feats, max_count, weights if weighted else None)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32 and frames == {utt: len(x) for utt, x in feats.items()}


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(0, 30))
def test_parts_of_speakers_count_enough(counts: list[int], least: int) -> None:
    utts = [str(number) for number in range(len(counts))]
    parts = sub_speakers(utts, lambda utt: counts[int(utt)], least)
    assert [utt for part in parts for utt in part] == utts and all(parts)
    if least == 0 or sum(counts) < 2 * least:
        assert len(parts) == 1
    for part in parts if len(parts) > 1 else []:
        assert sum(counts[int(utt)] for utt in part) >= least
        assert sum(counts[int(utt)] for utt in part[:-1]) < least or part is parts[-1]


def test_what_does_not_fit_is_named(extract: OnlineExtractor, data: DataDir) -> None:
    with pytest.raises(UserError, match=r"--ivector-period must be at least 1, found 0"):
        OfflineOptions(0)
    with pytest.raises(UserError, match=r"--max-count and --sub-speaker-frames must not be negative, found -1"):
        OfflineOptions(max_count=-1)
    with pytest.raises(UserError, match=r"bob-1 has no weights of its frames"):
        speaker_ivector(extract, data, ["bob-1"], 0, {})
    with pytest.raises(UserError, match=r"bob-1: expected weights of \d+ frames, found \(3,\); take an alignment whose frames"):
        speaker_ivector(extract, data, ["bob-1"], 0, {"bob-1": np.ones(3)})
