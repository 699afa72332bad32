"""Readers of alignments of other systems, one module a format. Each gives an utterance as labels a frame or as intervals of time.

A module has `recognises(path) -> bool` and `read(path, options) -> Source`; `open_source` asks them in the order of `FORMATS`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.sources.base import Source, SourceOptions

FORMATS = ("kaldi_dir", "textgrid", "numpy_labels", "ctm", "label_archive")


def open_source(path: Path, options: SourceOptions) -> Source:
    """Open the source at `path` in the format that it has; raises UserError where it has none of them."""
    if not path.exists():
        raise UserError(f"{path} does not exist; give an alignment directory, an archive, a CTM, TextGrids or numpy labels.")
    for name in FORMATS:
        module = importlib.import_module(f"{__name__}.{name}")
        if module.recognises(path):
            return module.read(path, options)
    raise UserError(f"{path} holds no alignments known here: expected ali.*.gz with final.mdl, archives of pdfs or phones, a CTM, "
                    "*.TextGrid, *.npy or an .npz.")
