"""What one client says, on its way through a model that all clients share.

There are two ways. A chain model, or another nnet3 network on features as they are, recognises while the audio comes. Any other model
needs whole utterances, with the means of their features: audio is kept until a pause ends an utterance.

What grows with a client is the state of its network and the lattice of its present utterance, which ends after 20 seconds at the latest, or
the audio of as much. The graph, the model and the search's memory of a number a state are shared; of the last there is one for each
utterance that is computed at the same time (`Places`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from pykaldist.decode.decoder import LatticeDecoder
from pykaldist.decode.streaming import Recogniser, Recognition
from pykaldist.serve.segments import PAD, PAUSE, log_energies, noise_of, utterances_of
from pykaldist.serve.transcribe import Transcribing, WordReader
from pykaldist.serve.transcript import Utterance

LONGEST = 20.0  # seconds of an utterance, as by endpointing's last rule
LOOK_EVERY = 0.3  # seconds of audio between looks for a pause
QUIET_KEPT = 1.0  # seconds of quiet before an utterance that are kept
MOST_WAITING = 1.0  # seconds of audio that wait while other clients are served
RISE = 0.05  # of the level of noise in a second, in log energy, where it is heard no more


class Session(Protocol):
    """A recording that comes, in samples at the model's rate and in 16-bit scale."""

    partial: str  # what is known of the utterance that goes on

    def accept(self, samples: np.ndarray) -> list[Utterance]:
        """Take the next samples; returns the utterances that ended with them."""
        ...

    def finish(self) -> list[Utterance]:
        """End the recording; returns what is left of it."""
        ...


class Places:
    """Working memory of searches for so many that compute at once; who comes first is served first."""

    def __init__(self, count: int, states: int) -> None:
        self._free: queue.Queue[np.ndarray] = queue.Queue()
        for _ in range(count):
            self._free.put(np.zeros(states, np.int32))

    @property
    def busy(self) -> bool:
        """Whether who takes a place would have to wait."""
        return self._free.empty()

    @contextmanager
    def take(self) -> Iterator[np.ndarray]:
        """A place, waited for where there is none."""
        place = self._free.get()
        try:
            yield place
        finally:
            self._free.put(place)


class StreamedSession:
    """A recording that is recognised while it comes.

    A step has a price of its own, however few samples it takes. Where all places are busy, samples wait until a second of them has come: a
    step a second takes a third of the time of ten, so that more clients are served, and words come up to a second later.
    """

    def __init__(self, recogniser: Recogniser, decoder: LatticeDecoder, reader: WordReader, places: Places, alternatives: int) -> None:
        self._reader, self._places, self._alternatives, self.partial = reader, places, alternatives, ""
        self._waiting = np.zeros(0, np.float32)
        self._most = round(MOST_WAITING * recogniser.extractor.options.sample_frequency)
        with places.take() as where:
            self._decoder = decoder.another(where)
            self._recognition = Recognition(recogniser, decoder=self._decoder)

    def accept(self, samples: np.ndarray) -> list[Utterance]:
        self._waiting = np.concatenate([self._waiting, samples])
        return [] if self._places.busy and len(self._waiting) < self._most else self._step(False)

    def finish(self) -> list[Utterance]:
        return self._step(True)

    def _step(self, last: bool) -> list[Utterance]:
        """Recognise what waits; returns the utterances that ended."""
        ended = []
        with self._places.take() as where:
            self._decoder.lend(where)
            found = self._recognition.accept(self._waiting)
            self._waiting = np.zeros(0, np.float32)
            for heard in found + (self._recognition.finish() if last else []):
                self.partial = "" if heard.lattice is not None else " ".join(heard.words)
                if heard.lattice is not None:
                    ended.append(self._reader.read(heard.lattice, heard.begin, heard.end, self._alternatives))
        return ended


class WholeSession:
    """A recording whose utterances are recognised when a pause has ended them."""

    partial = ""

    def __init__(self, transcriber: Transcribing, lock: threading.Lock, alternatives: int = 0) -> None:
        self._transcriber, self._lock, self._alternatives = transcriber, lock, alternatives
        self._samples, self._begin, self._looked = np.zeros(0, np.float32), 0, 0  # `begin`: the first of them, in samples of the recording
        self._noise = np.inf

    def accept(self, samples: np.ndarray) -> list[Utterance]:
        self._samples = np.concatenate([self._samples, samples])
        rate, new = self._transcriber.rate, self._samples[self._looked:]
        if len(new) < LOOK_EVERY * rate:
            return []
        self._looked = len(self._samples)
        self._noise = min(self._noise + RISE * len(new) / rate, noise_of(log_energies(new, rate)[0]))
        spans = utterances_of(self._samples, rate, LONGEST, self._noise)
        if not spans:
            self._drop(max(0, len(self._samples) - round(QUIET_KEPT * rate)))
        elif len(spans) > 1 or len(self._samples) / rate - spans[0][1] >= PAUSE - PAD:
            begin, end = (round(edge * rate) for edge in spans[0])
            found = self._transcribed(begin, end)
            self._drop(end)
            return found
        return []

    def finish(self) -> list[Utterance]:
        rate = self._transcriber.rate
        ended = [one for begin, end in utterances_of(self._samples, rate, LONGEST, self._noise)
                 for one in self._transcribed(round(begin * rate), round(end * rate))]
        self._drop(len(self._samples))
        return ended

    def _transcribed(self, begin: int, end: int) -> list[Utterance]:
        with self._lock:
            (transcript,) = self._transcriber.transcribe([("the recording", self._samples[begin:end])], self._alternatives)
        return transcript.later((self._begin + begin) / self._transcriber.rate).utterances

    def _drop(self, samples: int) -> None:
        self._samples, self._begin, self._looked = self._samples[samples:].copy(), self._begin + samples, max(0, self._looked - samples)
