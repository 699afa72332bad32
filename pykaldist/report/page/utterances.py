"""What was recognised in each utterance, and when, for the page: times of words and phones, and the best paths of the lattice."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.decode.ctm import FRAME_SHIFT, WordTimer, frame_shift_of
from pykaldist.decode.lattice import Lattice, read_decode_dir
from pykaldist.decode.pairs import check_decoding
from pykaldist.decode.paths import best_path, nbest
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io import provenance
from pykaldist.io.datadir import DataDir
from pykaldist.io.dictdir import without_position
from pykaldist.io.lang import LangDir
from pykaldist.progress import progress
from pykaldist.report.page.systems import Pairs
from pykaldist.report.table import System
from pykaldist.score.alignment import GAP

NUMBERS = ("utt2dur", "utt2num_frames", "utt2uniq")  # maps of utterances that are no groups
Timed = list[tuple[float, float, str]]
"""Words or phones in time: (begin, end in seconds, what)."""


@dataclass
class TestSet:
    """Utterances that systems were scored on: their references, and the data directory where it is known."""

    name: str
    references: dict[str, list[str]]
    data: DataDir | None
    by_user: bool  # whether the user has named the data directory, so that pipes in it may be run

    @property
    def utts(self) -> list[str]:
        return list(self.references)

    def maps(self) -> dict[str, Mapping[str, str]]:
        """The groups that utterances belong to, by name: speakers, and what the data directory's `utt2*` and `spk2*` say."""
        if self.data is None:
            return {}
        found: dict[str, Mapping[str, str]] = {"speaker": self.data.utt2spk}
        for path in sorted(self.data.path.glob("utt2*")):
            if path.name not in (*NUMBERS, "utt2spk"):
                found[path.name.removeprefix("utt2")] = self.data.table(path.name)
        for path in sorted(self.data.path.glob("spk2*")):
            if path.name != "spk2utt":
                table = self.data.table(path.name)
                found[path.name.removeprefix("spk2")] = {utt: table[spk] for utt, spk in self.data.utt2spk.items() if spk in table}
        return {name: table for name, table in found.items() if all(len(value.split()) == 1 for value in table.values())}

    def seconds(self) -> dict[str, float]:
        """The length of each utterance, as far as it is on record."""
        for name, unit in (("utt2dur", 1.0), ("utt2num_frames", FRAME_SHIFT)):
            if self.data is not None and self.data.has(name):
                return {utt: float(value) * unit for utt, value in self.data.table(name).items()}
        return {}


def references_of(alignments: Mapping[str, Pairs]) -> dict[str, list[str]]:
    """The references of aligned utterances."""
    return {utt: [ref for ref, _ in pairs if ref != GAP] for utt, pairs in alignments.items()}


def data_of(system: System, references: Mapping[str, Sequence[str]], given: Iterable[DataDir]) -> tuple[DataDir | None, bool]:
    """The data directory of a scored system, and whether the user named it.

    It is the first one given that has the system's utterances, else the one that was recorded when the system was scored.
    """
    for data in given:
        if references.keys() <= data.utt2spk.keys():
            return data, True
    scoring = system.decode_dir / "scoring_kaldi"
    known = provenance.read(scoring)
    for name in known.inputs if known is not None else ():
        folder = (scoring / name).parent
        if (folder / "utt2spk").is_file() and references.keys() <= DataDir(folder).utt2spk.keys():
            return DataDir(folder), False
    return None, False


@dataclass
class Recognised:
    """What a lattice says of an utterance: words and phones of its best path in time; its best paths with costs above the best one's.

    `said` are the words with their phones.
    """

    words: Timed = field(default_factory=list)
    said: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    phones: Timed = field(default_factory=list)
    paths: list[tuple[float, list[str]]] = field(default_factory=list)


def graph_of(decode_dir: Path) -> Path:
    """The folder of the words that a decode directory's lattices have: as its record says, else `graph` beside it."""
    known = provenance.read(decode_dir)
    recorded = [decode_dir / name for name in known.inputs if Path(name).name == "words.txt"] if known is not None else []
    return next((path.parent for path in recorded if path.is_file()), decode_dir.parent / "graph")


def pronunciations(graph: Path) -> dict[str, list[tuple[str, ...]]]:
    """The pronunciations of each word of a graph's directory; none where it has no phones/align_lexicon.int."""
    found: dict[str, list[tuple[str, ...]]] = {}
    if (graph / "phones/align_lexicon.int").is_file():
        lang = LangDir(graph)
        for word, phones in lang.align_lexicon:
            if word:
                found.setdefault(lang.words.symbol(word), []).append(tuple(without_position(lang.phones.symbol(phone)) for phone in phones))
    return found


def recognised(system: System, number: int) -> dict[str, Recognised]:
    """What the lattices of a system say, at its language model weight and penalty, with up to `number` paths of each.

    Nothing, with a warning, where lattices, model and words are not there or do not belong together.
    """
    decode_dir, model = system.decode_dir, system.decode_dir.parent / "final.mdl"
    graph = graph_of(decode_dir)
    try:
        if not (graph / "words.txt").is_file():
            raise UserError(f"{graph} has no words.txt; make the graph of {decode_dir} again (utils/mkgraph.sh).")
        check_decoding(decode_dir, graph, model if model.is_file() else None)
        lang, transitions = LangDir(graph), read_transition_model(model) if model.is_file() else None
        timer = WordTimer(lang, transitions) if transitions is not None else None
        total = len(system.counts.utts) if system.counts is not None else None
        return {utt: _of_lattice(lattice, system, number, lang, transitions, timer)
                for utt, lattice in progress(read_decode_dir(decode_dir), f"lattices of {system.name}", total=total, unit="utt")}
    except UserError as error:
        print(f"WARNING: no times and paths of {system.name} in the page: {error}", file=sys.stderr)
        return {}


def _of_lattice(lattice: Lattice, system: System, number: int, lang: LangDir, transitions: TransitionModel | None,
                timer: WordTimer | None) -> Recognised:
    scale = 1 / system.lmwt
    found = Recognised()
    for path in nbest(lattice.penalise_words(system.wip), number, scale):
        words = [lang.words.symbol(word) for word in path.words]
        cost = path.graph + scale * path.acoustic
        if all(words != other for _, other in found.paths):
            found.paths.append((cost, words))
    found.paths = [(cost - found.paths[0][0], words) for cost, words in found.paths]
    if transitions is not None and timer is not None:
        shift = frame_shift_of(system.decode_dir.parent)
        best = best_path(lattice, scale, word_ins_penalty=system.wip)
        phones, starts, frames = (column.tolist() for column in phone_segments(best.transition_ids, transitions))
        found.phones = [(start * shift, (start + count) * shift, lang.phones.symbol(phone))
                        for phone, start, count in zip(phones, starts, frames, strict=True)]
        with suppress(UserError):  # of a path that ends within a word, say
            spoken = [part for part in timer.spoken(best.words, best.transition_ids) if part.word]
            found.words = [(part.start * shift, (part.start + part.frames) * shift, lang.words.symbol(part.word)) for part in spoken]
            found.said = [(lang.words.symbol(part.word), tuple(without_position(lang.phones.symbol(phone)) for phone in part.phones))
                          for part in spoken]
    return found
