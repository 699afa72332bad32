"""Phone lattices: lattices whose arcs are whole phones in time, of which numerators of chain training are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pykaldist.decode.lattice import Lattice, read_decode_dir
from pykaldist.decode.word_align import PhoneAligner
from pykaldist.errors import UserError
from pykaldist.hmm.chain.supervision import PhoneLattice
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.fst import Fst


def phone_lattice(lattice: Lattice, model: TransitionModel) -> PhoneLattice:
    """The phones of a lattice in time, with its graph costs; raises UserError where it has no path, or is not of this model."""
    if len(lattice.transition_ids) and int(lattice.transition_ids.max()) > model.num_transition_ids:
        raise UserError(f"it has transition-id {lattice.transition_ids.max()} where the model has {model.num_transition_ids}; use the "
                        "model that made it.")
    aligned = PhoneAligner(model, reorder=True).align(lattice)
    fst = Fst(0, aligned.final, aligned.offset, aligned.word, aligned.word, aligned.graph, aligned.target)
    return PhoneLattice(fst, aligned.frame)


def read_phone_lattices(lat_dir: Path) -> Iterator[tuple[str, PhoneLattice]]:
    """Iterate over (utterance, phone lattice) of a directory with lattices and the `final.mdl` that made them.

    steps/align_fmllr_lats.sh makes such a directory.
    """
    model = read_transition_model(lat_dir / "final.mdl")
    for utt, lattice in read_decode_dir(lat_dir):
        try:
            yield utt, phone_lattice(lattice, model)
        except UserError as error:
            raise UserError(f"{lat_dir}, lattice of {utt}: {error}") from error
