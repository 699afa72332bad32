"""Sizes of a model, read over: those of the model read whole; damage is found as there."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.mixture_sizes import read_sizes
from pykaldist.hmm.gmm.model_files import read_model
from pykaldist.hmm.tree.transition_states import TransitionStates
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.tokens import TokenReader


def sizes(content: bytes) -> list[int]:
    reader = TokenReader(content, "model")
    states = TransitionStates.read(reader)
    states.skip_probabilities(reader)
    return [states.num_phones, states.num_pdfs, states.num_transition_ids, len(states.tuples), *read_sizes(reader)]


@pytest.mark.parametrize("binary", [True, False])
def test_sizes_of_kaldis_model(golden: Path, binary: bool) -> None:
    transitions, gmm = read_model(golden / "an4_kaldi/tri1/final.mdl")
    written = io.BytesIO()
    writer = KaldiWriter(written, binary)
    transitions.write(writer)
    gmm.write(writer)
    content = written.getvalue()
    expected = [len(set(transitions.tuples[:, 0].tolist())), transitions.num_pdfs, transitions.num_transition_ids, len(transitions.tuples)]
    assert sizes(content) == [*expected, gmm.dim, len(gmm.weights)]
    with pytest.raises(UserError, match="the file is damaged or of another kind"):
        sizes(content[:-len(content) // 3])
    probabilities = content.index(b"<LogProbs>")
    fewer = content[:probabilities] + (b"<LogProbs> FV \4\1\0\0\0\0\0\0\0" if binary else b"<LogProbs> [ 0 ]")
    with pytest.raises(UserError, match=r"expected .* transition probabilities, found 1"):
        sizes(fewer)


def test_a_mixture_of_another_dimension() -> None:
    mixture = b"<DIMENSION> 2 <NUMPDFS> 1 <DiagGMM> <WEIGHTS> [ 1 ] <MEANS_INVVARS> [ 1 2 3 ] <INV_VARS> [ 1 1 1 ] </DiagGMM>   "
    with pytest.raises(UserError, match="expected a mixture of dimension 2, found 1 weights"):
        read_sizes(TokenReader(mixture, "model"))
