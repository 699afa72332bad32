"""LibriSpeech (OpenSLR 12) and Mini LibriSpeech (OpenSLR 31), with the language models of OpenSLR 11; of speechocean762."""

from __future__ import annotations

from pathlib import Path

from layouts.speech import Utterance, arpa, lines, some, speechocean762, speechocean762_lexicon, words_of, write

# The parts of each corpus: how many speakers, and utterances of each.
MINI = {"train-clean-5": (10, 10), "dev-clean-2": (3, 3)}
FULL = {"train-clean-100": (8, 8), "train-clean-360": (4, 8), "train-other-500": (4, 8), "dev-clean": (2, 2), "test-clean": (2, 2),
        "dev-other": (2, 2), "test-other": (2, 2)}


def lay_out(shared: Path, folder: Path, parts: dict[str, tuple[int, int]]) -> list[Utterance]:
    """`folder`/LibriSpeech with `parts`; returns all utterances.

    A reader has two chapters, where he reads more than four utterances; archives are unpacked, and marked as the recipes mark them.
    """
    everything, begun, said, readers = speechocean762(shared), 0, [], []
    for part, (speakers, each) in parts.items():
        chosen = some(everything, speakers, each, begun)
        for speaker in dict.fromkeys(utterance.speaker for utterance in chosen):
            reader, own = int(speaker), [utterance for utterance in chosen if utterance.speaker == speaker]
            readers.append(f"{reader:<5}| {own[0].gender.upper()} | {part:<17}| {len(own) / 12:.2f} | {speaker}")
            half = (len(own) + 1) // 2 if len(own) > 4 else len(own)
            for number, chapter in enumerate(own[i : i + half] for i in range(0, len(own), half)):
                name = f"{reader}-{reader + 100000 + number}"
                place = folder / "LibriSpeech" / part / name.replace("-", "/")
                for i, utterance in enumerate(chapter):
                    write(place / f"{name}-{i:04d}.flac", utterance.samples(), 16000, "FLAC")
                lines(place / f"{name}.trans.txt", (f"{name}-{i:04d} {utterance.text}" for i, utterance in enumerate(chapter)))
        (folder / "LibriSpeech" / part / ".complete").touch()
        begun += speakers
        said += chosen
    lines(folder / "LibriSpeech/SPEAKERS.TXT", [";ID  |SEX| SUBSET           |MINUTES| NAME", *readers])
    return said


def lay_out_models(shared: Path, folder: Path, said: list[Utterance], large: bool = False) -> None:
    """`folder`, where the recipes leave what they fetch from OpenSLR 11: lexicon, vocabulary and models; `large`: with the 4-gram."""
    wanted = words_of(said)
    lexicon = [(word, phones) for word, phones in speechocean762_lexicon(shared) if word in wanted]
    lines(folder / "librispeech-lexicon.txt", (f"{word}\t{' '.join(phones)}" for word, phones in lexicon))
    lines(folder / "librispeech-vocab.txt", sorted(wanted))
    sentences = [utterance.words for utterance in said]
    for name, order in {"tgsmall": 2, "tgmed": 3, "tglarge": 3, **({"fglarge": 4} if large else {})}.items():
        arpa(folder / f"lm_{name}.arpa.gz", sentences, wanted, order)
