"""Programs of voice activity detection: which frames are speech, and features of these alone."""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.vad import voiced_frames
from pykaldist.io.archive import read_value
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_table, write_value
from pykaldist.programs.command import say


def compute_vad(feats: str, vad: str, *, vad_energy_threshold: float = 5.0, vad_energy_mean_scale: float = 0.5,
                vad_frames_context: int = 0, vad_proportion_threshold: float = 0.6, omit_unvoiced_utts: bool = False) -> int:
    """Decide which frames are speech, by their energy: a vector of 1 and 0 for each utterance.

    The first dimension of the features is the log energy, or C0.

    Usage: compute-vad [options] <feats-rspecifier> <vad-wspecifier>
    e.g.: compute-vad --config=conf/vad.conf scp:data/train/feats.scp ark,scp:vad.ark,vad.scp

    Options:
      --vad-energy-threshold: log energy above which a frame is loud (default: 5)
      --vad-energy-mean-scale: so many times the utterance's mean log energy is added to that (default: 0.5)
      --vad-frames-context: frames on either side that a decision looks at (default: 0)
      --vad-proportion-threshold: proportion of these that has to be loud (default: 0.6)
      --omit-unvoiced-utts: leave out utterances without a voiced frame (default: false)
    """
    frames = voiced = unvoiced = 0
    with TableWriter(vad, write_value) as out:
        for utt, x in read_table(feats, read_value):
            if x.ndim != 2 or not len(x):
                say(f"WARNING: {utt} is left out: it has no frames")
                continue
            found = voiced_frames(x[:, 0], vad_energy_threshold, vad_energy_mean_scale, vad_frames_context, vad_proportion_threshold)
            if not found.any():
                unvoiced += 1
                say(f"WARNING: {utt} has no voiced frame{', and is left out' if omit_unvoiced_utts else ''}")
                if omit_unvoiced_utts:
                    continue
            frames, voiced = frames + len(found), voiced + int(found.sum())
            out.write(utt, found.astype(np.float32))
    say(f"{out.count} utterances, {unvoiced} without a voiced frame; {100 * voiced / max(frames, 1):.1f} % of frames are voiced")
    return 0 if out.count else 1


def select_voiced_frames(feats: str, vad: str, target: str) -> int:
    """Choose the voiced frames of features.

    Utterances without one are left out.

    Usage: select-voiced-frames <feats-rspecifier> <vad-rspecifier> <feats-wspecifier>
    e.g.: select-voiced-frames scp:data/train/feats.scp scp:data/train/vad.scp ark:-
    """
    decisions = RandomAccess(vad, read_value)
    left_out = 0
    with TableWriter(target, write_value) as out:
        for utt, x in read_table(feats, read_value):
            found = decisions.get(utt)
            if found is None or not found.any():
                say(f"WARNING: {utt} is left out: it has {'no decisions in ' + vad if found is None else 'no voiced frame'}")
                left_out += 1
                continue
            if len(found) != len(x):
                raise UserError(f"{vad}, {utt}: found {len(found)} decisions for {len(x)} frames; make them of the same features "
                                "(steps/compute_vad_decision.sh).")
            out.write(utt, x[found != 0])
    say(f"voiced frames of {out.count} utterances chosen, {left_out} left out")
    return 0 if out.count else 1
