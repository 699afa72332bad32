"""A reader of Kaldi's merged chain examples: features, numerators and derivative weights of each minibatch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from chain_files import fsts
from torch import Tensor

from pykaldist.frames.lattices import Lattices
from pykaldist.hmm.chain.supervision import frame_range
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.chain_objective import numerator


@dataclass
class MergedEgs:
    """A minibatch of examples: `feats` (frames, sequences, dim), a numerator a sequence, a weight of derivatives for each output row."""

    feats: Tensor
    frames: int
    numerators: list[Lattices]
    deriv_weights: Tensor


def merged_egs(folder: Path, num_pdfs: int, sequences: int) -> dict[str, MergedEgs]:
    """The minibatches of `merged.ark`, by their keys; the supervision is read from `merged.txt.gz`."""
    data = (folder / "merged.ark").read_bytes()
    starts = [(match.start(), match[1].decode()) for match in re.finditer(rb"(merged-\S+) \0B<Nnet3ChainEg> ", data)]
    found = {}
    for (start, key), end in zip(starts, [*(one for one, _ in starts[1:]), len(data)], strict=True):
        feats, weights = (_reader(data[start:end], marker) for marker in (b"FM ", b"<DW2> FV "))
        fst, frames = fsts(folder / "merged.txt.gz")[key]
        rows = torch.from_numpy(feats.matrix())
        found[key] = MergedEgs(rows.view(sequences, -1, rows.shape[1]).transpose(0, 1).contiguous(), frames,
                               [numerator(frame_range(fst, n * frames, frames), num_pdfs) for n in range(sequences)],
                               torch.from_numpy(weights.vector()))
    return found


def _reader(data: bytes, marker: bytes) -> KaldiReader:
    """A reader that stands at the array with which `marker` ends, the last one of it."""
    reader = KaldiReader(b"\0B" + data, "merged.ark")
    reader.pos = reader.data.rindex(marker) + len(marker) - 3
    return reader
