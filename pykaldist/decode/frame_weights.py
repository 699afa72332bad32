"""Weights of frames by what was said in them: 1 for speech, another for silence, from alignments or from the best paths of lattices.

They are for what should tell speakers apart, as i-vectors do. An archive of weights that somebody else made will do as well.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pykaldist.decode.lattice import read_decode_dir
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import archives
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.tables import read_archive, read_int_vectors


def frame_weights(source: str | os.PathLike[str], silence: Iterable[int], silence_weight: float, acwt: float = 0.1,
                  model: str = "final") -> dict[str, np.ndarray]:
    """The weights of the frames of utterances, by an alignment directory, a decode directory or an archive of weights.

    `silence` are phones; `acwt` scales the acoustic costs of lattices, and `model`.mdl is the model that made them.
    """
    path = Path(source)
    if path.is_file():
        return {utt: np.asarray(weights, np.float32).reshape(-1) for utt, weights in read_archive(path)}
    if (path / "ali.1.gz").is_file():
        folder, paths = path, itertools.chain.from_iterable(read_int_vectors(archive) for archive in archives(path, "ali"))
    elif (path / "lat.1.gz").is_file():
        folder, paths = path.parent, itertools.chain(_best_paths(path, acwt))
    else:
        raise UserError(f"{path}: expected an alignment directory (ali.1.gz), a decode directory (lat.1.gz) or an archive of weights.")
    phones = read_transition_model(folder / f"{model}.mdl").tid2phone
    of_tid = np.where(np.isin(phones, list(silence)), np.float32(silence_weight), np.float32(1))
    return {utt: of_tid[tids] for utt, tids in paths}


def _best_paths(decode_dir: Path, acwt: float) -> Iterator[tuple[str, np.ndarray]]:
    return ((utt, np.asarray(best_path(lattice, acwt).transition_ids, np.int32)) for utt, lattice in read_decode_dir(decode_dir))
