"""Import of alignments that another system made: matched with a data directory, checked, and written as an alignment directory.

Sources are those of `ali_sources`. Transition_ids stay as they are, with the model and the features' files of their system. Phones, in
frames or in times, become transition_ids of a monophone system made from the language directory's topology, each phone's frames shared
equally among its states (phone_states.py), with `tree` and `final.mdl`, whose transition probabilities are counted on the alignment, so
that decoding graphs can be made. Pdfs stay pdfs; `--model` names the system that they are of.

Time is cut into frames by rounding to the nearest frame; frames between intervals, and behind the last one, are silence.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import MADE, UserError
from pykaldist.hmm.alignments.alignment_dir import FILES, TEXTS, Imported, clear, record, silence_pdfs, write_labels
from pykaldist.hmm.alignments.corpus import name_some
from pykaldist.hmm.gmm.model_files import read_transition_model, write_model, write_tree
from pykaldist.hmm.import_ali.label_frames import MAX_TRIM, LabelConverter, Unusable, WrongLength, of_segments
from pykaldist.hmm.import_ali.sources import open_source
from pykaldist.hmm.import_ali.sources.base import Frames, SourceOptions, Times, parse_item, write_item
from pykaldist.hmm.tree.transition_model import TransitionModel, check_range
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.scratch import StoredValues, stored_integers
from pykaldist.options import option
from pykaldist.progress import progress


@dataclass
class ImportOptions(SourceOptions):
    """The options of `import_alignments`, beside those of the source."""

    max_unmatched: float = option(10.0, "percentage of the utterances that may be left without an alignment")
    model: str = option("", "for a source of pdfs: directory with the tree and final.mdl that they are of")


@dataclass
class ImportReport:
    """The counts of what was imported and what was left out.

    Left out are `missing`, `lengths` (utterance -> what differs) and `unusable` (utterance -> why).
    """

    utterances: int
    matched: int = 0
    frames: int = 0
    trimmed: int = 0
    extra: int = 0
    missing: list[str] = field(default_factory=list)
    lengths: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    unknown_phones: dict[str, int] = field(default_factory=dict)
    unknown_words: dict[str, int] = field(default_factory=dict)
    unlabelled_frames: int = 0
    short_phones: int = 0
    silence_share: float | None = None

    @property
    def unmatched(self) -> int:
        return len(self.missing) + len(self.lengths) + len(self.unusable)

    def lines(self) -> list[str]:
        """Sentences for the user about what was imported and left out."""
        def some(table: dict[str, Any]) -> str:
            return name_some([f"{key} ({value})" for key, value in table.items()])

        said = [f"{self.matched} of {self.utterances} utterances have an alignment, {self.frames} frames"]
        if self.silence_share is not None:
            said.append(f"silence is {100 * self.silence_share:.1f} % of the frames")
        for count, text in ((self.trimmed, f"utterances differ by up to {MAX_TRIM} frames from their features and are trimmed"),
                            (self.extra, "aligned utterances are not in the data"),
                            (self.unlabelled_frames, "frames have no label and count as silence"),
                            (self.short_phones, "phones are shorter than their HMM")):
            if count:
                said.append(f"{count} {text}")
        if self.missing:
            said.append(f"WARNING: {len(self.missing)} utterances have features but no alignment: {name_some(self.missing)}")
        for table, text in ((self.lengths, f"utterances differ by more than {MAX_TRIM} frames from their features and are left out"),
                            (self.unusable, "utterances cannot be used"),
                            (self.unknown_phones, "phones are unknown to the language directory"),
                            (self.unknown_words, "words are unknown to the lexicon and count as OOV")):
            if table:
                said.append(f"WARNING: {len(table)} {text}: {some(table)}")
        return said


def import_alignments(source: str | os.PathLike[str], data_dir: str | os.PathLike[str], lang_dir: str | os.PathLike[str],
                      exp_dir: str | os.PathLike[str], options: ImportOptions, nj: int = 1, log: Callable[[str], None] = print) -> str:
    """Import the alignments of `source` for the utterances of `data_dir` into `exp_dir`.

    Returns a line that says what came out.

    Raises UserError, with nothing written, where more than `options.max_unmatched` % of the utterances are left without an alignment,
    or the source's phones are not those of the language directory.
    """
    data, lang, exp = DataDir(data_dir), LangDir(lang_dir), Path(exp_dir)
    if not 1 <= nj <= len(data.utt2spk):
        raise UserError(f"--nj: expected a number from 1 to {len(data.utt2spk)}, the utterances of {data.path}; found {nj}.")
    opened = open_source(Path(source), options)
    system = opened.system_dir or (Path(options.model) if options.model else None)
    if Path(source).resolve() == exp.resolve() or (system is not None and system.resolve() == exp.resolve()):
        raise UserError(f"{exp} is both source and target; import into another directory.")
    if opened.model is None and options.model:
        opened.model = read_transition_model(Path(options.model) / "final.mdl")
    if opened.model is not None and system is not None:
        _check_system(opened.model, system, lang)
    items = _collect(opened.utterances(), Path(source), exp.parent, opened.in_parts)
    if data.has("segments"):
        items = _collect(of_segments(items, data), Path(source), exp.parent)
    converter = LabelConverter(lang, items.values(), options)
    log(f"{source}: {opened.format}, {len(items)} utterances, taken as {converter.kind}s"
        f"{f' ({converter.reason})' if converter.reason else ''}")
    labels, report = _match(items, data, converter, exp.parent)
    model = converter.states.model if converter.states else opened.model
    is_pdf = converter.kind == "pdf"
    num_pdfs = (model.num_pdfs if model else 1 + max((int(v.max()) for v in labels.values() if len(v)), default=0)) if is_pdf else None
    if is_pdf and model is not None:
        for utt, pdfs in labels.items():
            check_range(pdfs, 0, model.num_pdfs - 1, f"{source}, {utt}")
    report.silence_share = _silence_share(labels, model, lang, is_pdf)
    lines = report.lines()
    for line in lines:
        log(line)
    if not report.matched or report.unmatched > options.max_unmatched / 100 * report.utterances:
        worst = next((line[9:] for line in lines if line.startswith("WARNING")), "none matches")
        raise UserError(f"{report.unmatched} of {report.utterances} utterances of {data.path} have no usable alignment in {source}, more "
                        f"than {options.max_unmatched:g} %: {worst}; check that they belong together, or allow it with --max-unmatched.")

    if is_pdf and model is None:
        log("WARNING: pdfs came without a model: a network can be trained on them, but decoding needs their tree and final.mdl (--model)")
    clear(exp)
    write_labels(exp, data, labels, nj, num_pdfs)
    imported = Imported(str(source), opened.format, converter.kind, str(data_dir), str(lang_dir), dataclasses.asdict(options),
                        dataclasses.asdict(report))
    write_text(exp / "provenance.json", json.dumps(dataclasses.asdict(imported), indent=1, ensure_ascii=False) + "\n")
    copy_file(lang.file("phones.txt"), exp / "phones.txt")
    if converter.states is not None:
        counts = np.zeros(converter.states.model.num_transition_ids + 1)
        for ids in labels.values():
            counts += np.bincount(ids, minlength=len(counts))
        converter.states.model.update(counts)
        write_tree(exp / "tree", converter.states.tree)
        write_model(exp / "final.mdl", converter.states.model)
    elif system is not None:
        _copy_system(system, exp)
    record(exp, "steps/import_ali.sh")
    return f"{lines[0]}{', ' + lines[1] if report.silence_share is not None else ''}"


def _check_system(model: TransitionModel, system: Path, lang: LangDir) -> None:
    check_phones(lang, system)
    known = set(lang.phones.values())
    unknown = [phone for phone in model.topology.phones if phone not in known]
    if unknown:
        raise UserError(f"{system}/final.mdl has {len(unknown)} phones that {lang.path}/phones.txt lacks, such as {unknown[0]}; use the "
                        "language directory that the model was trained with.")


def _collect(found: Iterable[tuple[str, Frames | Times]], path: Path, folder: Path, in_parts: bool = False) -> StoredValues[Frames | Times]:
    """Read all alignments into a temporary file in `folder`, where parts of an utterance are joined.

    Raises UserError where there is none, or an utterance is there twice that does not come `in_parts`.
    """
    items = StoredValues(parse_item, write_item, folder)
    for utt, item in progress(found, "reading alignments", unit="utt"):
        before = items.get(utt)
        if before is not None and not (in_parts and isinstance(before, Times) and isinstance(item, Times)):
            raise UserError(f"{path} has {utt} twice; keep one.")
        items.add(utt, before.joined(item) if isinstance(before, Times) and isinstance(item, Times) else item)
    if not items:
        raise UserError(f"{path} has no utterances; {MADE}.")
    return items


def _num_frames(data: DataDir) -> Iterator[tuple[str, int]]:
    """Iterate over the utterances that have features, each with the number of its frames."""
    stated = data.lines("utt2num_frames") if data.has("utt2num_frames") else {}
    for utt in data.feats:
        number = stated.get(utt, "")
        yield utt, int(number) if number.isdecimal() else data.feats.num_rows(utt)


def _match(items: Mapping[str, Frames | Times], data: DataDir, converter: LabelConverter,
           folder: Path) -> tuple[StoredValues[np.ndarray], ImportReport]:
    report = ImportReport(len(data.feats), extra=sum(utt not in data.feats for utt in items))
    labels = stored_integers(folder)
    for utt, frames in progress(_num_frames(data), "matching", len(data.feats), unit="utt"):
        if utt not in items:
            report.missing.append(utt)
            continue
        try:
            found = converter.convert(items[utt], frames)
        except WrongLength as reason:
            report.lengths[utt] = str(reason)
            continue
        except Unusable as reason:
            report.unusable[utt] = str(reason)
            continue
        report.trimmed += len(found) != frames
        labels.add(utt, found[:frames])
        report.frames += min(len(found), frames)
    report.matched = len(labels)
    report.unknown_phones = _most_common(converter.phones.unknown)
    report.unlabelled_frames = converter.unlabelled
    if converter.states is not None:
        report.short_phones = converter.states.too_short
        report.unknown_words = _most_common(converter.words.unknown) if converter.words else {}
    return labels, report


def _most_common(counts: Counter[str]) -> dict[str, int]:
    return dict(counts.most_common())


def _silence_share(labels: Mapping[str, np.ndarray], model: TransitionModel | None, lang: LangDir, is_pdf: bool) -> float | None:
    """The share of frames that silence phones have; None where that is unknown, or nothing is aligned."""
    if model is None:
        return None
    if is_pdf:
        silent = np.isin(np.arange(model.num_pdfs), silence_pdfs(model, lang.silence_phones))
    else:
        silent = np.isin(model.tid2phone, lang.silence_phones)
    total = silence = 0
    for ids in labels.values():
        total, silence = total + len(ids), silence + int(silent[ids].sum())
    return silence / total if total else None


def _copy_system(system: Path, exp: Path) -> None:
    """Copy the files of the source's system that describe its model and features; `final.mdl` last."""
    of_alignment = ("phones.txt", "num_jobs", "num_pdfs", "provenance.json", "final.mdl", TEXTS, provenance.FILE)
    names = [name for name in FILES if name not in of_alignment]
    for path in (*(system / name for name in names), *sorted(system.glob("trans.*")), system / "final.mdl"):
        if path.is_file():
            copy_file(path, exp / path.name)
