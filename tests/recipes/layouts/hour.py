"""An hour of real speech in the layout of AN4: all of AN4, 47 minutes, and its first speakers slower, each as a speaker of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

from layouts.speech import an4, lines, some, write

SLOWER = 24  # speakers, at 0.9 times the speed


def as_an4(shared: Path, folder: Path) -> Path:
    """`folder`/data/an4 with 98 training speakers and AN4's test set; returns `folder`."""
    source, corpus = shared / "data/an4", folder / "data/an4"
    shutil.copytree(source / "etc", corpus / "etc")
    (corpus / "wav/an4_clstk").mkdir(parents=True)
    (corpus / "wav/an4test_clstk").symlink_to(source / "wav/an4test_clstk")
    for speaker in (source / "wav/an4_clstk").iterdir():
        (corpus / "wav/an4_clstk" / speaker.name).symlink_to(speaker)
    everything = an4(shared)
    files, said = ((source / f"etc/an4_train.{kind}").read_text().splitlines() for kind in ("fileids", "transcription"))
    for utterance in some(everything, SLOWER, len(everything)):
        speaker = f"{utterance.speaker[0]}s{utterance.speaker[1:]}"  # its first letter is the gender
        file = f"an4_clstk/{speaker}/{utterance.name.replace(utterance.speaker, speaker)}"
        samples, rate = soundfile.read(utterance.path)
        write(corpus / f"wav/{file}.flac", np.clip(resample_poly(samples, 10, 9), -1, 1), rate, "FLAC")
        files.append(file)
        said.append(f"<s> {utterance.text} </s> ({Path(file).name})")
    lines(corpus / "etc/an4_train.fileids", files)
    lines(corpus / "etc/an4_train.transcription", said)
    return folder
