"""A folder of short recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

MakeAudio = Callable[..., Path]


@pytest.fixture
def make_audio(tmp_path: Path) -> MakeAudio:
    """`make_audio("a.wav", "b/c.flac", seconds=0.5, rate=8000, channels=1)` writes noise to tmp_path/audio, and gives that folder."""

    def make(*names: str, seconds: float = 0.5, rate: int = 8000, channels: int = 1) -> Path:
        folder = tmp_path / "audio"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            noise = np.random.default_rng(len(name)).normal(0, 0.01, (int(seconds * rate), channels))
            soundfile.write(folder / name, noise, rate)
        return folder

    return make
