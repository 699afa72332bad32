"""Switchboard-1 release 2 (LDC97S62) with Mississippi State's transcripts, Fisher's, and the tests of 2000 and 2003; of AN4 and FSDD.

Recordings are sphere files, mu-law, a channel for each side of a conversation. The recipe takes its first 10,000 sentences from the
language model's text and the first 4,000 from training, so there are so many that are short: digits, the same recordings again and again,
each several times as segments that overlap. It leaves most of them out as duplicates. Behind them stand the sides that it learns from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile

from layouts.speech import Utterance, an4, an4_lexicon, lines, pause, some, write

RATE = 8000
SHORT_CONVERSATIONS, DIGITS, VARIANTS = 5, 200, 5  # of so many recordings on each side so many segments
PAIR = RATE * 85 // 100  # samples of two digits
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
EVAL_FILES = 40  # the recipe counts their 80 sides
RULES = [";; no rules", "[FAKE]     =>  %HESITATION     / [ ] __ [ ] ;; hesitation token"]
LABELS = [f';; {kind} "{name}" "{name}" "{name}"' for kind, names in (
    ("CATEGORY", "0"), ("LABEL", "O"), ("CATEGORY", "1"), ("LABEL", "en sw"), ("CATEGORY", "2"), ("LABEL", "F"), ("CATEGORY", "3"),
    ("LABEL", "en-F sw-F")) for name in names.split()]  # each that an utterance has: NIST's scoring ends in the midst of its reports else
Side = list[tuple[np.ndarray, str]]  # utterances with their words


def lay_out(shared: Path, recipe: Path, folder: Path, in_pairs: bool = False) -> None:
    """`folder`/LDC*, for the recipe in `recipe`, whose patch of the dictionary has to fit.

    `in_pairs`: in the last conversation of digits each segment has two, and all differ. They are 26 minutes for an extractor of i-vectors,
    and too short for the chunks of chain models.
    """
    release, tested = folder / "LDC97S62", an4(shared, "test")
    train = some(an4(shared), 20, 6)
    transcripts = release / "transcriptions/swb_ms98_transcriptions"
    sides = [digits(shared)] * (2 * SHORT_CONVERSATIONS)
    if in_pairs:
        sides[-2:] = pairs(shared)
    for i in range(SHORT_CONVERSATIONS):
        conversation(release, transcripts, 2001 + i, sides[2 * i : 2 * i + 2], VARIANTS)
    speakers = list(dict.fromkeys(utterance.speaker for utterance in train))
    sides = [spoken([utterance for utterance in train if utterance.speaker == speaker]) for speaker in speakers]
    for i in range(0, len(sides), 2):
        conversation(release, transcripts, 4001 + i, sides[i : i + 2], 1)
    dictionary = [(word, phones) for word, phones in an4_lexicon(shared) if len(word) > 1]
    lines(transcripts / "sw-ms98-dict.text", fitting(recipe / "local/dict.patch", [
        "i ay", *(f"{word} {' '.join(phones)}".lower() for word, phones in dictionary)]))
    for part, some_of in (("LDC2004T19/fe_03_p1_tran", train[::2]), ("LDC2005T19/fe_03_p2_tran", train[1::2])):
        lines(folder / part / "data/trans/000/fe_03_00001.txt",
              ["# fe_03_00001.sph", "", *(f"{i}.50 {i + 1}.20 A: {fisher(utterance)}" for i, utterance in enumerate(some_of))])
    evaluation(folder, tested)
    rich_transcription(folder / "LDC2007S10", tested[80:84])


def digits(shared: Path) -> Side:
    """The shortest recordings of a digit."""
    files = (shared / "data/fsdd/recordings").glob("2_*")
    files = sorted(sorted(files, key=lambda path: (soundfile.info(path).frames, path.name))[:DIGITS], key=lambda path: path.name)
    return [(soundfile.read(path, dtype="int16")[0], "two") for path in files]


def pairs(shared: Path) -> list[Side]:
    """Two sides of pairs of digits of a speaker, the longest that are shorter at 0.9 of the speed than a chunk; no recording twice."""
    speakers: dict[str, list[tuple[int, Path]]] = {}
    for path in (shared / "data/fsdd/recordings").glob("*.flac"):
        speakers.setdefault(path.name.split("_")[1], []).append((soundfile.info(path).frames, path))
    by_length = [sorted(recordings) for recordings in speakers.values()]
    found = sorted((before + after, first, second) for recordings in by_length
                   for (before, first), (after, second) in zip(recordings[::2], recordings[1::2], strict=True) if before + after < PAIR)
    made = [(np.concatenate([soundfile.read(path, dtype="int16")[0] for path in paths]),
             " ".join(WORDS[int(path.name[0])] for path in paths)) for _, *paths in found[-2 * DIGITS :]]
    return [made[::2], made[1::2]]


def spoken(utterances: Sequence[Utterance]) -> Side:
    """Utterances at telephone rate, words as in Switchboard: lower case, but for single letters."""
    return [(utterance.samples(RATE), " ".join(word if len(word) == 1 else word.lower() for word in utterance.words))
            for utterance in utterances]


def fisher(utterance: Utterance) -> str:
    """Words as in Fisher's transcripts, where letters have a dot."""
    return " ".join(f"{word.lower()}." if len(word) == 1 else word.lower() for word in utterance.words)


def channel(side: Side) -> tuple[np.ndarray, list[tuple[float, float, str]]]:
    """The samples of one side, with pauses, and where in it what is said: begin and end in seconds, words. Times are whole frames."""
    between, sound, said, begin, rng = RATE // 5, [], [], 0, np.random.default_rng(len(side))
    for samples, words in side:
        begin += between
        sound += [pause(between, rng, samples), np.concatenate([samples, pause(-len(samples) % (RATE // 100), rng, samples)])]
        said.append((begin / RATE, (begin + len(sound[-1])) / RATE, words))
        begin += len(sound[-1])
    return np.concatenate([*sound, pause(between, rng, sound[0])]), said


def stereo(path: Path, sides: Sequence[np.ndarray]) -> None:
    """The sides as the channels of a file."""
    longest, rng = max(map(len, sides)), np.random.default_rng(len(sides))
    write(path, np.stack([np.concatenate([side, pause(longest - len(side), rng, side)]) for side in sides], 1), RATE, "NIST", "ULAW")


def conversation(release: Path, transcripts: Path, number: int, sides: Sequence[Side], variants: int) -> None:
    """sw0<number>.sph, and the transcript of each side, in which silence is marked; `variants`: segments of an utterance, that overlap."""
    made = [channel(side) for side in sides]
    stereo(release / f"swb1_d{number // 1000}/data/sw0{number}.sph", [samples for samples, _ in made])
    for letter, (_, said) in zip("AB", made, strict=True):
        segments = [(begin + 0.01 * i, end, words) for begin, end, words in said for i in range(variants)]
        table = [f"sw{number}{letter}-ms98-a-0001 0.000000 {said[0][0]:.6f} [silence]"]
        table += [f"sw{number}{letter}-ms98-a-{i:04d} {begin:.6f} {end:.6f} {words}" for i, (begin, end, words) in enumerate(segments, 2)]
        lines(transcripts / f"{number // 100}/{number}/sw{number}{letter}-ms98-a-trans.text", table)


def fitting(patch: Path, entries: Sequence[str]) -> list[str]:
    """A dictionary to which `patch`, a plain diff, applies: what it takes out stands where it says, `entries` stand between."""
    taken: dict[int, str] = {}
    last = line = 0
    for text in patch.read_text().splitlines():
        if found := re.match(r"(\d+)(?:,\d+)?[acd]\d+(?:,\d+)?$", text):
            line = int(found[1])
            last = max(last, line)
        elif text.startswith("< "):
            taken[line] = text[2:]
            line += 1
    free = iter(entries)
    return [taken[i] if i in taken else next(free, "#") for i in range(1, last + 100)]


def evaluation(folder: Path, tested: Sequence[Utterance], files: int = EVAL_FILES) -> None:
    """The test of 2000: LDC2002S09/hub5e_00 and LDC2002T43; `files` recordings with an utterance on each side."""
    audio, reference = folder / "LDC2002S09/hub5e_00/english", folder / "LDC2002T43/reference"
    pem, stm = [";; segments"], list(LABELS)
    for i in range(files):
        name = f"{'sw' if i < files // 2 else 'en'}_{4300 + i}"
        made = [channel(spoken([utterance])) for utterance in tested[2 * i : 2 * i + 2]]
        stereo(audio / f"{name}.sph", [samples for samples, _ in made])
        for letter, (_, [(begin, end, words)]) in zip("AB", made, strict=True):
            pem.append(f"{name} {letter} unknown_speaker {begin:.2f} {end:.2f}")
            stm.append(f"{name} {letter} {name}_{letter} {begin:.2f} {end:.2f} <O,{name[:2]},F,{name[:2]}-F>  {words.upper()}")
    lines(audio / "hub5e_00.pem", pem)
    lines(reference / "hub5e00.english.000405.stm", stm)
    lines(reference / "en20000405_hub5.glm", RULES)


def rich_transcription(folder: Path, tested: Sequence[Utterance]) -> None:
    """The test of 2003; two recordings, an utterance on each side; with the names of its labels, which NIST's scoring wants."""
    for i, name in enumerate(("fsh_60262", "sw_45097")):
        made = [channel(spoken([utterance])) for utterance in tested[2 * i : 2 * i + 2]]
        stereo(folder / f"data/audio/eval03/english/cts/{name}.sph", [samples for samples, _ in made])
        stm = [f';; {kind} "{one}" "{one}" "{one}"' for i, label in enumerate(("O", "F0", "male"))
               for kind, one in (("CATEGORY", i), ("LABEL", label))]
        for number, (_, [(begin, end, words)]) in enumerate(made, 1):
            stm += [f"{name} {number} inter_segment_gap 0.00 {begin:.2f} <o,,unknown>",
                    f"{name} {number} {name}_{number} {begin:.2f} {end:.2f} <o,f0,male> {words.upper()}"]
        lines(folder / f"data/references/eval03/english/cts/{name}.stm", stm)
    lines(folder / "data/trans_rules/en20030506.glm", RULES)


def small(shared: Path, folder: Path, speakers: int = 24, each: int = 6, files: int = 8) -> None:
    """`folder`/LDC* for our recipes: speakers of AN4 for training, `files` and 2 recordings for tests; words as transcribers wrote them."""
    release, tested = folder / "LDC97S62", an4(shared, "test")
    train = some(an4(shared), speakers, each)
    names = list(dict.fromkeys(utterance.speaker for utterance in train))
    sides = [odd(spoken([utterance for utterance in train if utterance.speaker == name])) for name in names]
    for i in range(0, len(sides), 2):
        conversation(release, release / "transcriptions/swb_ms98_transcriptions", 2001 + 100 * i, sides[i : i + 2], 1)
    stereo(release / "swb1_d4/data/sw04999.sph", [noise(1.0, 0), noise(1.0, 1)])  # nobody has transcribed it
    dictionary(release, [f"{word} {' '.join(phones)}".lower() for word, phones in an4_lexicon(shared) if len(word) > 1])
    evaluation(folder, tested[: 2 * files], files)
    rich_transcription(folder / "LDC2007S10", tested[80:84])


def odd(side: Side) -> Side:
    """The same words with marks that the lexicon has not: said laughing, aside, or numbered."""
    marks = ("[laughter-{}]", "<b_aside> {} <e_aside>", "{}_1")
    return [(samples, " ".join(marks[i % 3].format(word) if j == 0 and len(word) > 1 else word for j, word in enumerate(words.split())))
            for i, (samples, words) in enumerate(side)]


def rows(release: Path, number: int, letter: str, table: Iterable[tuple[float, float, str]]) -> None:
    """The transcript of one side, as it stands: begin and end in seconds, words."""
    lines(release / f"transcriptions/swb_ms98_transcriptions/{number // 100}/{number}/sw{number}{letter}-ms98-a-trans.text",
          [f"sw{number}{letter}-ms98-a-{i:04d} {begin:.6f} {end:.6f} {words}" for i, (begin, end, words) in enumerate(table, 1)])


def dictionary(release: Path, entries: Iterable[str]) -> None:
    """sw-ms98-dict.text with its head, comments and silence."""
    lines(release / "transcriptions/swb_ms98_transcriptions/sw-ms98-dict.text",
          [" file: $SWB/data/dictionary/sw-ms98-dict.text", "# comment", "", "[silence] sil", *entries])


def noise(seconds: float, seed: int) -> np.ndarray:
    """So much of noise, which stands for speech where nobody listens."""
    return np.random.default_rng(seed).integers(-3000, 3000, round(seconds * RATE)).astype(np.int16)
