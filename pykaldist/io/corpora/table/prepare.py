"""From a folder of audio and a table of transcripts to data directories: matching, speakers, words, the split."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.audio import AudioError
from pykaldist.io.corpora.table.formats import read_transcripts
from pykaldist.io.corpora.table.recordings import Folder, Recording, Utterance, convert, fits, match, rate_of, safe
from pykaldist.io.corpora.table.rows import chosen_columns
from pykaldist.io.corpora.table.speakers import FROM, SETS, chosen_shares, of_folders, split
from pykaldist.io.corpora.table.words import letters_apart, remarks, unspaced, words_of
from pykaldist.io.datadir import write_datadir
from pykaldist.options import option

GRAPHEMES = "graphemes"
LISTED = 3  # names in a sentence; all of them are in the file left_out.txt


@dataclass
class TableOptions:
    """A corpus of one's own."""

    columns: str = option("", "names of columns that are not known by themselves, such as 'audio=path text=sentence speaker=who'")
    speakers: str = option("auto", "where speakers are told: a column, else folders, else each recording has its own", choices=FROM)
    shares: str = option("80 10 10", "parts of the speech for training, development and testing")
    language: str = option("", "code of the language, for those whose small letters are others than elsewhere (tr, az)")
    split_seed: int = option(0, "of the order in which speakers come into the sets")


@dataclass
class Corpus:
    """What is prepared: each set's utterances, their words, their speakers, and the sampling rate in Hz; `said` has sentences about it."""

    sets: dict[str, list[Utterance]]
    words: dict[str, list[str]]
    speakers: dict[str, str]
    rate: int
    left_out: dict[str, list[str]]
    said: list[str]

    def hours(self, part: str) -> float:
        """The length of a set's utterances."""
        return sum(utterance.seconds for utterance in self.sets[part]) / 3600

    def words_of(self, part: str) -> Counter[str]:
        """The words of a set, with their counts."""
        return Counter(word for utterance in self.sets[part] for word in self.words[utterance.name])


def plan(audio: str, transcripts: str, graphemes: bool, options: TableOptions) -> Corpus:
    """Read a table and the headers of its audio, and divide the utterances; nothing is written.

    With `graphemes`, words of scripts without blanks are taken apart. Raises UserError for what cannot be a corpus.
    """
    shares, columns = chosen_shares(options.shares), chosen_columns(options.columns)
    folder = Folder(audio)
    if not Path(transcripts).exists():
        raise UserError(f"--transcripts {transcripts} does not exist; give the table with what is said in the audio.")
    table = read_transcripts(transcripts, columns)
    found = match(folder, Path(transcripts), table.rows)
    said = [f"{transcripts}: {table.kind}, {len(table.rows)} rows; {len(folder.files)} audio files below {audio}"]
    said += remarks(utterance.row.text for utterance in found.utterances)
    spoken: dict[int, list[str]] = {}
    for utterance in found.utterances:
        spoken[id(utterance)] = words_of(utterance.row.text, options.language)
        if not spoken[id(utterance)]:
            found.left_out.setdefault("transcripts without a word", []).append(f"{utterance.row.audio} ({utterance.row.where})")
    kept = [utterance for utterance in found.utterances if spoken[id(utterance)]]
    said += [f"left out, {reason}: {len(names)}, such as {'; '.join(name.rstrip('.') for name in names[:LISTED])}"
             for reason, names in found.left_out.items()]
    if len(kept) < len(SETS):
        raise UserError(f"{transcripts} and {audio} have {len(kept)} utterances with audio and words, too few for three sets; "
                        + "; ".join(said[1:]) + ".")
    if graphemes and any(unspaced(character) for words in spoken.values() for word in words for character in word):
        spoken = {key: letters_apart(words) for key, words in spoken.items()}
        said.append("the script has no blanks between words: each letter counts as a word, so that error rates are those of characters")
    speakers, how = _speakers(folder, kept, table.has_speakers, options.speakers)
    said.append(how)
    for utterance in kept:
        speaker = speakers[id(utterance)]
        if speaker != utterance.recording.name and not utterance.name.startswith(f"{speaker}-"):
            utterance.name = f"{speaker}-{utterance.name}"
    names = Counter(utterance.name for utterance in kept)
    if (double := names.most_common(1)[0])[1] > 1:
        raise UserError(f"{double[1]} utterances would have the name {double[0]}; rename audio files, so that each has a name of its own.")
    sets = _divide(kept, speakers, shares, np.random.default_rng(options.split_seed), said)
    corpus = Corpus(sets, {utterance.name: spoken[id(utterance)] for utterance in kept},
                    {utterance.name: speakers[id(utterance)] for utterance in kept}, rate_of([one.recording for one in kept]),
                    found.left_out, said)
    said += _counts(corpus)
    return corpus


def _speakers(folder: Folder, utterances: Sequence[Utterance], has_column: bool, wanted: str) -> tuple[dict[int, str], str]:
    """The speaker of each utterance, by its id(), and a sentence that says from where."""
    if wanted == "column" and not has_column:
        raise UserError("--speakers column: the table has no column of speakers; name it with --columns speaker=NAME.")
    own = [utterance.recording.name for utterance in utterances]
    if wanted == "column" or (wanted == "auto" and has_column):
        names = [utterance.row.speaker or one for utterance, one in zip(utterances, own, strict=True)]
        without = sum(not utterance.row.speaker for utterance in utterances)
        how = "speakers are those of the table" + (f"; each recording of {without} rows without one has its own" if without else "")
    else:
        paths = {path: key for key, path in folder.files.items()}
        by_folder = of_folders([paths[utterance.recording.path] for utterance in utterances]) if wanted != "recording" else None
        if wanted == "folder" and by_folder is None:
            raise UserError(f"--speakers folder: the audio below {folder.path} does not lie in a folder for each speaker; give --speakers "
                            "recording, or a table with a column of speakers.")
        names = by_folder or own
        how = "each recording counts as a speaker of its own, for neither the table nor folders tell the speakers"
        if by_folder:
            how = f"speakers are the folders, such as {', '.join(sorted(set(by_folder))[:LISTED])} (else give --speakers recording)"
        elif wanted == "recording":
            how = "each recording counts as a speaker of its own, as --speakers says"
    return {id(utterance): safe(name) for utterance, name in zip(utterances, names, strict=True)}, how


def _divide(utterances: Sequence[Utterance], speakers: dict[int, str], shares: tuple[float, float, float], rng: np.random.Generator,
            said: list[str]) -> dict[str, list[Utterance]]:
    """The utterances of each set: by speakers, or where there are fewer than three, by recordings, or by themselves."""
    ways = {"speakers": [speakers[id(one)] for one in utterances], "recordings": [one.recording.name for one in utterances],
            "utterances": [one.name for one in utterances]}
    what = next(what for what, names in ways.items() if len(set(names)) >= len(SETS))
    if what != "speakers":
        said.append(f"there are fewer than three speakers: the sets are divided by {what}, and share speakers")
    seconds: dict[str, float] = {}
    for name, utterance in zip(ways[what], utterances, strict=True):
        seconds[name] = seconds.get(name, 0.0) + utterance.seconds
    parts = split(seconds, shares, rng)
    return {part: [one for one, name in zip(utterances, ways[what], strict=True) if parts[name] == part] for part in SETS}


def _counts(corpus: Corpus) -> Iterator[str]:
    """Sentences about the sets."""
    for part, utterances in corpus.sets.items():
        speakers = len({corpus.speakers[utterance.name] for utterance in utterances})
        yield (f"{part}: {len(utterances)} utterances of {speakers} speaker{'s' * (speakers > 1)}, {60 * corpus.hours(part):.1f} min, "
               f"{sum(corpus.words_of(part).values())} words")
    trained = {tuple(corpus.words[utterance.name]) for utterance in corpus.sets["train"]}
    seen = sum(tuple(corpus.words[utterance.name]) in trained for utterance in corpus.sets["test"])
    if seen:
        yield (f"{100 * seen / len(corpus.sets['test']):.0f} % of the test transcripts are those of training utterances too, "
               "which makes the language model look better than it is")


def write(corpus: Corpus, data: Path) -> Iterator[str]:
    """Write data directories of a corpus, and what is left out to <data>/local/left_out.txt; yields sentences.

    Audio that is not of one channel at the corpus's rate is converted, to <data>/local/audio.
    """
    write_text(data / "local/left_out.txt", "".join(f"{reason}: {name}\n" for reason, names in corpus.left_out.items() for name in names))
    recordings = {utterance.recording.name: utterance.recording for utterances in corpus.sets.values() for utterance in utterances}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = pool.map(lambda one: _fitting(one, corpus.rate, data / "local/audio"), recordings.values())
        paths = dict(zip(recordings, files, strict=True))
    converted = sum(not fits(recording, corpus.rate) for recording in recordings.values())
    for part, utterances in corpus.sets.items():
        wholes = all(utterance.whole for utterance in utterances)
        segments = None if wholes else {one.name: _segment(one) for one in utterances}
        names = {one.name if wholes else one.recording.name: one.recording.name for one in utterances}
        write_datadir(data / part, {name: paths[recording] for name, recording in names.items()},
                      {one.name: " ".join(corpus.words[one.name]) for one in utterances},
                      {one.name: corpus.speakers[one.name] for one in utterances}, segments)
    if converted:
        yield f"{converted} recordings are converted to one channel at {corpus.rate} Hz, in {data}/local/audio"


def _fitting(recording: Recording, rate: int, folder: Path) -> str:
    """The file of a recording, converted where it has to be; itself where it cannot be: the stage of the features leaves it out."""
    try:
        return str((recording.path if fits(recording, rate) else convert(recording, rate, folder)).resolve())
    except AudioError:
        return str(recording.path.resolve())


def _segment(utterance: Utterance) -> str:
    start, end = (0.0, utterance.recording.seconds) if utterance.whole else (utterance.row.start, utterance.row.end)
    return f"{utterance.recording.name} {start:.3f} {end:.3f}"
