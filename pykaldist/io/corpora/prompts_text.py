"""The transcripts of Asterisk's voice prompts in five languages, made from the lists that come with the prompts.

A list has `name: what is said` on each line. A word is the language, a colon and the word in small letters without accents
(`es:numero`), for the lists write many words now with them and now without; what is plainly misspelled is mended. Numbers up to ten are
spelled out. A prompt whose words the list does not tell is left out, and the reason is given: no text, a tone or silence, a part in
brackets, a larger number in digits, or two lines that differ.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

NUMBERS = {  # 0 to 10
    "en": "zero one two three four five six seven eight nine ten",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve diez",
    "fr": "zero un deux trois quatre cinq six sept huit neuf dix",
    "it": "zero uno due tre quattro cinque sei sette otto nove dieci",
    "ru": "ноль один два три четыре пять шесть семь восемь девять десять",
}
LANGUAGES = tuple(NUMBERS)

TONES = {"ascending-2tone", "beep", "beeperr", "confbridge-join", "confbridge-leave", "descending-2tone", "tt-monkeys"}
_DAMAGE = {"it": [(r"\b(sar)\?", r"\1à"), (r"\b(pu)\?", r"\1ò"), (r"\b(cos)\?", r"\1ì"), (r"\b(pi)\?", r"\1ù"), (r"(?<=\s)\?(?=\s)", "è")],
           "ru": [(r"\b(что|Что) бы\b", r"\1бы"), ("по-этому", "поэтому")]}
_MISSPELLED = {  # word of a list -> what it says
    "en": "exclaimation:exclamation indentified:identified represenatives:representatives umute:unmute witheld:withheld",
    "es": "atravez:a_traves contrasenia:contrasena defeto:defecto demonstracion:demostracion entidade:entidades ingese:ingrese "
          "introdusca:introduzca mesaje:mensaje nimbre:nombre numbre:nombre paracambiar:para_cambiar",
    "fr": "acceuil:accueil appellant:appelant aurevoir:au_revoir connection:connexion conctact:contacte demontration:demonstration "
          "deverouiller:deverrouiller deverouillee:deverrouillee millardieme:milliardieme presentemnet:presentement "
          "pous:pour verouiller:verrouiller verouillee:verrouillee",
    "it": "",
    "ru": "октрября:октября",
}
_MENDED = {(language, wrong): right.split("_") for language, pairs in _MISSPELLED.items()
           for wrong, right in (pair.split(":") for pair in pairs.split())}
_CYRILLIC_LOOKALIKES = str.maketrans("aceopxy", "асеорху")
_BRACKETS = r"\[.*?\]|\(.*?\)|<.*?>"
_MIDDLE_DOT = r"(?<=\w)\.(?=\w)"


def fold(word: str) -> str:
    """A word in small letters, without accents; й is a letter of its own, ё is not."""
    plain = unicodedata.normalize("NFD", word.lower().replace("й", "\0"))
    return "".join(c for c in plain if not unicodedata.combining(c)).replace("\0", "й")


def spoken_words(language: str, text: str) -> list[str] | str:
    """The words of a prompt, or why they are not known."""
    for pattern, letters in _DAMAGE.get(language, []):
        text = re.sub(pattern, letters, text)
    outside = re.sub(_BRACKETS, " ", text)
    if not re.search(r"\w", outside):
        return "no speech" if re.search(r"\w", text) else "no text"
    if any(re.search(r"\w", part) for part in re.findall(_BRACKETS, text)):
        return "part of it in brackets"
    text = re.sub(r"\bwww\b", "w w w", outside)
    text = re.sub(r"\b([A-Za-z])\.(?=[A-Za-z]\b)", r"\1 ", text)  # P.M.
    if language == "en":
        text = re.sub(_MIDDLE_DOT, " dot ", text)
    text = re.sub(r"(?<=\d)(?=[^\W\d])", " ", text)  # 3D
    text = text.replace("’", "'")
    if language in ("fr", "it"):
        text = re.sub(r"'(?!\w)", " ", text)  # E' in uso
        text = re.sub(r"(?<=\w)'(?=\w)", "' ", text)  # l'utente: two words
    words = []
    for token in re.findall(r"\w+(?:'\w+)*'?", text.replace("_", " ")):
        token = token if language in ("fr", "it") else token.rstrip("'")
        if token.isdigit():
            if int(token) > 10:
                return "a number in digits"
            token = NUMBERS[language].split()[int(token)]
        token = fold(token)
        if re.search("[а-я]", token):
            token = token.translate(_CYRILLIC_LOOKALIKES)
        words += [f"{language}:{word}" for word in _MENDED.get((language, token), [token])]
    return words


def read_list(language: str, lines: Iterable[str]) -> dict[str, list[str] | str]:
    """Prompt -> its words, or why it is left out."""
    texts: dict[str, str] = {}
    differs = set()
    for line in lines:
        match = re.match(r"\ufeff?([^\s:;]+):(.*)", line)
        if match:
            name, text = match.groups()
            text = re.sub(rf"^\s*{re.escape(name)}:", "", text)
            differs |= {name} if texts.get(name, text) != text else set()
            texts[name] = text
    found: dict[str, list[str] | str] = {}
    for name, text in texts.items():
        run_on = next((m for m in re.finditer(r"[a-z]+(?:-[a-z0-9]+)+(?=:)", text) if m[0] in texts), None)  # the next line's prompt
        said = spoken_words(language, text[: run_on.start()] if run_on else text)
        found[name] = "a tone" if name in TONES else "two lines that differ" if name in differs else said
    return found
