"""LibriSpeech (OpenSLR 12) and Mini LibriSpeech (OpenSLR 31), with the language models of OpenSLR 11; of AN4."""

from __future__ import annotations

from pathlib import Path

from layouts.speech import Utterance, an4, an4_lexicon, arpa, lines, some, with_stress, words_of, write

# The parts of each corpus: how many speakers, and utterances of each.
MINI = {"train-clean-5": (10, 12), "dev-clean-2": (3, 3)}
FULL = {"train-clean-100": (8, 8), "train-clean-360": (4, 8), "train-other-500": (4, 8), "dev-clean": (2, 2), "test-clean": (2, 2),
        "dev-other": (2, 2), "test-other": (2, 2)}


def lay_out(shared: Path, folder: Path, parts: dict[str, tuple[int, int]]) -> list[Utterance]:
    """`folder`/LibriSpeech with `parts`; returns all utterances.

    A reader has two chapters, where he reads more than four utterances; archives are unpacked, and marked as the recipes mark them.
    """
    everything, begun, said, readers = an4(shared), 0, [], []
    for part, (speakers, each) in parts.items():
        chosen = some(everything, speakers, each, begun)
        for i, speaker in enumerate(dict.fromkeys(utterance.speaker for utterance in chosen)):
            reader, own = 11 * (begun + i + 1), [utterance for utterance in chosen if utterance.speaker == speaker]
            readers.append(f"{reader:<5}| {own[0].gender.upper()} | {part:<17}| {len(own) / 12:.2f} | {speaker}")
            half = (len(own) + 1) // 2 if len(own) > 4 else len(own)
            for number, chapter in enumerate(own[first : first + half] for first in range(0, len(own), half)):
                name = f"{reader}-{reader + 100000 + number}"
                place = folder / "LibriSpeech" / part / name.replace("-", "/")
                for j, utterance in enumerate(chapter):
                    write(place / f"{name}-{j:04d}.flac", utterance.samples(), 16000, "FLAC")
                lines(place / f"{name}.trans.txt", (f"{name}-{j:04d} {utterance.text}" for j, utterance in enumerate(chapter)))
        (folder / "LibriSpeech" / part / ".complete").touch()
        begun += speakers
        said += chosen
    lines(folder / "LibriSpeech/SPEAKERS.TXT", [";ID  |SEX| SUBSET           |MINUTES| NAME", *readers])
    return said


def lay_out_models(shared: Path, folder: Path, said: list[Utterance], large: bool = False) -> None:
    """`folder`, where the recipes leave what they fetch from OpenSLR 11: lexicon, vocabulary and models; `large`: with the 4-gram."""
    wanted = words_of(said)
    lexicon = [(word, phones) for word, phones in with_stress(an4_lexicon(shared)) if word in wanted]
    lines(folder / "librispeech-lexicon.txt", (f"{word}\t{' '.join(phones)}" for word, phones in lexicon))
    lines(folder / "librispeech-vocab.txt", sorted(wanted))
    sentences = [utterance.words for utterance in said]
    for name, order in {"tgsmall": 2, "tgmed": 3, "tglarge": 3, **({"fglarge": 4} if large else {})}.items():
        arpa(folder / f"lm_{name}.arpa.gz", sentences, wanted, order)
