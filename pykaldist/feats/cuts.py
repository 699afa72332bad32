"""Features of lhotse's cuts: those that are stored with them, or made of their audio, in which lhotse has done what the cut says.

Means and variances are those of a speaker's cuts of one kind: copies in a room, or at another speed, are apart from the others, as in a
data directory of copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import CmvnOptions, apply_cmvn, cmvn_stats, sliding_cmvn
from pykaldist.feats.deltas import add_deltas
from pykaldist.feats.extract import Extractor
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.audio import INT16_SCALE
from pykaldist.io.cuts import source


class CutFeatures:
    """The features of cuts as a network takes them; `extractor` None: those that the cuts have stored.

    `cmvn` and `deltas` of the pipeline are used. Where they ask for means, `add_statistics` is to see all cuts first.
    """

    def __init__(self, extractor: Extractor | None, pipeline: FeaturePipeline) -> None:
        self.extractor, self.pipeline = extractor, pipeline
        self._stats: dict[tuple[str, str], np.ndarray] = {}

    @property
    def needs_statistics(self) -> bool:
        options: CmvnOptions = self.pipeline.cmvn
        return options.norm_means and not options.sliding

    def add_statistics(self, cuts: Iterable[Any]) -> None:
        """Add up the statistics of speakers."""
        for cut in cuts:
            stats, key = cmvn_stats([self.stored(cut)]), _kind(cut)
            self._stats[key] = self._stats[key] + stats if key in self._stats else stats

    def stored(self, cut: Any) -> np.ndarray:
        """The features of a cut before CMVN and deltas (T x D); raises UserError where there are none, or they cannot be made."""
        try:
            if self.extractor is None:
                x = cut.load_features() if cut.has_features else None
            else:
                x = self.extractor.extract([(str(cut.id), self._samples(cut))])[0]
        except UserError:
            raise
        except Exception as error:  # what lhotse's readers raise has no common class
            raise UserError(f"cut {cut.id}: lhotse cannot read its {'features' if self.extractor is None else 'audio'} "
                            f"({type(error).__name__}: {str(error).partition(chr(10))[0]}).") from error
        if x is None:
            raise UserError(f"cut {cut.id} has no features; name the options of those that are to be made with --feats-config.")
        x = np.asarray(x, np.float32)
        if x.ndim != 2 or not len(x) or not np.isfinite(x).all():
            raise UserError(f"cut {cut.id}: expected features of one frame and more, finite, found shape {x.shape}; look at its audio.")
        return x

    def _samples(self, cut: Any) -> np.ndarray:
        assert self.extractor is not None
        rate = int(self.extractor.options.sample_frequency)
        if cut.sampling_rate != rate:
            raise UserError(f"cut {cut.id} has {cut.sampling_rate} samples a second, the features are of {rate}; resample the cuts "
                            "(CutSet.resample).")
        audio = np.asarray(cut.load_audio(), np.float32)
        if audio.shape[0] != 1:
            raise UserError(f"cut {cut.id} has {audio.shape[0]} channels; expected one (CutSet.to_mono).")
        return audio[0] * np.float32(INT16_SCALE)

    def of(self, cut: Any) -> np.ndarray:
        """The features of a cut, normalised and with deltas."""
        x, cmvn, deltas = self.stored(cut), self.pipeline.cmvn, self.pipeline.deltas
        if cmvn.sliding:
            x = sliding_cmvn(x, cmvn.cmn_window, cmvn.min_cmn_window, cmvn.center, cmvn.norm_vars)
        elif cmvn.norm_means:
            x = apply_cmvn(x, self._stats[_kind(cut)], cmvn.norm_vars)
        return add_deltas(x, deltas.delta_order, deltas.delta_window) if deltas.delta_order > 0 else x


def _kind(cut: Any) -> tuple[str, str]:
    """The speaker of a cut, and which kind of copy it is: what stands behind its original's name."""
    name = source(cut)
    kind = "mixed" if getattr(cut, "tracks", None) else str(cut.id)[len(name):]
    return str(cut.supervisions[0].speaker or name), kind
