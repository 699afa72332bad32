"""An engine of Kaldi's chain model of AN4, as `transcribe --serve true` makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.streaming import StreamOptions
from pykaldist.serve.server.engine import Engine, engine_of
from pykaldist.serve.transcribe import TranscribeOptions


@pytest.fixture(scope="session")
def engine(recipe: Path) -> Engine:
    made, parts = engine_of(recipe / "exp/chain/tdnn", TranscribeOptions(), DecoderOptions(), StreamOptions(),
                            lambda graph_dir: Endpointing(range(1, 11)))
    assert parts.endswith("; words come while they are said")
    return made
