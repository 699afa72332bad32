"""Speakers' vectors: estimation, and their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.hmm.sgmm.speaker_vectors import SpeakerStats, estimate_vectors, read_speaker_vectors, write_speaker_vectors

from .conftest import Case, joint, total_log_likelihood


def statistics(case: Case, vectors: np.ndarray | None, target: AmSgmm2 | None = None) -> SpeakerStats:
    speakers = Speakers.without_vectors(case.model, 2) if vectors is None else Speakers.of(case.model, vectors)
    terms = case.scorer.terms(case.feats, case.selected, speakers, case.speaker)
    return SpeakerStats.of_frames(case.scorer, case.feats, terms, speakers, case.items, np.arange(2),
                                  None if target is None else SgmmScorer(target))


def auxiliary(case: Case, old: np.ndarray, new: np.ndarray) -> float:
    """Expected log-density of all frames with the vectors `new`, by the posteriors with `old`: straight from the definition."""
    value = 0.0
    for x, pdf, speaker, chosen in zip(case.feats.astype(float), case.pdfs, case.speaker, case.selected, strict=True):
        before, after = (joint(case.model, x, pdf, vectors[speaker], chosen)[0] for vectors in (old, new))
        value += float((before / before.sum() * np.log(after)).sum())
    return value


def test_estimation(case: Case) -> None:
    """The auxiliary function rises by no less than the gain that is told (exactly so without speakers' weights), the likelihood too."""
    vectors = np.zeros((2, 2))
    values = [total_log_likelihood(case, case.model, vectors)]
    for iteration in range(4):
        found, gain = estimate_vectors(case.model, statistics(case, vectors if iteration else None), vectors)
        rise = auxiliary(case, vectors, found) - auxiliary(case, vectors, vectors)
        assert rise >= gain - 1e-2 - 1e-3 * abs(gain) and gain >= 0
        if not case.model.symmetric:
            assert rise == pytest.approx(gain, rel=1e-2, abs=1e-2)
        vectors = found
        values.append(total_log_likelihood(case, case.model, vectors))
    assert (np.diff(values) > -1e-3).all() and values[-1] > values[0] + 1


def test_speakers_with_few_frames_keep_theirs(case: Case) -> None:
    case.speaker[:] = 0
    case.speaker[:50] = 1
    start = np.ones((2, 2))
    found, _ = estimate_vectors(case.model, statistics(case, start), start)
    assert (found[1] == 1).all() and not (found[0] == 1).any()


def test_statistics_of_some_speakers(case: Case) -> None:
    """Those of two parts, of which each has a speaker that the other has not, are the sums of each speaker's."""
    one, two = statistics(case, case.vectors), statistics(case, case.vectors)
    one.numbers, two.numbers = np.array([1, 3]), np.array([3, 4])
    both = one + two
    assert both.numbers.tolist() == [1, 3, 4] and both.frames == 2 * one.frames
    for name in ("gamma", "y", "a"):
        mine = getattr(one, name)
        expected = np.stack([mine[0], mine[1] + mine[0], mine[1]]) if mine.size else mine
        np.testing.assert_array_equal(getattr(both, name), expected)
    ended, others = both.split(both.numbers < 4)
    assert others is not None and ended.numbers.tolist() == [1, 3] and others.numbers.tolist() == [4]
    np.testing.assert_array_equal(np.concatenate([ended.y, others.y]), both.y)
    assert both.split(both.numbers < 9)[1] is None


def test_statistics_for_another_model(case: Case) -> None:
    """Frames are divided by one model, and what is left of them is that of another's means."""
    shifted = case.model.changed(phone_projections=case.model.phone_projections + 0.5)
    stats = statistics(case, None, shifted)
    expected = np.zeros((2, 2))
    for x, pdf, speaker, chosen in zip(case.feats.astype(float), case.pdfs, case.speaker, case.selected, strict=True):
        densities, substates = joint(case.model, x, pdf, np.zeros(2), chosen)
        for m, k in enumerate(substates):
            for g, i in enumerate(chosen):
                rest = x - shifted.phone_projections[i] @ shifted.vectors[k]
                expected[speaker] += (densities[m, g] / densities.sum()) * shifted.speaker_projections[i].T @ shifted.precisions[i] @ rest
    np.testing.assert_allclose(stats.y, expected, rtol=1e-3, atol=1e-2)


def test_files(tmp_path: Path) -> None:
    vectors = {"anna": np.array([1.0, -2.0]), "bert": np.array([0.5, 0.0])}
    write_speaker_vectors(tmp_path / "vecs.1", [("anna", vectors["anna"])])
    write_speaker_vectors(tmp_path / "vecs.2", [("bert", vectors["bert"])])
    read = read_speaker_vectors(tmp_path)
    assert list(read) == ["anna", "bert"] and all(np.array_equal(read[name], vectors[name]) for name in read)
    write_speaker_vectors(tmp_path / "vecs.3", [("anna", vectors["anna"])])
    with pytest.raises(UserError, match=r"vecs\.3, anna: a second vector"):
        read_speaker_vectors(tmp_path)
    write_speaker_vectors(tmp_path / "vecs.3", [("carl", np.zeros(3))])
    with pytest.raises(UserError, match="carl: expected vectors of one dimension"):
        read_speaker_vectors(tmp_path)
    with pytest.raises(UserError, match=r"has no vecs\.1"):
        read_speaker_vectors(tmp_path / "nowhere")
