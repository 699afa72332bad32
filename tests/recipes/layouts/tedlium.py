"""TED-LIUM release 3 (OpenSLR 51) with the language models of its recipe; of AN4: a talk is what a speaker has read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from layouts.speech import an4, an4_lexicon, arpa, lines, pause, some, words_of, write

RATE = 16000
PAUSE_S = 0.4
SPH_FILES = 2351  # in all of the corpus, which the recipe counts
PARTS = {"train": (24, 12), "dev": (2, 3), "test": (2, 3)}


def lay_out(shared: Path, folder: Path, models: Path, parts: Mapping[str, tuple[int, int]] = PARTS, sph_files: int = SPH_FILES) -> None:
    """`folder`/TEDLIUM_release-3, and the two language models that the recipe fetches in `models`; `parts`: speakers, segments of each."""
    release, everything, begun, said = folder / "TEDLIUM_release-3", an4(shared), 0, []
    rng = np.random.default_rng(sph_files)
    for part, (speakers, each) in parts.items():
        chosen = some(everything, speakers, each, begun)
        for speaker in dict.fromkeys(utterance.speaker for utterance in chosen):
            talk, end, sound, stm = f"{speaker.capitalize()}_2016", 0.0, [], []
            for utterance in (utterance for utterance in chosen if utterance.speaker == speaker):
                samples = utterance.samples(RATE)
                begin = end + PAUSE_S
                end = begin + len(samples) / RATE
                sound += [pause(round(PAUSE_S * RATE), rng, samples), samples]
                gender = "male" if utterance.gender == "m" else "female"
                # as in the release, a name ends the lines of the training set
                text = utterance.text.lower() + (f" ({talk}-{begin:.2f}-{end:.2f}-F0_M-S0)" if part == "train" else "")
                stm.append(f"{talk} 1 {talk} {begin:.2f} {end:.2f} <o,f0,{gender}> {text}")
            stm.insert(2, f"{talk} 1 inter_segment_gap {stm[0].split()[4]} {stm[1].split()[3]} <o,f0,> ignore_time_segment_in_scoring")
            write(release / f"legacy/{part}/sph/{talk}.sph", np.concatenate([*sound, pause(RATE, rng, sound[0])]), RATE, "NIST")
            lines(release / f"legacy/{part}/stm/{talk}.stm", stm)
        begun += speakers
        said += chosen
    (release / "data/sph").mkdir(parents=True)
    for i in range(sph_files):
        (release / f"data/sph/{i}.sph").touch()
    wanted = {word.lower() for word in words_of(said)}
    seen: dict[str, int] = {}
    dictionary = []
    for word, phones in an4_lexicon(shared):
        if (word := word.lower()) in wanted:
            seen[word] = seen.get(word, 0) + 1
            variant = f"({seen[word]})" if seen[word] > 1 else ""
            dictionary.append(f"{word}{variant} {' '.join(phones)}")
    lines(release / "TEDLIUM.152k.dic", ["<s> SIL", "</s> SIL", "<unk> SIL", *dictionary])
    sentences = [utterance.text.lower().split() for utterance in said]
    arpa(models / "4gram_small.arpa.gz", sentences, wanted, 2)
    arpa(models / "4gram_big.arpa.gz", sentences, wanted, 4)
