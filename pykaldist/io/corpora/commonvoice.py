"""Common Voice (Mozilla): sentences read by volunteers, in any of its languages; clips are mp3, sets are train.tsv, dev.tsv and test.tsv.

lhotse's recipe reads a release in which every column and clip is there. So it is shown a copy of the tables without rows that cannot be
used, and with the columns that older releases lack. What it lacks is here: words in any script, speakers' names that are short, 16 kHz.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora.by_lhotse import call_lhotse, in_threads, lay_links
from pykaldist.io.corpora.packages import listed, package
from pykaldist.io.corpora.table.prepare import Corpus
from pykaldist.io.corpora.table.recordings import Recording, Utterance
from pykaldist.io.corpora.table.rows import Row
from pykaldist.io.corpora.table.words import letters_apart, remarks, unspaced, words_of

TITLE = "Common Voice, commonvoice.mozilla.org"
SETS = ("train", "dev", "test")
NEEDED = ("client_id", "path", "sentence")
COLUMNS = (*NEEDED, "gender", "age", "accents", "variant")  # what lhotse's recipe reads
RATE = 16000
SPEAKER = 16  # letters of a speaker's name, of 128


def find_language(corpus: str, language: str) -> Path:
    """The folder of a language, with its tables and clips/: `corpus`, or below it. Raises UserError where it is not there."""
    folder = Path(corpus)
    tables = sorted(folder.rglob("train.tsv")) if folder.is_dir() else []
    there = sorted({path.parent.name for path in tables if (path.parent / "clips").is_dir()})
    if tables and language not in there:
        raise UserError(f"{folder} has no folder {language}/ with train.tsv and clips/; it has {', '.join(there) or 'none'}. Choose one of "
                        f"these with --language, or fetch {language} of {TITLE}.")
    found = package(folder, language, TITLE, "corpus", ["train.tsv", "dev.tsv", "test.tsv", "clips"])[1]
    return next(path.parent for path in tables if path.parent.name == language) if there else found[0].parent


def _usable(folder: Path, part: str, left_out: dict[str, list[str]], known: dict[str, str]) -> list[dict[str, str]]:
    """The rows of a table that can be used; the others come into `left_out`. `known`: clip -> table, of the tables before."""
    path = folder / f"{part}.tsv"
    with open(path, encoding="utf-8", newline="") as stream:
        table = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = [name for name in NEEDED if name not in (table.fieldnames or ())]
        if missing:
            raise UserError(f"{path}: expected columns {', '.join(NEEDED)}, found {', '.join(table.fieldnames or ()) or 'none'}; fetch the "
                            "release again.")
        rows = []
        for number, row in enumerate(table, 2):
            clip, where = folder / "clips" / (row["path"] or ""), f"{row['path']} ({path.name}, line {number})"
            if row["path"] in known:
                raise UserError(f"{path}, line {number}: the clip {row['path']} stands in {known[row['path']]} too; one has to go.")
            if not row["path"] or not clip.is_file():
                left_out["transcripts without audio"].append(where)
            elif not clip.stat().st_size:
                left_out["audio files that are empty"].append(where)
            elif not row["sentence"] or not row["client_id"]:
                left_out["rows without a sentence or a speaker"].append(where)
            else:
                known[row["path"]] = f"{path.name}, line {number}"
                rows.append({name: (row.get(name) or "").strip() for name in COLUMNS})
    return rows


def plan(corpus: str, language: str, graphemes: bool, work: Path) -> Corpus:
    """Read the tables of a language and the headers of its clips, by lhotse, whose manifests and what it is shown go to `work`.

    With `graphemes`, words of scripts without blanks are taken apart. Raises UserError for what is not there, damaged, or of one name.
    """
    folder = find_language(corpus, language)
    left_out: dict[str, list[str]] = {reason: [] for reason in (
        "transcripts without audio", "audio files that are empty", "rows without a sentence or a speaker", "transcripts without a word")}
    known: dict[str, str] = {}
    rows = {part: _usable(folder, part, left_out, known) for part in SETS}
    for part in SETS:
        if not rows[part]:
            raise UserError(f"{folder}/{part}.tsv has no row with a clip in {folder}/clips; unpack the release of {language} again.")
    shown = work / "links"
    lay_links(shown, {f"{language}/clips": folder / "clips"})
    for part in SETS:
        table = [COLUMNS, *(tuple(row.values()) for row in rows[part])]
        write_text(shown / language / f"{part}.tsv", "".join("\t".join(line) + "\n" for line in table))
    from lhotse.recipes import commonvoice as recipe  # takes a second

    with in_threads(recipe):
        manifests = call_lhotse(lambda: recipe.prepare_commonvoice(shown, work, languages=[language], splits=SETS,
                                                                   num_jobs=os.cpu_count() or 1),
                                folder, "fetch the clip again, or take its row out of the table")[language]
    code = language.split("-")[0]
    sentences = [row["sentence"] for part in SETS for row in rows[part]]
    said = [f"{folder}: {', '.join(f'{len(rows[part])} rows in {part}.tsv' for part in SETS)}", *remarks(sentences)]
    apart = graphemes and any(map(unspaced, {letter for sentence in sentences for letter in sentence}))
    if apart:
        said.append("the script has no blanks between words: each letter counts as a word, so that error rates are those of characters")
    sets: dict[str, list[Utterance]] = {}
    words: dict[str, list[str]] = {}
    speakers: dict[str, str] = {}
    name_of = _speakers({row["client_id"] for part in SETS for row in rows[part]})
    for part in SETS:
        recordings = {one.id: _recording(one) for one in manifests[part]["recordings"]}
        sets[part] = []
        for one in manifests[part]["supervisions"]:
            spoken = words_of(one.text, code)
            if not spoken:
                left_out["transcripts without a word"].append(f"{one.id} ({part}.tsv)")
                continue
            speaker = name_of[one.speaker]
            utterance = Utterance(Row(one.id, one.text, speaker, f"{part}.tsv"), recordings[one.id], f"{speaker}-{one.id}")
            sets[part].append(utterance)
            words[utterance.name], speakers[utterance.name] = letters_apart(spoken) if apart else spoken, speaker
    said += [f"left out, {reason}: {listed(names)}" for reason, names in left_out.items() if names]
    clips = sum(1 for entry in os.scandir(folder / "clips") if entry.is_file())
    if clips > len(known):
        said.append(f"clips that none of the three tables has: {clips - len(known)}")
    planned = Corpus(sets, words, speakers, RATE, left_out, said)
    for part in SETS:
        said.append(f"{part}: {len(sets[part])} utterances of {len({speakers[one.name] for one in sets[part]})} speakers, "
                    f"{planned.hours(part):.2f} h, {sum(planned.words_of(part).values())} words")
    return planned


def _speakers(clients: set[str]) -> dict[str, str]:
    """The speakers' names: the beginnings of those in the tables, which are long, where no two begin alike."""
    short = Counter(client[:SPEAKER] for client in clients)
    return {client: client[:SPEAKER] if short[client[:SPEAKER]] == 1 else client for client in clients}


def _recording(found: Any) -> Recording:
    return Recording(Path(found.sources[0].source), found.id, found.sampling_rate, found.num_channels, found.duration)
