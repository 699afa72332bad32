"""Which pronunciation each word has in aligned or decoded speech, and where silence stands; for steps/get_prons.sh.

`prons.<job>.gz` has a line for each word, and for each silence as the word 0: `utterance first-frame frames word phone ...`, in numbers, as
Kaldi's nbest-to-prons writes it. `write_counts` counts pronunciations, pairs of them, and silence before and behind each.
"""

from __future__ import annotations

import gzip
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pykaldist.decode.ctm import Spoken, WordTimer
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import archives
from pykaldist.hmm.alignments.corpus import name_some
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.transition_model import TransitionModel, check_range
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.dictdir import without_position
from pykaldist.io.entries import DAMAGE, reason
from pykaldist.io.lang import EPSILON, LangDir
from pykaldist.io.tables import read_int_vectors

BEGIN, END = "<s>", "</s>"


def model_of(folder: Path) -> TransitionModel:
    """The transition model of a directory of alignments or, from the directory above, of lattices; raises UserError for none."""
    for path in (folder / "final.mdl", folder.parent / "final.mdl"):
        if path.is_file():
            return read_transition_model(path)
    raise UserError(f"{folder} has no final.mdl, nor has {folder.parent}; give one of alignments, or of lattices inside the model's.")


def aligned_paths(archive: Path, data: DataDir, lang: LangDir, model: TransitionModel) -> Iterator[tuple[str, list[int], np.ndarray]]:
    """Iterate over (utterance, words, transition-ids) of an archive of alignments, for the utterances of `data`."""
    for utt, tids in read_int_vectors(archive):
        check_range(tids, 1, model.num_transition_ids, f"{archive}, {utt}")
        if utt in data.text:
            yield utt, lang.word_ids(data.text[utt])[0], tids


def decoded_paths(archive: Path, lmwt: float) -> Iterator[tuple[str, list[int], np.ndarray]]:
    """Iterate over (utterance, words, transition-ids) of the best paths of an archive of lattices, at a language model weight."""
    for utt, lattice in read_lattices(archive):
        path = best_path(lattice, 1.0, lmwt)
        yield utt, path.words, path.transition_ids


def spoken(timer: WordTimer, paths: Iterable[tuple[str, Sequence[int], np.ndarray]], where: object) -> Iterator[tuple[str, list[Spoken]]]:
    """Iterate over (utterance, its words and silences); utterances whose words and phones do not fit are named at the end, and left out.

    Raises UserError, naming `where`, if no utterance fits, or there is none.
    """
    done, failed, why = 0, [], ""
    for utt, words, tids in paths:
        try:
            parts = timer.spoken(words, tids)
        except UserError as error:
            failed.append(utt)
            why = str(error)
            continue
        done += 1
        yield utt, parts
    if not done:
        raise UserError(f"{where}: {why}" if failed else f"{where} has no utterance of the data directory; give the data that it is of.")
    if failed:
        print(f"WARNING: {len(failed)} of {done + len(failed)} utterances are left out ({name_some(failed)}): {why}")


def write_prons(data: DataDir, lang: LangDir, folder: Path, job: int, lmwt: float = 10.0) -> int:
    """Write `prons.<job>.gz` of one archive of alignments, or of lattices where there are none; returns the number of utterances."""
    model = model_of(folder)
    aligned = bool(archives(folder, "ali"))
    archive = folder / f"{'ali' if aligned else 'lat'}.{job}.gz"
    paths = aligned_paths(archive, data, lang, model) if aligned else decoded_paths(archive, lmwt)
    count = 0
    with atomic_open(folder / f"prons.{job}.gz", "wb") as stream, gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0) as packed:
        for utt, parts in spoken(WordTimer(lang, model), paths, archive):
            packed.write("".join(f"{utt} {part.start} {part.frames} {part.word} {' '.join(map(str, part.phones))}\n"
                                 for part in parts).encode())
            count += 1
    return count


def read_prons(folder: Path) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Iterate over (utterance, (word, phone, ...) for each word and silence) of `prons.*.gz`."""
    found = archives(folder, "prons")
    if not found:
        raise UserError(f"{folder} has no prons.*.gz; run steps/get_prons.sh from its beginning.")
    for path in found:
        utt, parts = "", list[tuple[int, ...]]()
        try:
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                for line in stream:
                    name, _, _, *numbers = line.split()
                    if name != utt:
                        if utt:
                            yield utt, parts
                        utt, parts = name, []
                    parts.append(tuple(map(int, numbers)))
        except DAMAGE as error:
            raise UserError(f"{path} is damaged ({reason(error)}); run steps/get_prons.sh from its beginning.") from error
        if utt:
            yield utt, parts


def count_pairs(parts: Sequence[str], pairs: Counter[tuple[str, str]], around: Mapping[str, list[int]]) -> None:
    """Count what follows what in an utterance of pronunciations (`word phone ...`, silences as `<eps> phone`), with <s> and </s> around.

    `pairs` counts those of pronunciations, silence left out. `around` has for each: silence before, none, silence behind, none.
    """
    row = [BEGIN, *parts, END]
    words = [part for part in row if not part.startswith(EPSILON + " ")]
    pairs.update(itertools.pairwise(words))
    for before, after in itertools.pairwise(row):
        quiet_before, quiet_after = before.startswith(EPSILON + " "), after.startswith(EPSILON + " ")
        if not quiet_before:
            around[before][2 if quiet_after else 3] += 1
        if not quiet_after:
            around[after][0 if quiet_before else 1] += 1


def write_counts(lang: LangDir, folder: Path) -> dict[str, int]:
    """Write the counts of `prons.*.gz` to files with Kaldi's names; returns the numbers of utterances, words and pronunciations.

    `pron_counts.int` and `.txt` have `count word phone ...`, `pron_counts_nowb.txt` the same without the phones' positions in the word,
    `pron_bigram_counts_nowb.txt` a count and two pronunciations with tabs between, `sil_counts_nowb.txt` the counts of `count_pairs`, and
    `pron_perutt_nowb.txt` each utterance's pronunciations.
    """
    counts, pairs = Counter[tuple[int, ...]](), Counter[tuple[str, str]]()
    around: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    names: dict[tuple[int, ...], str] = {}
    utterances = []
    for utt, parts in read_prons(folder):
        counts.update(parts)
        for part in parts:
            if part not in names:
                names[part] = " ".join([lang.words.symbol(part[0]), *(without_position(lang.phones.symbol(p)) for p in part[1:])])
        said = [names[part] for part in parts]
        count_pairs(said, pairs, around)
        utterances.append("\t".join([utt, BEGIN, *said, END]) + "\n")
    with_positions = [(count, " ".join([lang.words.symbol(part[0]), *map(lang.phones.symbol, part[1:])]))
                      for part, count in counts.items()]
    write_text(folder / "pron_counts.int", "".join(f"{count} {' '.join(map(str, part))}\n" for part, count in counts.items()))
    write_text(folder / "pron_counts.txt", _sorted(with_positions))
    if lang.word_boundary is not None:
        write_text(folder / "pron_counts_nowb.txt", _sorted([(count, names[part]) for part, count in counts.items()]))
    write_text(folder / "pron_perutt_nowb.txt", "".join(utterances))
    write_text(folder / "pron_bigram_counts_nowb.txt", "".join(f"{count}\t{one}\t{two}\n" for (one, two), count in pairs.items()))
    write_text(folder / "sil_counts_nowb.txt", "".join(f"{' '.join(map(str, around[part]))} {part}\n" for part in sorted(around)))
    return {"utterances": len(utterances), "words": sum(count for part, count in counts.items() if part[0]),
            "pronunciations": sum(part[0] > 0 for part in counts)}


def _sorted(rows: list[tuple[int, str]]) -> str:
    """Lines with counts, the highest first."""
    return "".join(f"{count} {text}\n" for count, text in sorted(rows, key=lambda row: (row[0], row[1].encode()), reverse=True))


def write_train_ctm(data: DataDir, lang: LangDir, folder: Path, target: Path, frame_shift: float = 0.01, use_segments: bool = True,
                    print_silence: bool = False) -> int:
    """Write `target/ctm`, the times of the words of aligned transcripts; returns the number of words.

    Times are those of recordings where the data directory has segments, and `use_segments` is not turned off.
    """
    model = model_of(folder)
    timer = WordTimer(lang, model)
    segments = data.segments if use_segments and data.has("segments") else {}
    channels = data.table("reco2file_and_channel") if segments and data.has("reco2file_and_channel") else {}
    lines = []
    for archive in archives(folder, "ali"):
        for utt, parts in spoken(timer, aligned_paths(archive, data, lang, model), archive):
            recording, begin, _ = segments.get(utt, (utt, 0.0, 0.0))
            name = channels.get(recording, f"{recording} 1")
            lines += [f"{name} {begin + part.start * frame_shift:.2f} {part.frames * frame_shift:.2f} {lang.words.symbol(part.word)}\n"
                      for part in parts if part.word or print_silence]
    if not lines:
        raise UserError(f"{folder} has no alignments (ali.*.gz); run steps/align_si.sh first.")
    write_text(target / "ctm", "".join(lines))
    return len(lines)
