"""The random masks of SpecAugment (Park et al., 2019), drawn as Kaldi draws them, without a loop over frames or sequences."""

from __future__ import annotations

import torch
from torch import Tensor


def frequency_mask(rows: int, dim: int, max_proportion: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """A mask (rows, dim) with a band of zeros in each row: up to `max_proportion` of the dimensions, anywhere, around the end too."""
    most = int(dim * max_proportion + 0.5)
    width = torch.randint(0, most + 1, (rows, 1), generator=generator, device=device)
    start = torch.randint(0, dim, (rows, 1), generator=generator, device=device)
    return ((torch.arange(dim, device=device) - start) % dim >= width).float()


def time_mask(frames: int, sequences: int, zeroed: float, max_frames: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """A mask (frames, sequences) with stretches of zeros, of 1 to `max_frames` frames each, which make a share of `zeroed` on average.

    Between them are stretches of 1 to max_frames (1 - zeroed) / zeroed frames that stay. A sequence begins with such a one with the
    probability `zeroed`, as in Kaldi.
    """
    kept = max(1, int(max_frames * (1 - zeroed) / zeroed))
    pairs = frames // 2 + 1  # each has two frames at least
    stays = torch.randint(1, kept + 1, (sequences, pairs), generator=generator, device=device)
    goes = torch.randint(1, max_frames + 1, (sequences, pairs), generator=generator, device=device)
    stays[:, 0] *= torch.rand(sequences, generator=generator, device=device) < zeroed
    ends = torch.stack([stays, goes], 2).view(sequences, -1).cumsum(1)
    stretch = torch.searchsorted(ends, torch.arange(frames, device=device).repeat(sequences, 1), right=True)
    return (stretch % 2 == 0).float().t().contiguous()
