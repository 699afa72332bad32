"""GMM systems of Kaldi behind the server, whose words come at pauses: one speaks, another as well, a third sends a file meanwhile."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.streaming import StreamOptions
from pykaldist.serve.server.conversation import Conversation
from pykaldist.serve.server.engine import engine_of
from pykaldist.serve.transcribe import TranscribeOptions

from ..conftest import RATE, SAID


@pytest.mark.parametrize(("model", "graph", "right"), [
    ("tri1", "graph_tri1", 3), pytest.param("tri3_ali", "graph_tri3", 5, marks=pytest.mark.slow)])  # adapts to each utterance
def test_other_models_while_others_speak(model: str, graph: str, right: int, golden: Path, audio: list[np.ndarray], tmp_path: Path) -> None:
    kaldis = golden / "an4_kaldi"
    shutil.copytree(kaldis / graph, tmp_path / "graph")
    shutil.copytree(kaldis / "lang/phones", tmp_path / "graph/phones")
    shutil.copy(kaldis / "lang/phones.txt", tmp_path / "graph")
    (tmp_path / "mfcc.conf").write_text("--use-energy=false\n")
    options = TranscribeOptions(graph=str(tmp_path / "graph"), kind="mfcc", feats_config=str(tmp_path / "mfcc.conf"))
    engine, parts = engine_of(kaldis / model, options, DecoderOptions(), StreamOptions(), lambda _: Endpointing(range(1, 11)))
    assert "words come when a pause has ended an utterance" in parts
    engine.warm_up()
    found: dict[int, list[str]] = {}

    def speak(number: int) -> None:
        quiet = np.random.default_rng(0).normal(scale=3, size=2 * RATE)
        whole = np.concatenate([audio[number], quiet, audio[1 - number], quiet]).astype("<i2")
        conversation, answers = Conversation(engine, 60.0), list[str]()
        for at in range(0, len(whole), 4000):
            answers += conversation.receive([whole[at:at + 4000].tobytes()])
        assert len(answers) == -(-len(whole) // 4000)
        found[number] = [text for answer in [*answers, *conversation.receive(['{"eof" : 1}'])] if (text := json.loads(answer).get("text"))]

    def send() -> None:
        found[2] = [engine.transcribe("a file", audio[0]).text]

    tasks: list[Callable[[], None]] = [lambda: speak(0), lambda: speak(1), send]
    for task in tasks:
        task()
    alone = dict(found)
    found.clear()
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == alone and [len(found[number]) for number in range(3)] == [2, 2, 1]
    for text, said in zip([*found[0], *found[1], *found[2]], [*SAID, *SAID[::-1], SAID[0]], strict=True):
        words = said.split()
        assert sum(word in words for word in text.split()) >= right, text
