"""The model of a server with all that it takes, which its clients share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.lookahead import LookaheadDecoder
from pykaldist.decode.streaming import Recogniser, StreamOptions
from pykaldist.errors import UserError
from pykaldist.serve.recipe import graph_of, scales_of
from pykaldist.serve.server.phrases import Phrases
from pykaldist.serve.server.sessions import Places, Session, StreamedSession, WholeSession
from pykaldist.serve.streamed import streaming_recogniser, transcriber_of
from pykaldist.serve.transcribe import TranscribeOptions, Transcribing, WordReader
from pykaldist.serve.transcript import Transcript


class Engine:
    """A model that many clients share: sessions of recordings that come, and whole recordings.

    `recogniser` is there where the model recognises while audio comes.
    """

    def __init__(self, transcriber: Transcribing, recogniser: Recogniser | None, reader: WordReader) -> None:
        self._transcriber, self._recogniser, self._reader = transcriber, recogniser, reader
        self.rate = transcriber.rate
        self._lock = threading.Lock()  # a transcriber has one decoder
        self._phrases: Phrases | None = None
        self._places = Places(len(os.sched_getaffinity(0)), recogniser.decoder.lent_states) if recogniser else None

    def session(self, alternatives: int = 0, phrases: Sequence[str] = ()) -> Session:
        """Begin a recording, whose utterances have so many alternatives, and in which `phrases` are said, where there are some.

        Raises UserError where phrases cannot be the language model.
        """
        if self._recogniser is None or self._places is None:
            if phrases:
                raise UserError("phrase_list takes a chain model, or another that recognises while audio comes; leave it out.")
            return WholeSession(self._transcriber, self._lock, alternatives)
        decoder = self._recogniser.decoder
        if phrases:
            if not isinstance(decoder, LookaheadDecoder):
                raise UserError("phrase_list takes a graph whose language model can be exchanged; make one with "
                                "utils/mkgraph_lookahead.sh and start the server with --graph, or leave it out.")
            self._phrases = self._phrases or Phrases(self._recogniser.graph_dir)
            decoder = decoder.with_grammar(self._phrases.grammar(phrases))
        return StreamedSession(self._recogniser, decoder, self._reader, self._places, alternatives)

    def warm_up(self) -> None:
        """Recognise noise both ways, so that nobody waits for what is done once, such as the compiling of kernels."""
        noise = np.random.default_rng(0).normal(scale=100, size=2 * self.rate).astype(np.float32)
        session = self.session(alternatives=1)
        session.accept(noise)
        session.finish()
        with suppress(UserError):  # of which nothing came out
            self.transcribe("noise", noise)

    def transcribe(self, name: str, samples: np.ndarray) -> Transcript:
        """Transcribe a whole recording; raises UserError where it cannot be."""
        with self._lock:
            found = list(self._transcriber.transcribe([(name, samples)]))
        if not found:
            raise UserError(f"{name}: nothing came out.")
        return found[0]


def engine_of(model_dir: Path, options: TranscribeOptions, decoding: DecoderOptions, streaming: StreamOptions,
              endpointing: Callable[[Path], Endpointing]) -> tuple[Engine, str]:
    """Make the engine of a directory's model, and say of what; `endpointing` makes that of a graph's directory.

    A model recognises while audio comes if it can; why it cannot is said, too. Raises UserError where a part is missing or does not fit.
    """
    transcriber = transcriber_of(model_dir, options, decoding, streaming.extractor)
    graph_dir = graph_of(model_dir, options.graph)
    recogniser, how = None, "words come while they are said"
    try:
        recogniser = streaming_recogniser(model_dir, options, decoding, streaming, endpointing(graph_dir))
    except UserError as error:
        if streaming.mean_of or streaming.extractor:
            raise
        how = f"words come when a pause has ended an utterance, as {str(error).partition('; ')[0]}"  # without the cure, which is --stream's
    search = recogniser.decoder.options if recogniser else decoding
    reader = WordReader(model_dir, graph_dir, scales_of(model_dir, options.lmwt, options.word_ins_penalty), search)
    return Engine(transcriber, recogniser, reader), f"{transcriber.parts}; {how}"
