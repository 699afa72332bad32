"""Forced alignment: when each word and phone of recordings was said, by a finished model and what is said in them.

The recordings become a data directory, which goes the way of any: features, an alignment as the model's stage script makes it (steps/
align_si.sh, align_fmllr.sh or nnet/align.sh; a network on adapted features gets the transforms that its GMM system estimates on the
transcripts), words from phones by the lexicon.

A phone's score says how well the frames that it was given fit it:

    score = 1/T sum_t (log p(x_t | state of the alignment at t) - max over all states of log p(x_t | state)),

which is at most 0, and 0 where no other state fits any frame better. It is the goodness of pronunciation of Witt & Young (Phone-level
pronunciation scoring, Speech Communication 30, 2000) with the best state of each frame in place of the best path of phones, so that it is
a little lower. A word's score is the mean over its frames, a recording's over those of its words. A recording whose transcript is
wrong stands at the head of scores.csv.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import NETWORKS, AcousticModel, GmmModel, load_acoustic_model
from pykaldist.decode.align import align_nnet_dir
from pykaldist.decode.ctm import FRAME_SHIFT, WordTimer
from pykaldist.errors import UserError
from pykaldist.feats.extract import KINDS
from pykaldist.feats.make import collect_parts, transform_part
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.import_ali.sources.base import Interval
from pykaldist.hmm.training.adapted_experiment import align_fmllr_dir
from pykaldist.hmm.training.experiment import align_dir
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.dictdir import without_position
from pykaldist.io.lang import LangDir
from pykaldist.nnet.forwarding import DTYPE_HELP, DTYPES, ForwardOptions
from pykaldist.options import option
from pykaldist.progress import progress
from pykaldist.serve.recipe import feats_config_of, lang_of
from pykaldist.serve.recordings import feature_options, make_features, samples_of
from pykaldist.serve.spoken_files import SpokenFile, named, read_corpus, spelled
from pykaldist.serve.textgrid import text_grid
from pykaldist.serve.transcribe import MIN_COUNT, adapting_gmm

FORMATS = ("textgrid", "ctm", "json")
Heard = tuple[float, int]  # how long a recording is, in seconds, and its channel, from 1


@dataclass
class ForcedOptions:
    """Options of the alignment of recordings."""

    lang: str = option("", "language directory that the model was trained with (default: data/lang of its recipe)")
    kind: str = option("mfcc", "features that the model was trained on", choices=tuple(KINDS))
    feats_config: str | None = option(None, "their options, one --option=value a line, as in training (default: the recipe's "
                                            "conf/KIND.conf)")
    channel: int = option(-1, "channel to read, from 0; -1: a recording is mono, or has a TextGrid that says who is on which")
    speaker_characters: int = option(0, "characters at the beginning of a recording's name that say who speaks; 0: its folder, or a "
                                        "TextGrid's tier, says so")
    formats: str = option("textgrid,ctm,json", "what to write: textgrid, ctm and json, with commas between")
    adapt_model: str | None = option(None, "speaker-adapted GMM system whose fMLLR features a network takes; none: as the "
                                           "network's frame store says")
    device: str = option("cpu", "where a network computes: cpu, cuda, cuda:N or auto")
    dtype: str = option("float32", DTYPE_HELP, DTYPES)

    def __post_init__(self) -> None:
        unknown = set(self.wanted) - set(FORMATS)
        if unknown or not self.wanted:
            raise UserError(f"--formats {self.formats}: expected one or more of {', '.join(FORMATS)}, with commas between.")
        if self.speaker_characters < 0:
            raise UserError(f"--speaker-characters {self.speaker_characters}: expected 0 or more.")

    @property
    def forwarding(self) -> ForwardOptions:
        return ForwardOptions(device=self.device, dtype=self.dtype)

    @property
    def wanted(self) -> list[str]:
        return [name for name in self.formats.lower().split(",") if name]


@dataclass
class Said:
    """A word or phone: its first frame, its number of frames, and its score; a word's phones; whether a phone is optional silence."""

    label: str
    start: int
    frames: int
    score: float
    phones: list[Said] | None = None
    silent: bool = False


@dataclass
class AlignedFile:
    """What was said in a recording, or a part of it, with its words in time, silence left out, and all its phones.

    `seconds` is how long the recording is, `begin` where the part begins; `channel` is counted from 1.
    """

    file: SpokenFile
    seconds: float
    channel: int
    begin: float
    words: list[Said]
    phones: list[Said]

    @property
    def score(self) -> float:
        """The mean over the frames of the words."""
        frames = sum(word.frames for word in self.words)
        return sum(word.score * word.frames for word in self.words) / max(frames, 1)

    @property
    def length(self) -> float:
        """How long the part is, in seconds."""
        return min(self.seconds, self.file.end or self.seconds) - self.begin

    def interval(self, said: Said) -> Interval:
        """When a word or phone is said in the recording; what ends less than two frames before its part of the recording ends with it."""
        start, end = (round(self.begin + FRAME_SHIFT * frame, 6) for frame in (said.start, said.start + said.frames))
        whole = round(self.begin + self.length, 6)
        return Interval(start, whole if whole - end < 2 * FRAME_SHIFT else end, said.label)

    def as_json(self) -> dict[str, object]:
        """For JSON: who speaks, when, and the words and phones."""
        return {"speaker": self.file.speaker, "begin": self.begin, "end": round(self.begin + self.length, 6), "score": round(self.score, 3),
                "words": [self._said_as_json(word) for word in self.words], "phones": [self._said_as_json(phone) for phone in self.phones]}

    def _said_as_json(self, said: Said) -> dict[str, object]:
        interval = self.interval(said)
        found: dict[str, object] = {"label": said.label, "begin": round(interval.start, 3), "end": round(interval.end, 3),
                                    "score": round(said.score, 3)}
        return found | ({} if said.phones is None else {"phones": [self._said_as_json(phone) for phone in said.phones]})

    def ctm_line(self, said: Said) -> str:
        """A line of a CTM: `file channel begin seconds label`."""
        name, begin = self.file.name.replace(" ", "_"), self.begin + FRAME_SHIFT * said.start
        return f"{name} {self.channel} {begin:.2f} {FRAME_SHIFT * said.frames:.2f} {said.label}\n"


def force_align(model_dir: Path, corpus: Path, out: Path, work: Path, options: ForcedOptions, align_options: AlignOptions,
                log: Callable[[str], None] = print) -> str:
    """Align the recordings below `corpus` and write what `options.formats` names below `out`; returns a line that says what came out.

    `work` is an empty folder for what is made on the way. Raises UserError for a model, language directory or recording that is not there
    or does not fit, and where nothing could be aligned.
    """
    adapting = adapting_gmm(model_dir, Path(options.adapt_model) if options.adapt_model else None)
    lang = lang_of(model_dir, Path(options.lang) if options.lang else None)
    found = read_corpus(corpus, options.speaker_characters)
    for sentence in found.left_out():
        log(f"WARNING: {corpus}: {sentence}")
    unknown: Counter[str] = Counter()
    files, words, failed = dict[str, SpokenFile](), dict[str, list[tuple[str, str]]](), list[str]()
    for number, file in enumerate(found.files):
        utt = f"{file.speaker}-{number:06d}"
        files[utt], words[utt] = file, spelled(file, lang.words, lang.oov, unknown)
        if not words[utt]:  # punctuation alone
            failed.append(file.title)
            del files[utt], words[utt]
    if not files:
        raise UserError(f"{corpus}: no transcript has a word; write what is said in the recordings.")
    if unknown:
        log(f"WARNING: {sum(unknown.values())} words are not in {lang.path}, and aligned as {lang.oov}: {named(unknown)}")
    data, heard = _features(files, words, model_dir, work, options)
    ali, data = _align(data, lang, model_dir, adapting, work, options, align_options, log)
    model = _model(ali, model_dir, adapting, options)
    aligned, left = list[AlignedFile](), Counter(file.name for file in files.values())
    by_name = defaultdict[str, list[AlignedFile]](list)
    for file, result in _results(data, lang, ali, model, files, words, heard):
        left[file.name] -= 1
        if result is None:
            failed.append(file.title)
        else:
            aligned.append(result)
            by_name[file.name].append(result)
        if not left[file.name] and (whole := by_name.pop(file.name, None)):
            _write(corpus, out, whole, options.wanted)
    if not aligned:
        raise UserError(f"{corpus}: no recording could be aligned; check that transcripts and recordings belong together.")
    aligned.sort(key=lambda one: (one.file.name, one.begin, one.file.speaker))
    if "ctm" in options.wanted:
        _write_ctms(out, aligned)
    _write_scores(out, aligned)
    if failed:
        log(f"WARNING: {len(failed)} {found.what} could not be aligned: {named(failed)}")
    return (f"{len(aligned)} of {len(found.files)} {found.what} aligned, {sum(len(one.words) for one in aligned)} words, "
            f"{sum(one.length for one in aligned) / 3600:.2f} h; mean score {np.mean([one.score for one in aligned]):.2f}; in {out}")


def _features(files: dict[str, SpokenFile], words: dict[str, list[tuple[str, str]]], model_dir: Path, work: Path,
              options: ForcedOptions) -> tuple[DataDir, dict[str, Heard]]:
    """The data directory of what is said, with features and CMVN statistics; and what was heard for each utterance."""
    config = feats_config_of(model_dir, options.kind, options.feats_config)
    rate = int(feature_options(options.kind, config).sample_frequency)
    heard: dict[str, Heard] = {}

    def samples() -> Iterator[tuple[str, np.ndarray]]:
        read, whole = None, np.zeros(0, np.float32)
        for utt, file in progress(files.items(), "reading audio", len(files), unit="recording"):
            wanted = file.name, _channel(file, options.channel)
            if wanted != read:
                read, whole = wanted, samples_of(str(file.audio), wanted[1], rate)
            heard[utt] = len(whole) / rate, max(wanted[1], 0) + 1
            part = whole[round(file.begin * rate):None if file.end is None else round(file.end * rate)]
            if not len(part):
                raise UserError(f"{file.title}: {file.audio} has {heard[utt][0]:g} seconds; correct its TextGrid.")
            yield utt, part

    text = {utt: " ".join(form for form, _ in found) for utt, found in words.items()}
    data = make_features(samples(), {utt: file.speaker for utt, file in files.items()}, work, options.kind, config, text)
    return data, heard


def _channel(file: SpokenFile, chosen: int) -> int:
    """The channel on which the speaker of a TextGrid's tier is heard; -1 for the only one."""
    import soundfile

    if chosen >= 0 or file.place is None:
        return chosen
    with suppress(soundfile.LibsndfileError):  # which samples_of says better
        return int(2 * file.place) if soundfile.info(file.audio).channels == 2 else -1
    return -1


def _align(data: DataDir, lang: LangDir, model_dir: Path, adapting: Path | None, work: Path, options: ForcedOptions,
           align_options: AlignOptions, log: Callable[[str], None]) -> tuple[Path, DataDir]:
    """Align the data directory; returns the alignments' directory, and the data as the model has seen it."""
    is_network = any((model_dir / name).is_file() for name in NETWORKS)
    if not is_network and options.dtype != "float32":
        raise UserError(f"--dtype {options.dtype} is for networks in a final.pt, and {model_dir} has none; leave it out.")
    ali = work / "ali"
    if adapting is not None:
        adapted = ali if not is_network else work / "adapting_ali"
        align_fmllr_dir(data.path, lang.path, adapting, adapted, align_options, FmllrOptions(fmllr_min_count=MIN_COUNT), log=log)
        if not is_network:
            return ali, data
        seen = write_datadir(work / "adapted", data.wav_scp, data.table("text"), data.utt2spk)
        transform_part(data, seen, FeaturePipeline.from_dir(adapting, adapted), work / "fmllr", 1, 1)
        collect_parts(seen, work / "fmllr", "fmllr", 1)
        data = DataDir(seen.path)
    if is_network:
        align_nnet_dir(data.path, lang.path, model_dir, ali, align_options, options.forwarding, log=log)
    else:
        align_dir(data.path, lang.path, model_dir, ali, align_options, log=log)
    return ali, data


def _model(ali: Path, model_dir: Path, adapting: Path | None, options: ForcedOptions) -> AcousticModel:
    """The model that has aligned, with the speakers' transforms where it adapts."""
    if any((model_dir / name).is_file() for name in NETWORKS):
        return load_acoustic_model(model_dir, forwarding=options.forwarding)
    return GmmModel(model_dir, None, ali if adapting is not None else None)


def _results(data: DataDir, lang: LangDir, ali: Path, model: AcousticModel, files: dict[str, SpokenFile],
             words: dict[str, list[tuple[str, str]]], heard: dict[str, Heard]) -> Iterator[tuple[SpokenFile, AlignedFile | None]]:
    """What is said in each recording, or part of one, in time; None where it has no alignment, or its phones do not spell its words."""
    labels = AlignmentDir(ali, ali)
    assert labels.model is not None
    timer = WordTimer(lang, labels.model)
    for utt in progress(data.utterances(), "words and phones", unit="recording"):
        tids = labels.labels.get(utt)
        if tids is None:
            yield files[utt], None
            continue
        try:
            said = _said(files[utt], heard[utt], words[utt], tids, labels.model, timer, lang, scores(model, data, utt, tids))
        except UserError:
            yield files[utt], None
            continue
        yield files[utt], said


def scores(model: AcousticModel, data: DataDir, utt: str, tids: np.ndarray) -> np.ndarray:
    """Of each frame, the log-likelihood of its state in the alignment minus that of the best state, at most 0."""
    loglikes = model.loglikes(model.features(data, utt))
    return np.asarray(loglikes[np.arange(len(tids)), model.tid2pdf[tids]] - loglikes.max(1))


def _said(file: SpokenFile, heard: Heard, words: list[tuple[str, str]], tids: np.ndarray, model: TransitionModel, timer: WordTimer,
          lang: LangDir, scores: np.ndarray) -> AlignedFile:
    """The words and phones of a recording from its alignment."""
    def plain(phone: int) -> str:
        name = lang.phones.symbol(phone)
        return without_position(name) if lang.word_boundary is not None else name

    phones = [Said(plain(phone), int(start), int(frames), float(scores[start : start + frames].mean()),
                   silent=phone == lang.optional_silence)
              for phone, start, frames in zip(*phone_segments(tids, model), strict=True)]
    found, written = [], iter(written for _, written in words)
    for part in timer.spoken([lang.words[form] for form, _ in words], tids):
        if part.word:
            own = [phone for phone in phones if part.start <= phone.start < part.start + part.frames]
            found.append(Said(next(written), part.start, part.frames, float(scores[part.start : part.start + part.frames].mean()), own))
    return AlignedFile(file, *heard, file.begin, found, phones)


def _write(corpus: Path, out: Path, whole: list[AlignedFile], formats: list[str]) -> None:
    """Write a recording's own files; as the aligner does, beside a TextGrid of the corpus, not over it."""
    file, seconds = whole[0].file, whole[0].seconds
    target = out / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    whole.sort(key=lambda one: one.begin)
    if "textgrid" in formats:
        tiers = defaultdict[str, list[Interval]](list)
        speakers = list(dict.fromkeys(one.file.speaker for one in sorted(whole, key=lambda one: one.file.place or 0)))
        for speaker in speakers:
            before = f"{speaker} - " if len(speakers) > 1 else ""
            own = [one for one in whole if one.file.speaker == speaker]
            tiers[before + "words"] = [one.interval(word) for one in own for word in one.words]
            tiers[before + "phones"] = [one.interval(phone) for one in own for phone in one.phones if not phone.silent]
        name = target.with_name(target.name + ".TextGrid")
        if name.resolve() == (corpus / f"{file.name}.TextGrid").resolve() and name.exists():
            name = target.with_name(target.name + "_aligned.TextGrid")
        write_text(name, text_grid(tiers, seconds))
    if "json" in formats:
        write_text(target.with_name(target.name + ".json"), json.dumps({
            "file": str(file.audio), "seconds": seconds, "utterances": [one.as_json() for one in whole]}, ensure_ascii=False,
            indent=1) + "\n")


def _write_ctms(out: Path, aligned: list[AlignedFile]) -> None:
    """words.ctm and phones.ctm: `file channel begin seconds label`."""
    for name in ("words", "phones"):
        write_text(out / f"{name}.ctm", "".join(one.ctm_line(said) for one in aligned for said in getattr(one, name)))


def _write_scores(out: Path, aligned: list[AlignedFile]) -> None:
    """scores.csv: the recordings, the one that fits its transcript worst first, each with its word that fits worst."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["file", "begin", "end", "speaker", "words", "score", "worst_word", "its_begin", "its_score"])
    for one in sorted(aligned, key=lambda one: one.score):
        worst = min(one.words, key=lambda word: word.score, default=None)
        more = ["", "", ""] if worst is None else [worst.label, f"{one.interval(worst).start:.2f}", f"{worst.score:.3f}"]
        table.writerow([one.file.name, f"{one.begin:.2f}", f"{one.begin + one.length:.2f}", one.file.speaker, len(one.words),
                        f"{one.score:.3f}", *more])
    write_text(out / "scores.csv", stream.getvalue())
