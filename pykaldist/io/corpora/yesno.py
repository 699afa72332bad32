"""yesno: one Hebrew speaker says yes and no, eight words a file, 8 kHz; a file's name says which words (1 is yes).

Kaldi's split: the first half of the sorted listing is for training. Its scripts also count the two README files of the public copy,
which come last, so that 31 of the 60 recordings are for training and 29 for testing; so it is here, with or without those files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.audio import find_audio
from pykaldist.io.corpora.dictionary import write_dict
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives
from pykaldist.io.datadir import write_datadir

TARBALL = Archive(("https://www.openslr.org/resources/1/waves_yesno.tar.gz",),
                  sha256="30301975fd8c5cac4040c261c0852f57cfa8adbbad2ce78e77e4986957445f27")  # as torchaudio checks it
SPEAKER = "global"
WORDS = {"0": "NO", "1": "YES"}
# Either word, and the end of the sentence, with probability 1/3.
LM = """\\data\\
ngram 1=4

\\1-grams:
-0.4771213\t</s>
-99\t<s>
-0.4771213\tNO
-0.4771213\tYES

\\end\\
"""


def find_recordings(corpus: str | None, fetch_dir: str | os.PathLike[str], tarball: Archive = TARBALL) -> dict[str, Path]:
    """Recording (such as 0_0_1_1_0_1_0_1) -> file, sorted: of `corpus`, else fetched before, else fetched now.

    Raises UserError where there are too few for two sets.
    """
    folder = Path(corpus or fetch_dir)
    if not corpus and not folder.is_dir():
        try:
            fetch_archives([tarball], folder)
        except Unreachable as error:
            raise UserError(f"yesno could not be fetched ({error}); download {TARBALL.urls[0]} elsewhere, unpack it, and give "
                            "its folder with --corpus.") from error
    found = {stem.rsplit("/", 1)[-1]: path for stem, path in find_audio(folder).items()}
    recordings = {stem: path for stem, path in sorted(found.items()) if re.fullmatch(r"[01](_[01])*", stem)}
    if len(recordings) < 4:
        raise UserError(f"{folder} has {len(recordings)} recordings named like 0_0_1_1_0_1_0_1.wav, 60 were expected; give --corpus the "
                        "folder that has waves_yesno, or that folder.")
    return recordings


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str]) -> Iterable[str]:
    """Write <data>/train, <data>/test, <data>/local/dict and <data>/local/lm.arpa; yields lines that say what came out."""
    recordings = find_recordings(corpus, fetch_dir)
    data = Path(data)
    names = list(recordings)
    half = (len(names) + 2) // 2
    for part, chosen in (("train", names[:half]), ("test", names[half:])):
        write_datadir(data / part, {name: str(recordings[name].resolve()) for name in chosen},
                      {name: " ".join(WORDS[word] for word in name.split("_")) for name in chosen}, dict.fromkeys(chosen, SPEAKER))
        yield f"{len(chosen)} utterances in {data / part}"
    write_dict(data / "local/dict", {"YES": [("Y",)], "NO": [("N",)]}, noise={"<SIL>": [("SIL",)]})
    write_text(data / "local/lm.arpa", LM)
    yield f"2 words in {data}/local/dict/lexicon.txt, their language model in {data}/local/lm.arpa"
