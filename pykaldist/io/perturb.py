"""Copies of a data directory at other speeds (Ko et al., "Audio augmentation for speech recognition", 2015), and other volumes.

A copy's names begin with `sp<factor>-`, speakers' too, for a changed speed is another voice. No audio is written: `reco2speed` has the
factor by which it is resampled when it is read, `reco2vol` the factor on its samples. `utt2uniq` says of which utterance each is a copy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

from pykaldist.errors import UserError
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import DataDir, write_datadir, write_table
from pykaldist.io.tables import read_map


def perturb_speed(source: str | os.PathLike[str], target: str | os.PathLike[str], factors: Sequence[float] = (1.0, 0.9, 1.1),
                  name_all: bool = False, new_speakers: bool = True) -> DataDir:
    """Write to `target` the utterances of `source` at each of `factors`, of which 1 leaves them as they are.

    Those at another speed are named `sp<factor>-...`, with `name_all` all; without `new_speakers` the utterances are `...-sp<factor>`,
    and their speakers stay. Raises UserError for a factor without sense.
    """
    data = DataDir(source)
    data.validate(text=data.has("text"))
    if data.has("reco2speed"):
        raise UserError(f"{source} is already perturbed (it has reco2speed); perturb the data that it was made of.")
    if Path(source).resolve() == Path(target).resolve():
        raise UserError(f"the perturbed data cannot replace {source} itself; name another directory.")
    wav, utt2spk, text, segments, speeds, uniq, seconds, volumes = {}, {}, {}, {}, {}, {}, {}, {}
    durations = data.table("utt2dur") if data.has("utt2dur") else {}
    for factor in factors:
        if not 0.5 <= factor <= 2.0:
            raise UserError(f"expected speeds from 0.5 to 2, found {factor:g}.")
        mark = f"sp{factor:.1f}" if factor == 1.0 else f"sp{factor:g}"
        named = name_all or factor != 1.0
        before, behind = (f"{mark}-" if named and new_speakers else ""), (f"-{mark}" if named and not new_speakers else "")
        for recording, where in data.wav_scp.items():
            wav[f"{before}{recording}{behind}"] = where
            if factor != 1.0:
                speeds[f"{before}{recording}{behind}"] = f"{factor:g}"
            if recording in data.reco2vol:
                volumes[f"{before}{recording}{behind}"] = f"{data.reco2vol[recording]:g}"
        for utt, speaker in data.utt2spk.items():
            copy = f"{before}{utt}{behind}"
            utt2spk[copy], uniq[copy] = before + speaker, data.original(utt)
            if data.has("text"):
                text[copy] = " ".join(data.text[utt])
            if utt in durations:
                seconds[copy] = f"{float(durations[utt]) / factor:.5g}"
            if data.has("segments"):
                recording, start, end = data.segments[utt]
                end = -1 if end == -1 else round(end / factor, 4)
                segments[copy] = f"{before}{recording}{behind} {round(start / factor, 4):g} {end:g}"
    made = write_datadir(target, wav, text or None, utt2spk, segments or None)
    for name, table in (("reco2speed", speeds), ("reco2vol", volumes), ("utt2uniq", uniq), ("utt2dur", seconds)):
        if table:
            write_table(made.path / name, table)
    return made


def perturb_volume(data: DataDir, low: float = 0.125, high: float = 2.0, volumes: str | None = None, seed: int = 0) -> bool:
    """Write `reco2vol`: a factor on each recording's samples, drawn from `low` to `high`, or read from the table `volumes`.

    Features of the recordings as they were go to `.backup`. Returns False, with nothing done, where there is a reco2vol already. Raises
    UserError for bounds without sense, or a recording that `volumes` lacks.
    """
    if data.has("reco2vol"):
        return False
    if not 0 < low <= high:
        raise UserError(f"expected volumes from above 0 up, found {low:g} to {high:g}.")
    random, known = Random(seed), read_map(volumes) if volumes else {}
    missing = next((recording for recording in data.wav_scp if volumes and recording not in known), None)
    if missing:
        raise UserError(f"{volumes} has no volume for recording {missing} of {data.path}/wav.scp.")
    drawn = {recording: known.get(recording) or f"{random.uniform(low, high):.4g}" for recording in data.wav_scp}
    write_table(data.path / "reco2vol", drawn)
    for name in ("feats.scp", "cmvn.scp"):
        if data.has(name):
            copy_file(data.path / name, data.path / ".backup" / name)
            (data.path / name).unlink()
    return True
