"""A recipe of seconds, from waveforms to lattices in one process, of synthetic speech.

mini_recipe.py FOLDER NJ [features|gmm|network] makes FOLDER/{data,mfcc,exp}; with `features` no more than these and CMVN statistics, with
`gmm` no network, with `network` no lattices by it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy is loaded after the deterministic mode has begun
    import numpy as np

LEXICON = {"ba": "b a", "du": "d u", "bu": "b u", "da": "d a"}
FORMANTS = {"a": (800, 1300), "u": (350, 800), "b": (200, 2600), "d": (1800, 3000)}  # Hz
RATE = 8000


def wave_of(words: Sequence[str], rng: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    """The samples of words, tones in noise, at RATE; `scale` is a factor on the tones' frequencies."""
    import numpy as np

    sounds = [np.zeros(800)]
    for word in words:
        for phone in LEXICON[word].split():
            t = np.arange(int(rng.integers(700, 1100))) / RATE
            sounds.append(sum(0.1 * np.sin(2 * np.pi * scale * f * t) for f in FORMANTS[phone]))
        sounds.append(np.zeros(400))
    wave = np.concatenate(sounds)
    return wave + rng.uniform(-0.02, 0.02, len(wave))


def write_corpus(folder: Path) -> None:
    """data/{train,test} of four words that are tones in noise, and their dictionary."""
    import numpy as np
    import soundfile

    rng = np.random.Generator(np.random.PCG64(7))
    for part, count in (("train", 24), ("test", 4)):
        data = folder / "data" / part
        data.mkdir(parents=True)
        tables: dict[str, list[str]] = {"wav.scp": [], "text": [], "utt2spk": []}
        for i in range(count):
            words = [list(LEXICON)[j] for j in rng.integers(0, 4, 4)]
            utt, path = f"s{i % 2}-{part}{i:02d}", data / f"{i}.wav"
            soundfile.write(path, np.round(2**15 * wave_of(words, rng)).astype(np.int16), RATE)
            for name, value in (("wav.scp", path), ("text", " ".join(words)), ("utt2spk", f"s{i % 2}")):
                tables[name].append(f"{utt} {value}\n")
        for name, lines in tables.items():
            (data / name).write_text("".join(sorted(lines)))
        (data / "spk2utt").write_text("".join(f"s{s} {' '.join(line.split()[0] for line in sorted(tables['text']) if line[1] == str(s))}\n"
                                              for s in range(2)))
    dictionary = folder / "data" / "dict"
    dictionary.mkdir()
    lines = {"lexicon.txt": ["<SIL> sil", *(f"{w} {p}" for w, p in LEXICON.items())], "silence_phones.txt": ["sil"],
             "nonsilence_phones.txt": ["a", "b", "d", "u"], "optional_silence.txt": ["sil"]}
    for name, content in lines.items():
        (dictionary / name).write_text("".join(f"{line}\n" for line in content))
    (folder / "mfcc.conf").write_text(f"--sample-frequency={RATE}\n--use-energy=false\n")


def run(folder: Path, nj: int, last: str = "") -> None:
    """The stages up to `last`, in `nj` jobs or threads where a stage has them, the network by two workers."""
    from pykaldist.cli import main

    def verb(*arguments: object) -> None:
        if main([str(argument) for argument in arguments]):
            sys.exit(f"mini_recipe.py: {arguments[0]} failed")

    data, exp, mfcc = folder / "data", folder / "exp", folder / "mfcc"
    mfcc.mkdir()
    for part in ("train", "test"):
        for job in range(1, nj + 1):
            verb("make-feats", "--feats-config", folder / "mfcc.conf", "--job", job, "--nj", nj, data / part, mfcc)
        verb("collect-feats", "--kind", "mfcc", "--nj", nj, data / part, mfcc)
        verb("make-cmvn", data / part, mfcc)
    if last == "features":
        return
    verb("prepare-lang", data / "dict", "<SIL>", data / "local", data / "lang")
    verb("train-lm", "--order", 2, "--smoothing", "witten-bell", data / "train/text", data / "lang/words.txt", data / "lm.arpa.gz")
    verb("format-lm", data / "lang", data / "lm.arpa.gz", data / "dict/lexicon.txt", data / "lang_test")
    verb("train-mono", "--nj", nj, "--num-iters", 8, "--max-iter-inc", 6, "--totgauss", 40, data / "train", data / "lang", exp / "mono")
    verb("align-si", "--nj", nj, data / "train", data / "lang", exp / "mono", exp / "mono_ali")
    verb("mkgraph", data / "lang_test", exp / "mono", exp / "mono/graph")
    if last == "gmm":
        return
    verb("pack", "--cv-percent", 20, "--delta-opts=--delta-order=2", data / "train", exp / "mono_ali", exp / "dnn/store")
    shape = ("--hid-layers", 2, "--hid-dim", 48, "--splice", 2, "--minibatch-size", 64)
    workers = ("--ngpu", 2, "--fabric", "virtual", "--strategy", "ma", "--average-period", 2)
    verb("pretrain-dbn", *shape, exp / "dnn/store", exp / "dbn")
    verb("train", *shape, *workers, "--dbn", exp / "dbn", "--optimizer", "ngsgd", "--schedule", "exponential", "--num-epochs", 2,
         exp / "dnn/store", exp / "dnn")
    for system in ("mono",) if last == "network" else ("mono", "dnn"):
        (exp / system / "decode").mkdir()
        for job in range(1, nj + 1):
            verb("decode", "--job", job, "--nj", nj, exp / "mono/graph", data / "test", exp / system / "decode")


if __name__ == "__main__":
    folder, nj = Path(sys.argv[1]), int(sys.argv[2])
    from pykaldist import deterministic

    deterministic.start()  # as the first of its processes does, before numpy is loaded
    os.makedirs(folder)
    write_corpus(folder)
    run(folder, nj, *sys.argv[3:])
