"""CMU AN4: letters, digits and dates; 948 training and 130 test utterances of disjoint speakers, 16 kHz.

The public layout is etc/an4_{train,test}.{fileids,transcription}, etc/an4.{dic,lm} and wav/an4_clstk, wav/an4test_clstk, with the
audio as wav, flac, sph, or raw 16-bit samples in either byte order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.audio import find_audio
from pykaldist.io.corpora.dictionary import Lexicon, read_lexicon, write_dict
from pykaldist.io.corpora.fetch import Unreachable, fetch_git
from pykaldist.io.datadir import write_datadir
from pykaldist.io.tables import read_lines

REPOSITORY = "https://github.com/cmusphinx/an4"
COMMIT = "b567d132f43304e70a2b2eca6077f22255311812"
RATE = 16000


def find_corpus(corpus: str | None, fetch_dir: str | os.PathLike[str], repository: str = REPOSITORY,
                commit: str = COMMIT) -> Path:
    """The corpus's folder: `corpus`, else what was cloned before, else a new clone. Raises UserError where it is no AN4."""
    folder = Path(corpus or fetch_dir)
    if not corpus and not (folder / "etc").is_dir():
        try:
            fetch_git(repository, commit, folder)
        except Unreachable as error:
            raise UserError(f"AN4 could not be fetched from {repository} ({error}); clone it elsewhere and give its folder with "
                            "--corpus.") from error
    for needed in ("etc/an4.dic", "etc/an4.lm", "etc/an4_train.transcription", "etc/an4_test.transcription", "wav"):
        if not (folder / needed).exists():
            raise UserError(f"{folder} has no {needed}, so it is not AN4 in its public layout; "
                            "give --corpus the folder that has etc/ and wav/.")
    return folder


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str]) -> Iterable[str]:
    """Write <data>/train, <data>/test, <data>/local/dict and <data>/local/lm.arpa; yields lines that say what came out."""
    folder, data = find_corpus(corpus, fetch_dir), Path(data)
    audio = find_audio(folder / "wav", (".wav", ".flac", ".sph", ".raw"))
    for part in ("train", "test"):
        wav, text, speakers = _read_set(folder, part, audio)
        raw = {utt: path for utt, path in wav.items() if path.suffix == ".raw"}
        wav.update(_convert_raw(raw, data / "local/wav"))
        write_datadir(data / part, {utt: str(path.resolve()) for utt, path in wav.items()}, text, speakers)
        yield f"{len(text)} utterances of {len(set(speakers.values()))} speakers in {data / part}"
    lexicon: Lexicon = {}
    for word, variants in read_lexicon(folder / "etc/an4.dic").items():
        lexicon.setdefault(re.sub(r"\(\d+\)$", "", word), []).extend(variants)
    write_dict(data / "local/dict", lexicon)
    write_text(data / "local/lm.arpa", "\n".join(read_lines(folder / "etc/an4.lm")) + "\n")
    yield f"{len(lexicon)} words in {data}/local/dict/lexicon.txt, their language model in {data}/local/lm.arpa"


def _read_set(folder: Path, part: str, audio: dict[str, Path]) -> tuple[dict[str, Path], dict[str, str], dict[str, str]]:
    """wav, text and speaker of each utterance, `<speaker>-<file>`."""
    by_stem = {stem.rsplit("/", 1)[-1]: (stem, path) for stem, path in audio.items()
               if stem.startswith("an4test_clstk/" if part == "test" else "an4_clstk/")}
    transcription = folder / f"etc/an4_{part}.transcription"
    wav, text, speakers = {}, {}, {}
    for number, line in enumerate(read_lines(transcription), 1):
        match = re.fullmatch(r"\s*(?:<s>)?\s*(.*?)\s*(?:</s>)?\s*\((\S+)\)\s*", line)
        if not match or not match[1]:
            raise UserError(f"{transcription}, line {number}: expected `WORDS (file)`, found {line!r}.")
        words, stem = match.groups()
        if stem not in by_stem:
            raise UserError(f"{folder}/wav has no audio (wav, flac, sph or raw) of {stem}, which {transcription.name} names; fetch the "
                            "corpus again: move it away, and run ./run.sh without --corpus.")
        path, file = by_stem[stem]
        speaker = path.split("/")[-2]
        utt = f"{speaker}-{stem}"
        wav[utt], text[utt], speakers[utt] = file, words, speaker
    if not text:
        raise UserError(f"{transcription} is empty; fetch the corpus again: move it away, and run ./run.sh without --corpus.")
    return wav, text, speakers


def _convert_raw(raw: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Write headerless audio as wav. The byte order is the one in which speech is the smoother signal."""
    converted = {}
    for utt, path in raw.items():
        content = path.read_bytes()
        if len(content) < 4 or len(content) % 2:
            raise UserError(f"{path}: {len(content)} bytes are no 16-bit audio; fetch the corpus again: move it away, and run ./run.sh "
                            "without --corpus.")
        orders = [np.frombuffer(content, dtype).astype(np.int16) for dtype in ("<i2", ">i2")]
        samples = min(orders, key=lambda x: float(np.abs(np.diff(x.astype(np.float64))).mean()))
        converted[utt] = folder / f"{utt}.wav"
        with atomic_open(converted[utt], "wb") as stream:
            soundfile.write(stream, samples, RATE, format="WAV", subtype="PCM_16")
    return converted
