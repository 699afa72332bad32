"""Vosk's protocol (https://alphacephei.com/vosk/server): messages of client and server, without the connection that they go by.

    client                                         server
    {"config": {"sample_rate": 8000}}              nothing
    16-bit samples, one channel, little-endian     {"partial": "one two"}, or the result of an utterance that ended
    {"eof": 1}                                     {"result": [{"word", "start", "end", "conf"}, ...], "text": "one two three"}

Each message of samples has one answer. Options that Vosk's server has and this one has not are refused: `phrase_list`, `max_alternatives`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.serve.recordings import ResampleStream, check_rate
from pykaldist.serve.server.engine import Engine
from pykaldist.serve.server.sessions import Session
from pykaldist.serve.transcript import Utterance

MOST_AT_ONCE = 1.0  # seconds of audio that are computed in one step


class Conversation:
    """One client's recording; `ended` is set when the client has said so."""

    def __init__(self, engine: Engine, max_seconds: float) -> None:
        self._engine, self._max_seconds = engine, max_seconds
        self._rate, self._words, self.ended = engine.rate, True, False
        self._session: Session | None = None
        self._resample = ResampleStream(engine.rate, engine.rate)
        self._samples = 0

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
        if content == {"eof": 1}:
            self.ended = True
            left = self._begun().accept(self._resample.finish()) + self._begun().finish()
            return [self._result(left)]
        if isinstance(content, dict) and content.keys() == {"config"} and isinstance(content["config"], dict):
            self._configure(content["config"])
            return []
        raise UserError('expected samples, {"config": {"sample_rate": 16000}} or {"eof": 1}, found ' + message[:60] + ".")

    def _configure(self, config: dict[str, Any]) -> None:
        if self._samples:
            raise UserError("the config has to come before the first samples.")
        unknown = sorted(config.keys() - {"sample_rate", "words"})
        if unknown:
            raise UserError(f"config {unknown[0]} is not known here, sample_rate and words are; leave it out.")
        rate, words = config.get("sample_rate", self._rate), config.get("words", True)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or rate != rate // 1 or not 1000 <= rate <= 400_000:
            raise UserError(f"sample_rate {str(rate)[:20]}: expected a whole number of Hz, from 1000 to 400000.")
        check_rate("the recording", int(rate), self._engine.rate)
        self._rate, self._words = int(rate), bool(words)
        self._resample = ResampleStream(self._rate, self._engine.rate)

    def _begun(self) -> Session:
        """The session, begun with the first samples: who only connects takes nothing."""
        if self._session is None:
            self._session = self._engine.session()
        return self._session

    def _audio(self, messages: Sequence[bytes]) -> list[str]:
        """An answer for each message: a partial one, and for the last the result where an utterance has ended."""
        if not messages:
            return []
        if any(len(message) % 2 for message in messages):
            raise UserError("expected 16-bit samples, found a message of an odd number of bytes.")
        samples = np.frombuffer(b"".join(messages), "<i2").astype(np.float32)
        self._samples += len(samples)
        if self._samples > self._max_seconds * self._rate:
            raise UserError(f"the recording has more than {self._max_seconds / 60:g} minutes, which are the most that are taken.")
        session, step, ended = self._begun(), round(MOST_AT_ONCE * self._rate), list[Utterance]()
        for begin in range(0, len(samples), step):
            ended += session.accept(self._resample.accept(samples[begin:begin + step]))
        partial = json.dumps({"partial": session.partial}, ensure_ascii=False)
        return [partial] * (len(messages) - 1) + [self._result(ended) if any(one.words for one in ended) else partial]

    def _result(self, ended: Sequence[Utterance]) -> str:
        """The result of utterances that have ended."""
        words = [word for one in ended for word in one.words or ()]
        timed = [{"conf": round(word.confidence or 0.0, 6), "end": round(word.end, 6), "start": round(word.begin, 6), "word": word.word}
                 for word in words if word.begin is not None and word.end is not None]
        found: dict[str, object] = {"result": timed} if timed and self._words else {}
        return json.dumps({**found, "text": " ".join(word.word for word in words)}, ensure_ascii=False)
