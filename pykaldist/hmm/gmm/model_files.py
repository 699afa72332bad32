"""Reader and writer of Kaldi's files `final.mdl` (transition model and mixtures) and `tree`, byte for byte."""

from __future__ import annotations

import os

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter


def read_model(path: str | os.PathLike[str]) -> tuple[TransitionModel, AmDiagGmm]:
    """Read the transition model and the mixtures of a model file, binary or text (gzipped if named `.gz`).

    Raises UserError where the file is damaged, or its two halves have different numbers of pdfs.
    """
    reader = KaldiReader.open(path)
    transition_model = TransitionModel.read(reader)
    if not reader.at_end() and reader.peek_token() == "<Nnet3>":
        raise UserError(f"{path} is an nnet3 network, where a GMM is expected; name a GMM system's directory.")
    gmm = AmDiagGmm.read(reader)
    if transition_model.num_pdfs != gmm.num_pdfs:
        raise reader.error(f"the transition model has {transition_model.num_pdfs} pdfs, the mixtures {gmm.num_pdfs}")
    return transition_model, gmm


def read_transition_model(path: str | os.PathLike[str]) -> TransitionModel:
    """Read the transition model at the head of a model file, whatever kind of acoustic model follows."""
    return TransitionModel.read(KaldiReader.open(path))


def write_model(path: str | os.PathLike[str], transition_model: TransitionModel, gmm: AmDiagGmm | None = None,
                binary: bool = True) -> None:
    """Write a model file; without `gmm`, the transition model alone."""
    with atomic_open(path, "wb") as stream:
        writer = KaldiWriter(stream, binary)
        transition_model.write(writer)
        if gmm is not None:
            gmm.write(writer)


def read_tree(path: str | os.PathLike[str]) -> ContextDependency:
    """Read the `tree` file of an experiment, binary or text."""
    return ContextDependency.read(KaldiReader.open(path))


def write_tree(path: str | os.PathLike[str], tree: ContextDependency, binary: bool = True) -> None:
    """Write a `tree` file, binary or text, atomically."""
    with atomic_open(path, "wb") as stream:
        tree.write(KaldiWriter(stream, binary))
