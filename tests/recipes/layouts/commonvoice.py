"""A language of Common Voice: clips as mp3 at 32 kHz, and its tables; of AN4."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from layouts.speech import an4, lines, some, write

RATE = 32000
PARTS = {"train": (24, 10), "dev": (3, 3), "test": (3, 3)}
COLUMNS = ("client_id", "path", "sentence", "up_votes", "down_votes", "age", "gender", "accents", "variant", "locale", "segment")


def lay_out(shared: Path, folder: Path, parts: Mapping[str, tuple[int, int]] = PARTS, columns: tuple[str, ...] = COLUMNS) -> None:
    """`folder`/en of a release, with the sentences of AN4 as somebody would write them; `parts`: set -> speakers, sentences of each."""
    begun = number = 0
    for part, (speakers, each) in parts.items():
        table = ["\t".join(columns)]
        for utterance in some(an4(shared), speakers, each, begun):
            number += 1
            clip = f"common_voice_en_{number:08d}.mp3"
            write(folder / "en/clips" / clip, utterance.samples(RATE), RATE, "MP3", "MPEG_LAYER_III")
            row = {"client_id": utterance.speaker.ljust(16, "0") + 112 * "f", "path": clip, "sentence": f'{utterance.text.capitalize()}.',
                   "up_votes": "2", "down_votes": "0", "locale": "en"}
            table.append("\t".join(row.get(column, "") for column in columns))
        lines(folder / f"en/{part}.tsv", table)
        begun += speakers
