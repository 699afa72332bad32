"""The utterances that stand-ins are made of, and how they are written."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

from pykaldist.lm.arpa import write_arpa
from pykaldist.lm.smoothing import estimate

QUIET = 160  # samples with which an utterance begins before anything is said


@dataclass(frozen=True)
class Utterance:
    """Words that a speaker says, and the file that holds them."""

    name: str
    speaker: str
    gender: str  # m or f
    words: tuple[str, ...]
    path: Path

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def samples(self, rate: int = 16000) -> np.ndarray:
        """The samples as 16-bit integers, at `rate` Hz."""
        found, own = soundfile.read(self.path, dtype="int16")
        if own == rate:
            return found
        ratio = Fraction(rate, own)
        return np.clip(np.round(resample_poly(found.astype(float), ratio.numerator, ratio.denominator)), -32768, 32767).astype(np.int16)


def an4(shared: Path, part: str = "train") -> list[Utterance]:
    """AN4: letters, digits and dates; `part` is train (74 speakers) or test (10)."""
    corpus = shared / "data/an4"
    files = {Path(line).name: line for line in (corpus / f"etc/an4_{part}.fileids").read_text().split()}
    found = []
    for line in (corpus / f"etc/an4_{part}.transcription").read_text().splitlines():
        *words, name = line.split()
        name = name.strip("()")
        speaker = Path(files[name]).parent.name
        found.append(Utterance(name, speaker, speaker[0], tuple(w for w in words if w not in ("<s>", "</s>")),
                               corpus / f"wav/{files[name]}.flac"))
    return sorted(found, key=lambda utterance: utterance.name)


def an4_lexicon(shared: Path) -> list[tuple[str, list[str]]]:
    """AN4's words with their pronunciations, variants of one word on lines of their own."""
    lines = (line.split() for line in (shared / "data/an4/etc/an4.dic").read_text().splitlines())
    return [(line[0].split("(")[0], line[1:]) for line in lines if line]


def with_stress(lexicon: Iterable[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """A lexicon whose first vowels are stressed (AH1), and the others not (AH0), as in CMU's dictionary."""
    marked = []
    for word, phones in lexicon:
        vowels = [i for i, phone in enumerate(phones) if phone[0] in "AEIOU"]
        marked.append((word, [phone + ("1" if i == vowels[0] else "0") if i in vowels else phone for i, phone in enumerate(phones)]))
    return marked


def some(utterances: Iterable[Utterance], speakers: int, each: int, skip: int = 0) -> list[Utterance]:
    """The first `each` utterances of `speakers` speakers, after `skip` speakers have been left out; speakers in turn m and f."""
    by_speaker: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        by_speaker.setdefault(utterance.speaker, []).append(utterance)
    by_gender = [[spoken for spoken in by_speaker.values() if spoken[0].gender == gender] for gender in "mf"]
    shorter = min(map(len, by_gender))
    in_turn = [spoken for pair in zip(*by_gender, strict=False) for spoken in pair] + by_gender[0][shorter:] + by_gender[1][shorter:]
    return [utterance for spoken in in_turn[skip : skip + speakers] for utterance in spoken[:each]]


def words_of(utterances: Iterable[Utterance]) -> set[str]:
    """The words that are said."""
    return {word for utterance in utterances for word in utterance.words}


def pause(samples: int, rng: np.random.Generator, beside: np.ndarray | None = None, level: int = 20) -> np.ndarray:
    """What a microphone hears between words: noise of so many steps of a 16-bit integer, or of the spectrum with which `beside` begins.

    Zeros, which no microphone hears, ruin a flat start; so does a pause that sounds unlike the noise in the speech.
    """
    white = rng.integers(-level, level, samples, np.int16, endpoint=True)
    if beside is None or not samples:
        return white
    quiet = beside[:QUIET] - np.mean(beside[:QUIET])
    spectrum, shape = np.fft.rfft(white), np.abs(np.fft.rfft(quiet))
    noise = np.fft.irfft(spectrum * np.interp(np.linspace(0, 1, len(spectrum)), np.linspace(0, 1, len(shape)), shape), samples)
    return np.round(noise * np.std(quiet) / max(float(np.std(noise)), 1e-9)).astype(np.int16)


def write(path: Path, samples: np.ndarray, rate: int, kind: str, subtype: str = "PCM_16") -> None:
    """An audio file (WAV, FLAC or NIST) with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype, format=kind)


def lines(path: Path, content: Iterable[str]) -> None:
    """A text file with its folder; gzipped where its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in content)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def arpa(path: Path, sentences: Iterable[Sequence[str]], vocabulary: Iterable[str], order: int) -> None:
    """A language model of `sentences`, as ARPA."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arpa(estimate(sentences, vocabulary, order), path)


def tar(folder: Path, archive: Path) -> None:
    """`folder` in an archive, gzipped, and no longer beside it."""
    subprocess.run(["tar", "-czf", archive, "-C", folder.parent, "--remove-files", folder.name], check=True)
