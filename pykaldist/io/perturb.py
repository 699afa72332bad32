"""Copies of a data directory at other speeds (Ko et al., "Audio augmentation for speech recognition", 2015).

A copy's names begin with `sp<factor>-`, speakers' too, for a changed speed is another voice. The audio is not written: `reco2speed` has
the factor by which it is resampled when it is read. `utt2uniq` says of which utterance each is a copy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir, write_datadir, write_table


def perturb_speed(source: str | os.PathLike[str], target: str | os.PathLike[str], factors: Sequence[float] = (0.9, 1.1)) -> DataDir:
    """Write to `target` the utterances of `source` and their copies at each of `factors`.

    Raises UserError for a factor without sense.
    """
    data = DataDir(source)
    data.validate(text=data.has("text"))
    if data.has("reco2speed"):
        raise UserError(f"{source} is already perturbed (it has reco2speed); perturb the data that it was made of.")
    if Path(source).resolve() == Path(target).resolve():
        raise UserError(f"the perturbed data cannot replace {source} itself; name another directory.")
    wav, utt2spk, text, segments, speeds, uniq = {}, {}, {}, {}, {}, {}
    for factor in (1.0, *factors):
        if not 0.5 <= factor <= 2.0:
            raise UserError(f"--factors: expected speeds from 0.5 to 2, found {factor:g}.")
        prefix = "" if factor == 1.0 else f"sp{factor:g}-"
        for recording, where in data.wav_scp.items():
            wav[prefix + recording] = where
            if prefix:
                speeds[prefix + recording] = f"{factor:g}"
        for utt, speaker in data.utt2spk.items():
            utt2spk[prefix + utt] = prefix + speaker
            uniq[prefix + utt] = utt
            if data.has("text"):
                text[prefix + utt] = " ".join(data.text[utt])
            if data.has("segments"):
                recording, start, end = data.segments[utt]
                end = -1 if end == -1 else round(end / factor, 4)
                segments[prefix + utt] = f"{prefix}{recording} {round(start / factor, 4):g} {end:g}"
    made = write_datadir(target, wav, text or None, utt2spk, segments or None)
    write_table(made.path / "reco2speed", speeds)
    write_table(made.path / "utt2uniq", uniq)
    return made
