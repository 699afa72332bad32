"""AISHELL-1 (OpenSLR 33): data_aishell and resource_aishell; of AN4, whose digits and commands are written in Chinese."""

from __future__ import annotations

from pathlib import Path

from layouts.speech import an4, an4_lexicon, lines, some, words_of, write

CHINESE = {"ZERO": "零", "OH": "洞", "ONE": "一", "TWO": "二", "THREE": "三", "FOUR": "四", "FIVE": "五", "SIX": "六", "SEVEN": "七",
           "EIGHT": "八", "NINE": "九", "TEN": "十", "YES": "是的", "NO": "不", "GO": "走", "START": "开始", "STOP": "停止",
           "ENTER": "输入", "ERASE": "删除", "REPEAT": "重复", "HELP": "帮助", "RUBOUT": "抹去"}


def lay_out(shared: Path, folder: Path, speakers: int = 12, each: int = 8) -> None:
    """`folder`/data_aishell and `folder`/resource_aishell, unpacked, and marked as the recipe marks them.

    `speakers`: of the training data, with `each` utterances.
    """
    train = some(an4(shared), speakers, each)
    parts = {"train": train, "dev": some(an4(shared), 2, 3, speakers), "test": some(an4(shared, "test"), 3, 4)}
    transcript, said = [], set()
    for first, (part, utterances) in zip((2, 700, 900), parts.items(), strict=True):
        numbers = {speaker: first + i for i, speaker in enumerate(dict.fromkeys(utterance.speaker for utterance in utterances))}
        for i, utterance in enumerate(utterances):
            speaker = f"S{numbers[utterance.speaker]:04d}"
            name = f"BAC009{speaker}W{121 + i:04d}"
            write(folder / f"data_aishell/wav/{part}/{speaker}/{name}.wav", utterance.samples(), 16000, "WAV")
            transcript.append(f"{name} {' '.join(map(written, utterance.words))}")
        said |= words_of(utterances)
    lines(folder / "data_aishell/transcript/aishell_transcript_v0.8.txt", transcript)
    lexicon = [f"{written(word)} {' '.join(phones).lower()}" for word, phones in an4_lexicon(shared) if word in said]
    lines(folder / "resource_aishell/lexicon.txt", ["SIL sil", "<SPOKEN_NOISE> sil", *lexicon])
    lines(folder / "resource_aishell/speaker.info", ["0002 M"])
    for part in ("data_aishell", "resource_aishell"):
        (folder / part / ".complete").touch()


def written(word: str) -> str:
    return CHINESE.get(word, word)
