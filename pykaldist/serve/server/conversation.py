"""Vosk's protocol (https://alphacephei.com/vosk/server): messages of client and server, without the connection that they go by.

    client                                         server
    {"config": {"sample_rate": 8000}}              nothing
    16-bit samples, one channel, little-endian     {"partial": "one two"}, or the result of an utterance that ended
    {"reset": 1}                                   the result of the utterance, which ends
    {"eof": 1}                                     {"result": [{"word", "start", "end", "conf"}, ...], "text": "one two three"}

Each message of samples has one answer. Of Vosk's config there are `sample_rate`, `words` (0: a result is text alone), `phrase_list` (what
may be said) and `max_alternatives` (a result is {"alternatives": [{"text", "confidence", "result"}, ...]}, the likeliest first); not
`model`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.serve.recordings import ResampleStream, check_rate
from pykaldist.serve.server.engine import Engine
from pykaldist.serve.server.sessions import Session
from pykaldist.serve.transcript import Alternative, Utterance, Word

MOST_AT_ONCE = 1.0  # seconds of audio that are computed in one step
MOST_ALTERNATIVES = 100
CONFIG = ("sample_rate", "words", "max_alternatives", "phrase_list")


@dataclass
class Config:
    """What a client has asked for; Vosk's server has the same defaults, but for the sampling rate."""

    rate: int
    words: bool = True
    alternatives: int = 0
    phrases: tuple[str, ...] = ()


class Conversation:
    """One client's recording; `ended` is set when the client has said so, `rate` is its sampling rate until it says another."""

    def __init__(self, engine: Engine, max_seconds: float, rate: int | None = None) -> None:
        self._engine, self._max_seconds = engine, max_seconds
        self._config, self.ended = Config(rate or engine.rate), False
        self._session: Session | None = None
        self._resample = ResampleStream(self._config.rate, engine.rate)
        self._samples = 0
        self._begin = 0.0  # of the session, in seconds of the recording

    def receive(self, messages: Sequence[str | bytes]) -> list[str]:
        """Take messages; returns the answers. Raises UserError for one that cannot be understood, and where a limit is passed."""
        answers: list[str] = []
        waiting: list[bytes] = []  # samples are recognised together where several messages have come
        for message in messages:
            if isinstance(message, bytes):
                waiting.append(message)
                continue
            answers += self._audio(waiting)
            waiting = []
            answers += self._text(message)
        return answers + self._audio(waiting)

    def _text(self, message: str) -> list[str]:
        try:
            content = json.loads(message)
        except (ValueError, RecursionError) as error:
            raise UserError('expected samples, {"config": {"sample_rate": 16000}} or {"eof": 1}, found text that is no JSON.') from error
        if content in ({"eof": 1}, {"reset": 1}):
            self.ended = content == {"eof": 1}
            session = self._begun()
            result = self._result(session.accept(self._resample.finish()) + session.finish())
            self._session, self._resample = None, ResampleStream(self._config.rate, self._engine.rate)
            self._begin = self._samples / self._config.rate
            return [result]
        if isinstance(content, dict) and content.keys() == {"config"} and isinstance(content["config"], dict):
            self._configure(content["config"])
            return []
        raise UserError('expected samples, {"config": {"sample_rate": 16000}} or {"eof": 1}, found ' + message[:60] + ".")

    def _configure(self, asked: dict[str, Any]) -> None:
        if self._samples:
            raise UserError("the config has to come before the first samples.")
        unknown = sorted(asked.keys() - set(CONFIG))
        if unknown:
            raise UserError(f"config {unknown[0][:60]} is not known here, {', '.join(CONFIG)} are; leave it out.")
        before = self._config
        rate = _whole(asked, "sample_rate", before.rate, (1000, 400_000), "a whole number of Hz")
        check_rate("the recording", rate, self._engine.rate)
        phrases = asked.get("phrase_list", list(before.phrases))
        if not isinstance(phrases, list) or not all(isinstance(phrase, str) for phrase in phrases):
            raise UserError(f"phrase_list {str(phrases)[:60]}: expected a list of texts.")
        alternatives = _whole(asked, "max_alternatives", before.alternatives, (0, MOST_ALTERNATIVES), "a whole number")
        self._config = Config(rate, bool(asked.get("words", before.words)), alternatives, tuple(phrases))
        self._resample = ResampleStream(rate, self._engine.rate)

    def _begun(self) -> Session:
        """The session, begun with the first samples: who only connects takes nothing."""
        if self._session is None:
            self._session = self._engine.session(self._config.alternatives, self._config.phrases)
        return self._session

    def _audio(self, messages: Sequence[bytes]) -> list[str]:
        """An answer for each message: a partial one, and for the last the result where an utterance has ended."""
        if not messages:
            return []
        if any(len(message) % 2 for message in messages):
            raise UserError("expected 16-bit samples, found a message of an odd number of bytes.")
        samples = np.frombuffer(b"".join(messages), "<i2").astype(np.float32)
        self._samples += len(samples)
        if self._samples > self._max_seconds * self._config.rate:
            raise UserError(f"the recording has more than {self._max_seconds / 60:g} minutes, which are the most that are taken (the "
                            "server's --max-minutes).")
        session, step, ended = self._begun(), round(MOST_AT_ONCE * self._config.rate), list[Utterance]()
        for begin in range(0, len(samples), step):
            ended += session.accept(self._resample.accept(samples[begin:begin + step]))
        partial = json.dumps({"partial": session.partial}, ensure_ascii=False)
        return [partial] * (len(messages) - 1) + [self._result(ended) if any(one.words for one in ended) else partial]

    def _result(self, ended: Sequence[Utterance]) -> str:
        """The result of utterances that have ended."""
        ended = [one.later(self._begin) for one in ended if one.words is not None]
        if not self._config.alternatives:
            return json.dumps(self._said([word for one in ended for word in one.words or ()]), ensure_ascii=False)
        found = [Alternative([], 0.0)]
        for one in ended:
            pairs = [Alternative(before.words + after.words, before.score + after.score) for before in found for after in one.alternatives]
            found = sorted(pairs, key=lambda pair: -pair.score)[:self._config.alternatives]
        return json.dumps({"alternatives": [{"confidence": round(one.score, 6), **self._said(one.words)} for one in found]},
                          ensure_ascii=False)

    def _said(self, words: Sequence[Word]) -> dict[str, object]:
        """Words as Vosk has them: with times where there are some and they were asked for, and the text."""
        timed = [{**({} if word.confidence is None else {"conf": round(word.confidence, 6)}), "end": round(word.end, 6),
                  "start": round(word.begin, 6), "word": word.word} for word in words if word.begin is not None and word.end is not None]
        found: dict[str, object] = {"result": timed} if timed and self._config.words else {}
        return {**found, "text": " ".join(word.word for word in words)}


def _whole(asked: dict[str, Any], name: str, default: int, limits: tuple[int, int], what: str) -> int:
    """A whole number of a config, which JSON may write as 16000.0."""
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not limits[0] <= value <= limits[1]:
        raise UserError(f"{name} {str(value)[:20]}: expected {what}, from {limits[0]} to {limits[1]}.")
    return int(value)
