"""Speech that a minute of is enough to learn: words that are tones in noise, in the layout of AN4, of which the other layouts are made."""

from __future__ import annotations

from pathlib import Path

import mini_recipe
import numpy as np

from layouts.speech import lines, pause, write

PHONES = {"a": "AA", "u": "UW", "b": "B", "d": "D"}
WORDS = 4  # of an utterance
QUIET = 1200, 655  # samples before and behind, and their level, which is that of the noise in the tones


def as_an4(folder: Path, speakers: int, each: int, tested: int = 84) -> Path:
    """`folder`/data/an4 with speakers for training, each with formants of its own, and `tested` test utterances; returns `folder`."""
    corpus, rng = folder / "data/an4", np.random.default_rng(7)
    lexicon = [f"{word.upper()} {' '.join(PHONES[phone] for phone in phones.split())}" for word, phones in mini_recipe.LEXICON.items()]
    lines(corpus / "etc/an4.dic", lexicon)
    for part, place, count in (("train", "an4_clstk", speakers), ("test", "an4test_clstk", tested // 6)):
        files, said = [], []
        for speaker in range(count):
            name = f"{'mf'[speaker % 2]}{part[0]}{chr(97 + speaker // 26)}{chr(97 + speaker % 26)}"
            for i in range(each if part == "train" else 6):
                words = [list(mini_recipe.LEXICON)[j] for j in rng.integers(0, len(mini_recipe.LEXICON), WORDS)]
                file = f"{place}/{name}/an{i:02d}-{name}-b"
                wave = np.round(2**15 * mini_recipe.wave_of(words, rng, 1 + 0.01 * (speaker % 5))).astype(np.int16)
                quiet, level = QUIET
                sound = np.concatenate([pause(quiet, rng, level=level), wave, pause(quiet, rng, level=level)])
                write(corpus / f"wav/{file}.flac", sound, mini_recipe.RATE, "FLAC")
                files.append(file)
                said.append(f"<s> {' '.join(words).upper()} </s> ({Path(file).name})")
        lines(corpus / f"etc/an4_{part}.fileids", files)
        lines(corpus / f"etc/an4_{part}.transcription", said)
    return folder
