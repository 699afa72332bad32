"""Vosk's protocol over one model: the words of the whole recording, whatever other clients say; what cannot be is refused."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import resample_poly

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.hclg import GraphOptions
from pykaldist.decode.lookahead_graph import make_lookahead_graph
from pykaldist.decode.streaming import StreamOptions
from pykaldist.errors import UserError
from pykaldist.serve.server.conversation import Conversation
from pykaldist.serve.server.engine import Engine, engine_of
from pykaldist.serve.server.sessions import WholeSession
from pykaldist.serve.transcribe import TranscribeOptions
from pykaldist.serve.transcript import Transcript, Utterance, Word

from ..conftest import RATE, SAID

DIGITS = ("ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
EOF = '{"eof" : 1}'


def pieces(samples: np.ndarray, size: int = 4000) -> list[bytes]:
    content = samples.astype("<i2")
    return [content[at:at + size].tobytes() for at in range(0, len(content), size)]


def said(answers: Sequence[str]) -> list[str]:
    """The texts of results, those without words left out."""
    return [found["text"] for answer in answers if (found := json.loads(answer)).get("text")]


def test_a_dialogue_as_vosks_clients_have_it(engine: Engine, audio: list[np.ndarray]) -> None:
    """An answer for each piece, partial ones that grow, and the result with times and confidences."""
    conversation = Conversation(engine, 60.0)
    assert conversation.receive(['{"config" : {"sample_rate" : 16000.0}}']) == []
    answers = []
    for piece in pieces(audio[0]):
        answers += conversation.receive([piece])
    assert len(answers) == len(pieces(audio[0])) and all(json.loads(answer).keys() == {"partial"} for answer in answers)
    partial = [json.loads(answer)["partial"] for answer in answers]
    assert partial[0] == "" and "RUBOUT G" in partial and partial[-1].startswith("RUBOUT G M E F")
    (last,) = conversation.receive([EOF])
    found = json.loads(last)
    assert conversation.ended and found["text"] == SAID[0]
    assert [word["word"] for word in found["result"]] == SAID[0].split()
    times = [time for word in found["result"] for time in (word["start"], word["end"])]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= len(audio[0]) / RATE
    assert all(0.5 < word["conf"] <= 1 for word in found["result"])


def test_utterances_end_and_times_go_on(engine: Engine, audio: list[np.ndarray]) -> None:
    """Two utterances with a pause between; messages that come together have as many answers as alone."""
    quiet = np.random.default_rng(0).normal(scale=3, size=2 * RATE)
    whole = np.concatenate([audio[0], quiet, audio[1], quiet])
    alone, together = Conversation(engine, 60.0), Conversation(engine, 60.0)
    answers = [answer for piece in pieces(whole) for answer in alone.receive([piece])] + alone.receive([EOF])
    assert said(answers) == SAID
    first, second = (json.loads(answer)["result"] for answer in answers if json.loads(answer).get("text"))
    assert first[-1]["end"] < len(audio[0]) / RATE + 0.5 < second[0]["start"] + 2.0 and second[0]["start"] > (len(audio[0]) + RATE) / RATE
    others = together.receive(['{"config": {"sample_rate": 16000, "words": false}}', *pieces(whole), EOF])
    assert len(others) == len(answers) and " ".join(said(others)) == " ".join(SAID)
    assert all("result" not in json.loads(answer) for answer in others)


def test_alternatives_are_the_likeliest_first(engine: Engine, audio: list[np.ndarray]) -> None:
    """As Vosk has them; of two utterances that end at once, pairs."""
    asked = '{"config": {"max_alternatives": 4, "sample_rate": 16000}}'
    conversation = Conversation(engine, 60.0)
    found = json.loads(conversation.receive([asked, *pieces(audio[0]), EOF])[-1])["alternatives"]
    assert len(found) == 4 and found[0]["text"] == SAID[0] and len({one["text"] for one in found}) == 4
    assert [one["confidence"] for one in found] == sorted((one["confidence"] for one in found), reverse=True)
    assert [word["word"] for word in found[1]["result"]] == found[1]["text"].split()
    quiet = np.random.default_rng(0).normal(scale=3, size=2 * RATE)
    together = np.concatenate([audio[0], quiet, audio[1], quiet])
    both = json.loads(Conversation(engine, 60.0).receive([asked, together.astype("<i2").tobytes()])[0])["alternatives"]
    assert len(both) == 4 and both[0]["text"] == " ".join(SAID) and len({one["text"] for one in both}) == 4
    nothing = Conversation(engine, 60.0).receive([asked, EOF])
    assert json.loads(nothing[0]) == {"alternatives": [{"confidence": 0.0, "text": ""}]}


def test_a_reset_ends_an_utterance(engine: Engine, audio: list[np.ndarray]) -> None:
    conversation = Conversation(engine, 60.0)
    first = conversation.receive([*pieces(audio[0]), '{"reset" : 1}'])
    assert said(first) == [SAID[0]] and not conversation.ended
    second = conversation.receive([*pieces(audio[1]), EOF])
    assert said(second) == [SAID[1]]
    assert json.loads(second[-1])["result"][0]["start"] > len(audio[0]) / RATE and conversation.ended


def test_phrases_are_the_language_model(recipe: Path, golden: Path, audio: list[np.ndarray], tmp_path: Path) -> None:
    """A client's phrases, as the other's words; those of a second client are its own. The graph is made as mkgraph_lookahead.sh does."""
    (tmp_path / "model").mkdir()
    shutil.copyfile(recipe / "exp/chain/tdnn/final.mdl", tmp_path / "model/final.mdl")
    shutil.copyfile(golden / "chain_an4/decode/tree", tmp_path / "model/tree")
    make_lookahead_graph(golden / "an4_kaldi/lang", tmp_path / "model", tmp_path / "graph", GraphOptions(self_loop_scale=1.0))
    options = TranscribeOptions(graph=str(tmp_path / "graph"))
    engine, _ = engine_of(recipe / "exp/chain/tdnn", options, DecoderOptions(), StreamOptions(), lambda _: Endpointing(range(1, 11)))

    def spoken(*phrases: str) -> list[str]:
        config = json.dumps({"config": {"phrase_list": phrases}})
        return said(Conversation(engine, 60.0).receive([config, *pieces(audio[0]), EOF]))

    assert spoken() == [SAID[0]]
    assert spoken("rubout g m e f thirty nine", "start") == [SAID[0]]
    (numbers,) = spoken("one two three four five", "six seven eight nine thirty")
    assert set(numbers.split()) <= {*DIGITS, "THIRTY"} and numbers.endswith("THIRTY NINE")
    assert spoken("thirty nine", "[unk]")[0].endswith("THIRTY NINE")
    for phrases, words in ((["a xylophone"], "has no word xylophone"), ([" "], "has 0 words")):
        with pytest.raises(UserError, match=words):
            spoken(*phrases)
    assert spoken() == [SAID[0]]


def test_a_higher_rate_is_taken(engine: Engine, audio: list[np.ndarray]) -> None:
    conversation = Conversation(engine, 60.0)
    high = resample_poly(audio[0], 3, 1)
    assert said(conversation.receive(['{"config": {"sample_rate": 48000}}', *pieces(high, 9001), EOF])) == [SAID[0]]


def test_clients_do_not_disturb_each_other(engine: Engine, audio: list[np.ndarray]) -> None:
    """Six conversations at once, in threads, over one graph and few places."""
    found: dict[int, list[str]] = {}

    def speak(number: int) -> None:
        conversation, answers = Conversation(engine, 60.0), []
        for piece in pieces(audio[number % 2], 2000 + 500 * number):
            answers += conversation.receive([piece])
        found[number] = said(answers + conversation.receive([EOF]))

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: [SAID[number % 2]] for number in range(6)}


@pytest.mark.parametrize(("messages", "words"), [
    (["hello"], "found text that is no JSON"), (["[" * 100_000], "found text that is no JSON"), (['{"eof": 0}'], 'found {"eof": 0}'),
    (['{"config": {"model": "other"}}'], "config model is not known here"), (['{"config": {"phrase_list": "a"}}'], "expected a list"),
    (['{"config": {"phrase_list": ["a"]}}', b"\0\0"], "utils/mkgraph_lookahead.sh"),
    (['{"config": {"max_alternatives": -1}}'], "expected a whole number, from 0 to 100"),
    (['{"config": {"sample_rate": "fast"}}'], "expected a whole number of Hz"), (['{"config": {"sample_rate": NaN}}'], "expected a whole"),
    (['{"config": {"sample_rate": 8000}}'], "expected 16000 Hz or more, found 8000 Hz"),
    ([b"\0\0", '{"config": {"sample_rate": 16000}}'], "has to come before the first samples"),
    ([b"\0\0\0"], "an odd number of bytes"), ([bytes(2 * 16000 * 4)], "more than 0.05 minutes")])
def test_what_cannot_be_is_refused(engine: Engine, messages: list[str | bytes], words: str) -> None:
    with pytest.raises(UserError) as refused:
        Conversation(engine, 3.0).receive(messages)
    assert words in str(refused.value)


class Written:
    """A transcriber whose word is how long and how loud a recording is."""

    rate = 8000
    parts = ""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def transcribe(self, recordings: Sequence[tuple[str, np.ndarray]], alternatives: int = 0) -> Iterator[Transcript]:
        assert alternatives == 0
        for name, samples in recordings:
            self.seconds.append(len(samples) / self.rate)
            yield Transcript(name, self.seconds[-1], [Utterance(0.0, self.seconds[-1], [Word("word", 0.1, 0.2, 1.0)])])


@pytest.mark.parametrize("piece", [400, 8000, 16000])
def test_models_that_need_whole_utterances_have_them_at_pauses(piece: int) -> None:
    """Silence takes no memory; an utterance without a pause ends after 20 seconds."""
    rng = np.random.default_rng(2)
    samples = rng.normal(scale=10, size=80 * 8000)
    for begin, end in ((10, 12), (15, 16), (20, 65)):
        samples[begin * 8000:end * 8000] *= 50
    transcriber = Written()
    session, found, most = WholeSession(transcriber, threading.Lock()), [], 0
    for at in range(0, len(samples), piece):
        found += session.accept(samples[at:at + piece].astype(np.float32))
        most = max(most, len(session._samples))
    found += session.finish()
    begins = [one.begin for one in found]
    assert len(found) == len(transcriber.seconds) >= 5 and begins == sorted(begins)
    np.testing.assert_allclose(begins[:3], [9.8, 14.8, 19.8], atol=0.1)
    assert found[-1].end == pytest.approx(65.2, abs=0.1) and max(transcriber.seconds) <= 20.0
    assert [one.words[0].begin - one.begin for one in found if one.words] == pytest.approx([0.1] * len(found))
    assert most <= 24 * 8000
