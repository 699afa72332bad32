"""utils/new_recipe.sh from audio files and a table to a word error rate."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import mini_recipe
import numpy as np
import pytest
import soundfile


def write_corpus(folder: Path) -> None:
    """Six speakers, each with formants of its own, who say words that are tones in noise; and a table in csv."""
    rng = np.random.Generator(np.random.PCG64(7))
    lines = ["clip,sentence"]
    for speaker in range(6):
        (folder / f"speaker{speaker}").mkdir(parents=True)
        for i in range(10):
            words = [list(mini_recipe.LEXICON)[j] for j in rng.integers(0, 4, 4)]
            name = f"speaker{speaker}/{i}.flac"
            soundfile.write(folder / name, mini_recipe.wave_of(words, rng, 1 + 0.01 * speaker), mini_recipe.RATE)
            lines.append(f'{name},"{words[0].capitalize()}, {" ".join(words[1:])}."')
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_one_command_gives_a_word_error_rate(root, tmp_path):
    write_corpus(tmp_path / "corpus")
    done = subprocess.run([root / "utils/new_recipe.sh", "tones", "--audio", "corpus", "--transcripts", "corpus/table.csv",
                           "--lexicon", "graphemes", "--columns", "audio=clip", "--dir", "tones", "--nj", "2"],
                          cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert re.search(r"train: 40 utterances of 4 speakers", done.stdout)
    assert re.search(r"perplexity of data/dev/text: [\d.]+ \(10 sentences, 40 words", done.stdout)
    audio = re.findall(r"transcribe exp/dnn (.*)", done.stdout)[-1]
    assert (tmp_path / "tones" / audio).is_file() and audio.endswith(".flac") and "sed: " not in done.stderr
    rows = dict(re.findall(r"\| (\w+)/decode +\| +([\d.]+) +\|", done.stdout))
    assert rows.keys() == {"mono", "tri1", "tri2", "tri3", "dnn"}
    assert all(float(wer) <= 5.0 for wer in rows.values()), rows
