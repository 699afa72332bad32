"""Golden features (gzipped text archives of matrices) and the audio they were made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.io.tables import read_archive, read_map


@pytest.fixture(params=["16k", "8k"])
def rate(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden_feats(golden: Path, rate: str) -> Callable[[str], dict[str, np.ndarray]]:
    """Name -> utterance -> matrix, at the rate of the test."""
    return lambda name: dict(read_archive(golden / "feats" / f"{name}_{rate}.txt.gz"))


@pytest.fixture
def golden_audio(golden: Path, rate: str) -> dict[str, Path]:
    """Utterance -> audio file, at the rate of the test."""
    return {utt: golden.parent / path for utt, path in read_map(golden / "feats" / f"src{rate[:-1]}.scp").items()}
