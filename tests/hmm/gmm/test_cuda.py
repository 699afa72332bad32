"""Training and alignment on a GPU: the same systems as on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.hmm.adaptation.fmllr import FmllrOptions, identity
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.hmm.training.sat import SatOptions, train_sat
from pykaldist.io.lang import LangDir

pytestmark = pytest.mark.gpu


def test_monophones_and_sat(toy_corpus: Corpus, toy_lang: LangDir) -> None:
    utt2spk = {utt: utt[:4] for utt in toy_corpus.utts}
    systems, transforms = [], []
    for engine in (Engine(), make_engine("cuda", 2)):
        mono = train_mono(toy_corpus, toy_lang, MonoOptions(num_iters=10, totgauss=40), AlignOptions(), engine, lambda line: None)
        start = {speaker: identity(6) for speaker in utt2spk.values()}
        sat = SatOptions(num_iters=8, max_iter_inc=5, realign_iters="4 6", fmllr_iters="2 5")
        system, _, found = train_sat(toy_corpus, utt2spk, toy_lang, mono.alignments.tids, mono.transition_model, start, 40, 60, sat,
                                     AlignOptions(), FmllrOptions(fmllr_min_count=50), engine, lambda line: None)
        systems.append(system)
        transforms.append(found)
    cpu, cuda = systems
    assert cpu.tree == cuda.tree and cuda.log_likelihood == pytest.approx(cpu.log_likelihood, abs=1e-2)
    assert (cpu.alignments.tids == cuda.alignments.tids).mean() > 0.999
    for speaker, transform in transforms[0].items():
        np.testing.assert_allclose(transforms[1][speaker], transform, atol=1e-2)
