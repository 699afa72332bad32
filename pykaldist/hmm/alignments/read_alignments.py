"""Reader of the alignments that a command line names: archives of transition_ids, checked against their model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pykaldist.hmm.alignments.alignment_dir import check_range
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.specifiers import read_paths
from pykaldist.io.tables import read_int_vectors


def read_alignments(rspecifier: str, model: TransitionModel) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over (utterance, transition_ids) of the archives that `rspecifier` names.

    Raises UserError for ids that the model lacks.
    """
    for path in read_paths(rspecifier):
        for utt, tids in read_int_vectors(path):
            check_range(tids, 1, model.num_transition_ids, f"{path}, {utt}")
            yield utt, tids
