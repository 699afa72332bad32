"""Prompts: their text as it is spoken, the split, and what is lost and why."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.corpora import prompts
from pykaldist.io.corpora.dictionary import read_lexicon
from pykaldist.io.corpora.fetch import Archive
from pykaldist.io.corpora.prompts_text import LANGUAGES, NUMBERS, read_list, spoken_words
from pykaldist.io.datadir import DataDir


@pytest.mark.parametrize(("language", "prompt", "words"), [
    ("en", "For accounting, press 3.", "for accounting press three"),
    ("en", "... letters of your party's first name.", "letters of your party's first name"),
    ("en", "P.M.", "p m"),
    ("en", "visit www.asterisk.org.", "visit w w w dot asterisk dot org"),
    ("en", "3D audio", "three d audio"),
    ("en", "De-activated: \"don't call\"", "de activated don't call"),
    ("en", "at [@]", "at"),
    ("es", "Marque 2 paracambiar el número.", "marque dos para cambiar el numero"),
    ("fr", "Appuyez sur 5.Pour l’aide, aujourd'hui", "appuyez sur cinq pour l' aide aujourd' hui"),
    ("fr", "numéro d'agent dix-sept", "numero d' agent dix sept"),
    ("it", "La conferenza ? piena, cos? pu? essere. Quale cartella?", "la conferenza e piena cosi puo essere quale cartella"),
    ("it", "E' in uso: l'utente.", "e in uso l' utente"),
    ("ru", "Что бы его прослушать, нажмите решётку и 1", "чтобы его прослушать нажмите решетку и один"),
    ("ru", "первoe, Май", "первое май"),  # with Latin o and e
])
def test_spoken_words(language: str, prompt: str, words: str) -> None:
    assert spoken_words(language, prompt) == [f"{language}:{word}" for word in words.split()]


@pytest.mark.parametrize(("language", "prompt", "reason"), [
    ("en", "[descending tones]", "no speech"), ("ru", "<beep ascending>", "no speech"), ("it", "(10 secondi di silenzio)", "no speech"),
    ("ru", "  ", "no text"), ("it", "Il [suo] messaggio", "part of it in brackets"), ("en", "dial 500", "a number in digits"),
    ("fr", "H 3 23", "a number in digits"),
])
def test_what_is_not_told(language: str, prompt: str, reason: str) -> None:
    assert spoken_words(language, prompt) == reason


def test_numbers_up_to_ten_in_every_language() -> None:
    assert all(len(numbers.split()) == 11 for numbers in NUMBERS.values())


def test_lists_with_faults() -> None:
    found = read_list("it", """\ufeff; Core sounds
one: one: uno
two: due vm-three: tre
vm-three: tre
beep: un suono
twice: uno
twice: due
again: sei
again: sei
no line
""".splitlines())
    assert found == {"one": ["it:uno"], "two": ["it:due"], "vm-three": ["it:tre"], "beep": "a tone", "twice": "two lines that differ",
                     "again": ["it:sei"]}


def listing(language: str) -> str:
    number = NUMBERS[language].split()
    lines = [f"digits/{i}: {number[i]}" for i in range(11)] + [f"say-{a}-{b}: {a} {b}" for a in range(3) for b in range(10)]
    return "; Core sounds\n\n" + "\n".join([*lines, "beep: [a tone]", "odd: zyzzygy", "silent: 1", "same: 0 1"]) + "\n"


def make_corpus(folder: Path, languages: tuple[str, ...] = LANGUAGES) -> Path:
    for language in languages:
        home = folder / f"{language}_XX_f_Name"
        for line in listing(language).splitlines():
            name = line.split(":")[0]
            if line and not line.startswith(";") and name != "silent":
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(home / f"{name}.wav", np.ones(80, dtype=np.int16), 8000)
        (folder / f"core-sounds-{language}.txt").write_text(listing(language), encoding="utf-8")
    return folder


@pytest.fixture
def lexicon(root: Path) -> str:
    return str(root / "egs/prompts/s5/local/lexicon.txt")


def test_prepare(tmp_path: Path, lexicon: str) -> None:
    said = list(prompts.prepare(str(make_corpus(tmp_path / "c")), tmp_path / "data", tmp_path / "fetch", lexicon))
    sets = {part: DataDir(tmp_path / "data" / part) for part in ("train", "dev", "test")}
    for data in sets.values():
        data.validate()
        assert list(data.spk2utt) == sorted(prompts.SPEAKERS.values())
    texts = {part: {" ".join(words) for words in data.text.values()} for part, data in sets.items()}
    assert not texts["train"] & texts["test"] and not texts["train"] & texts["dev"] and not texts["dev"] & texts["test"]
    assert {part: len(data.text) // len(LANGUAGES) for part, data in sets.items()} == {"train": 30, "dev": 4, "test": 8}
    assert next(data.text["fr-june-say-1-2"] for data in sets.values() if "fr-june-say-1-2" in data.text) == ["fr:un", "fr:deux"]
    together = [part for part, data in sets.items() for utt in ("en-allison-same", "en-allison-say-0-1") if utt in data.text]
    assert len(together) == 2 and len(set(together)) == 1
    assert read_lexicon(tmp_path / "data/local/dict/lexicon.txt")["es:ocho"] == [("es_o", "es_tʃ", "es_o")]
    assert "left out of 225: 5 a tone, 5 no audio, 5 unknown" in said
    assert "left out: ru odd, for ru:zyzzygy; add it to the lexicon" in said
    with pytest.raises(UserError, match="no prompts of language 'de'; expected some of en es fr it ru"):
        list(prompts.prepare(None, tmp_path / "data", tmp_path / "fetch", lexicon, ["de"]))


def test_some_languages_only(tmp_path: Path, lexicon: str) -> None:
    corpus = str(make_corpus(tmp_path / "c", ("fr",)))
    list(prompts.prepare(corpus, tmp_path / "data", tmp_path / "fetch", lexicon, ["fr"]))
    assert list(DataDir(tmp_path / "data/test").spk2utt) == ["fr-june"]
    with pytest.raises(UserError, match=r"c has no core-sounds-en\.txt"):
        list(prompts.prepare(corpus, tmp_path / "data", tmp_path / "fetch", lexicon))


def test_the_lexicon_has_one_set_of_phones(lexicon: str) -> None:
    words = read_lexicon(lexicon)
    languages: dict[str, set[str]] = {}
    for word, variants in words.items():
        assert len(set(variants)) == len(variants), word
        for variant in variants:
            for phone in variant:
                languages.setdefault(phone, set()).add(word.split(":")[0])
    assert {word.split(":")[0] for word in words} == set(LANGUAGES)
    assert all(languages[phone] == set(LANGUAGES) for phone in "bdfgijklmnpstu")
    assert len(languages) < 80
    for language in LANGUAGES:
        assert all(f"{language}:{number}" in words for number in NUMBERS[language].split())


def test_installed_layout_keeps_its_lists_elsewhere(tmp_path: Path) -> None:
    share = tmp_path / "usr/share"
    make_corpus(share / "asterisk/sounds")
    for language in LANGUAGES:
        doc = share / f"doc/asterisk-core-sounds-{language}"
        doc.mkdir(parents=True)
        file = share / f"asterisk/sounds/core-sounds-{language}.txt"
        with gzip.open(doc / f"{file.name}.gz", "wb") as stream:
            stream.write(file.read_bytes())
        file.unlink()
    for place in (share / "asterisk/sounds", tmp_path):
        found = prompts.locate(place, "fr")
        assert not isinstance(found, str) and found.listing.suffix == ".gz"
        assert found.audio["digits/0"] == share / "asterisk/sounds/fr_XX_f_Name/digits/0.wav"


def test_the_order_in_which_it_is_looked_for(tmp_path: Path) -> None:
    installed, fetched, languages = tmp_path / "installed", tmp_path / "fetched", ("en", "it")
    tarred = make_corpus(tmp_path / "c", languages)
    offered = []
    for language in languages:  # as Asterisk packs them, prompts at the top
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            tar.add(tarred / f"{language}_XX_f_Name", "")
            tar.add(tarred / f"core-sounds-{language}.txt", f"core-sounds-{language}.txt")
        (tmp_path / f"{language}.tar.gz").write_bytes(stream.getvalue())
        offered.append(Archive(((tmp_path / f"{language}.tar.gz").as_uri(),), sha256=hashlib.sha256(stream.getvalue()).hexdigest(),
                               into=language))
    nowhere = [Archive(("file:///nowhere.deb",))]
    found = prompts.find_corpus(None, fetched, languages, str(installed), [nowhere, offered])
    assert found["it"].audio["digits/0"] == fetched / "it/digits/0.wav"
    again = prompts.find_corpus(None, fetched, languages, str(installed), [nowhere])  # what was fetched serves again
    assert again["en"].listing == fetched / "en/core-sounds-en.txt"
    make_corpus(installed, languages)
    assert prompts.find_corpus(None, fetched, languages, str(installed), [])["en"].listing.parent == installed
    assert prompts.find_corpus(str(tarred), fetched, languages, str(installed), [])["en"].listing.parent == tarred
    with pytest.raises(UserError, match=r"could not be fetched \(file:///nowhere.deb cannot be reached"):
        prompts.find_corpus(None, tmp_path / "other", languages, str(tmp_path / "none"), [nowhere])


def test_what_is_fetched_is_pinned() -> None:
    debs, tarballs = prompts.sources(LANGUAGES)
    assert len(debs) == 10 and len(tarballs) == 5
    assert all(archive.size and len(archive.sha256 or "") == 64 for archive in (*debs, *tarballs))


def test_bad_corpora_end_in_a_sentence(tmp_path: Path, lexicon: str) -> None:
    def fails(message: str) -> None:
        with pytest.raises(UserError, match=message):
            list(prompts.prepare(str(tmp_path / "c"), tmp_path / "data", tmp_path / "fetch", lexicon, ["en"]))
        assert not (tmp_path / "data").exists()

    fails("c is no directory; give --corpus")
    (tmp_path / "c").mkdir()
    fails("has no core-sounds-en.txt")
    (tmp_path / "c/core-sounds-en.txt").write_text("hello: hello\n")
    fails("has no prompt of language 'en' as wav, flac or sph")
    make_corpus(tmp_path / "c", ("en",))
    for text in ("; nothing\n", "other: hello\n"):
        (tmp_path / "c/core-sounds-en.txt").write_text(text)
        fails("no prompt in common")
    (tmp_path / "c/core-sounds-en.txt").write_bytes(b"\xff\xfe")
    fails("no readable list of prompts")
