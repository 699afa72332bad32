"""Programs on models and trees: what is in them, and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykaldist.hmm.gmm.mixture_sizes import read_sizes
from pykaldist.hmm.tree.transition_states import TransitionStates
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.tokens import TokenReader
from pykaldist.io.xfilenames import open_rxfilename, open_wxfilename

if TYPE_CHECKING:
    from pykaldist.hmm.gmm.gmm import AmDiagGmm
    from pykaldist.hmm.sgmm.model import AmSgmm2
    from pykaldist.hmm.tree.transition_model import TransitionModel
    from pykaldist.io.kaldi import KaldiReader


def kaldi_reader(rxfilename: str) -> KaldiReader:
    """Open what an rxfilename names as one of Kaldi's files."""
    from pykaldist.io.kaldi import KaldiReader  # here and below not at the top: tree-info and others need no numpy, and start faster so

    with open_rxfilename(rxfilename) as stream:
        return KaldiReader(stream.read(), rxfilename)


def read_transition_model(rxfilename: str) -> TransitionModel:
    """Read the transition model at the head of a model."""
    from pykaldist.hmm.tree.transition_model import TransitionModel

    return TransitionModel.read(kaldi_reader(rxfilename))


def read_model(rxfilename: str) -> tuple[TransitionModel, AmDiagGmm]:
    """Read a model's transition model and mixtures."""
    from pykaldist.hmm.gmm.gmm import AmDiagGmm
    from pykaldist.hmm.tree.transition_model import TransitionModel

    reader = kaldi_reader(rxfilename)
    return TransitionModel.read(reader), AmDiagGmm.read(reader)


def _write(wxfilename: str, binary: bool, *parts: Any) -> None:
    from pykaldist.io.kaldi import KaldiWriter

    with open_wxfilename(wxfilename) as stream:
        writer = KaldiWriter(stream, binary)
        for part in parts:
            part.write(writer)


def _show_states(model: str) -> TokenReader:
    """Print what a transition model has; returns the reader, which stands behind it."""
    with open_rxfilename(model) as stream:
        reader = TokenReader(stream.read(), model)
    states = TransitionStates.read(reader)
    states.skip_probabilities(reader)
    print(f"number of phones {states.num_phones}\nnumber of pdfs {states.num_pdfs}\n"
          f"number of transition-ids {states.num_transition_ids}\nnumber of transition-states {len(states.tuples)}")
    return reader


def tree_info(tree: str) -> None:
    """Print a tree's number of pdfs, context width and central position.

    Usage: tree-info <tree>
    e.g.: tree-info exp/tri1/tree
    """
    with open_rxfilename(tree) as stream:
        context = ContextDependency.read(TokenReader(stream.read(), tree))
    print(f"num-pdfs {context.num_pdfs}\ncontext-width {context.width}\ncentral-position {context.central}")


def hmm_info(model: str) -> None:
    """Print a transition model's numbers of phones, pdfs, transition-ids and transition-states.

    Usage: hmm-info <model>
    e.g.: hmm-info exp/tri1/final.mdl | grep pdfs
    """
    _show_states(model)


def am_info(model: str) -> None:
    """Print what a model of any type has: hmm-info does the same.

    Usage: am-info <model>
    e.g.: am-info exp/tri1/final.mdl
    """
    _show_states(model)


def gmm_info(model: str) -> None:
    """Print a GMM system's numbers of phones, pdfs, transitions and Gaussians, and its feature dimension.

    Usage: gmm-info <model>
    e.g.: gmm-info exp/tri1/final.mdl
    """
    dim, number = read_sizes(_show_states(model))
    print(f"feature dimension {dim}\nnumber of gaussians {number}")


def gmm_copy(source: str, target: str, *, binary: bool = True, copy_am: bool = True, copy_tm: bool = True) -> None:
    """Copy a GMM system, or its transition model, or its mixtures.

    Usage: gmm-copy [options] <model> <model>
    e.g.: gmm-copy --binary=false 1.mdl 1.txt

    Options:
      --binary: write binary (default: true)
      --copy-am: copy the mixtures (default: true)
      --copy-tm: copy the transition model (default: true)
    """
    transitions, gmm = read_model(source)
    _write(target, binary, *[transitions] * copy_tm, *[gmm] * copy_am)


def sgmm2_info(model: str) -> None:
    """Print a subspace model's numbers of phones, pdfs, transitions, groups, substates and Gaussians, and its dimensions.

    Usage: sgmm2-info <model>
    e.g.: sgmm2-info exp/sgmm2_4a/final.mdl
    """
    _show_states(model)
    sgmm = _read_sgmm(model)[1]
    print(f"feature dimension {sgmm.dim}\nnumber of gaussians {sgmm.num_gauss}\nnumber of groups of pdfs {sgmm.num_groups}\n"
          f"number of substates {sgmm.num_substates}\nnumber of mixture weights {len(sgmm.substate_weights)}\n"
          f"dimension of phone vector space {sgmm.phone_dim}\ndimension of speaker vector space {sgmm.speaker_dim}\n"
          f"speaker-dependent weights {'yes' if sgmm.symmetric else 'no'}")


def sgmm2_copy(source: str, target: str, *, binary: bool = True) -> None:
    """Copy a subspace model system.

    Usage: sgmm2-copy [options] <model> <model>
    e.g.: sgmm2-copy --binary=false 1.mdl 1.txt

    Options:
      --binary: write binary (default: true)
    """
    _write(target, binary, *_read_sgmm(source))


def _read_sgmm(rxfilename: str) -> tuple[TransitionModel, AmSgmm2]:
    from pykaldist.hmm.sgmm.model import AmSgmm2
    from pykaldist.hmm.tree.transition_model import TransitionModel

    reader = kaldi_reader(rxfilename)
    return TransitionModel.read(reader), AmSgmm2.read(reader)


def copy_transition_model(source: str, target: str, *, binary: bool = True) -> None:
    """Copy the transition model at the head of a model of any type.

    Usage: copy-transition-model [options] <model> <transition-model>
    e.g.: copy-transition-model --binary=false 1.mdl 1.txt

    Options:
      --binary: write binary (default: true)
    """
    _write(target, binary, read_transition_model(source))


def copy_tree(source: str, target: str, *, binary: bool = True) -> None:
    """Copy a tree.

    Usage: copy-tree [options] <tree> <tree>
    e.g.: copy-tree --binary=false tree - | less

    Options:
      --binary: write binary (default: true)
    """
    _write(target, binary, ContextDependency.read(kaldi_reader(source)))
