"""Transcription of recordings that are no part of a corpus, by a finished model.

The utterances of recordings become a small data directory, which goes the way of any test set. A speaker is a recording, or all of them
together. A system trained on fMLLR features (SAT, or a network on such features) is given transforms made as steps/decode_fmllr.sh makes
them: a decoding without adaptation, transforms from its lattices, a decoding with these, transforms from the new lattices.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from pykaldist.decode.acoustic import AcousticModel, GmmModel, load_acoustic_model
from pykaldist.decode.adapt import transforms_from_lattices
from pykaldist.decode.confidence import confidences
from pykaldist.decode.ctm import WordTimer, frame_shift_of
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, write_lattices
from pykaldist.decode.lookahead import make_decoder, read_graph
from pykaldist.decode.lookahead_graph import LookaheadGraph
from pykaldist.decode.pairs import check_graph
from pykaldist.decode.paths import LatticePath, best_path, nbest
from pykaldist.decode.search_graph import SearchGraph
from pykaldist.errors import UserError
from pykaldist.feats.extract import KINDS
from pykaldist.feats.make import collect_parts, transform_part
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import write_speaker_transforms
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir, SymbolTable
from pykaldist.nnet.forwarding import DTYPE_HELP, DTYPES, ForwardOptions
from pykaldist.options import option
from pykaldist.progress import progress
from pykaldist.serve.recipe import Scales, acwt_of, features_of, graph_of, scales_of, store_origin
from pykaldist.serve.recordings import feature_options, make_features, samples_of
from pykaldist.serve.segments import utterances_of
from pykaldist.serve.transcript import Alternative, Transcript, Utterance, Word

# Of decode_fmllr.sh: the decoding without adaptation, the weight of silence, and the beams in which the lattices of the first and the
# second decoding are determinised for the transforms.
FIRST_BEAM, FIRST_MAX_ACTIVE, SILENCE_WEIGHT = 10.0, 2000, 0.01
LATTICE_BEAM, SECOND_LATTICE_BEAM = 6.0, 4.0
MIN_COUNT = 100.0  # frames of speech for a transform, where Kaldi's scripts want 500: in recordings of one's own speakers often say little


@dataclass
class TranscribeOptions:
    """The options of how recordings become features and utterances, whose they are, and how their words are chosen."""

    graph: str | None = option(None, "directory of the decoding graph (default: as the model was decoded, else one of its recipe)")
    kind: str | None = option(None, "features that the model was trained on (default: those of its recipe's conf that fit it)",
                              choices=tuple(KINDS))
    feats_config: str | None = option(None, "their options, one --option=value a line, as in training")
    channel: int = option(-1, "channel to read, from 0; -1 expects mono")
    longest: float = option(30.0, "seconds of the longest utterance; a recording that is longer is cut in its pauses")
    one_speaker: bool = option(False, "all recordings are of one speaker, for CMVN and adaptation; false: each of its own")
    adapt_model: str | None = option(None, "speaker-adapted GMM system whose fMLLR features a network takes; none: as the "
                                           "network's frame store says")
    acwt: float | None = option(None, "scale of the log-likelihoods in the search (default: 1 of chain models, else 0.083333)")
    lmwt: float | None = option(None, "weight of the language model by which words are chosen (default: the best of the model's scored "
                                      "decode directories, else 12, 10 of chain models)")
    word_ins_penalty: float | None = option(None, "penalty of a word, likewise")
    device: str = option("auto", "where a network computes: cpu, cuda, cuda:N, or auto: cuda where there is one")
    dtype: str = option("float32", DTYPE_HELP, DTYPES)

    def __post_init__(self) -> None:
        if not 1 <= self.longest <= 600:
            raise UserError(f"--longest {self.longest:g}: expected 1 to 600 seconds.")
        if self.lmwt is not None and not self.lmwt > 0:
            raise UserError(f"--lmwt {self.lmwt:g}: expected more than 0.")


class WordReader:
    """Reads the words of a lattice, with times and confidences where the graph's directory has what they take."""

    def __init__(self, model_dir: Path, graph_dir: Path, scales: Scales, decoding: DecoderOptions) -> None:
        self._words, self._scales, self._decoding = SymbolTable.read(graph_dir / "words.txt"), scales, decoding
        self._timer: WordTimer | None = None
        if (graph_dir / "phones/align_lexicon.int").is_file() and not (model_dir / "tokens.txt").is_file():  # which CTC has
            self._timer = WordTimer(LangDir(graph_dir), read_transition_model(model_dir / "final.mdl"))
        self._shift = frame_shift_of(model_dir)

    def read(self, lattice: Lattice | None, begin: float, end: float, alternatives: int = 0) -> Utterance:
        """The utterance of a decoder's lattice: the words of its best path, and so many paths that differ in their words."""
        if lattice is None:
            return Utterance(begin, end, None)
        # Of words that sound alike, the determinised lattice has the one that decoding's would have.
        lattice = determinize(lattice, self._decoding.acwt, self._decoding.lattice_beam)
        acoustic, penalty = self._scales.acoustic, self._scales.penalty
        path = best_path(lattice, acoustic, word_ins_penalty=penalty)
        words = self._timed(path, begin)
        if self._timer is not None:
            sure, _ = confidences(lattice, path.words, acoustic)
            words = [replace(word, confidence=min(float(p), 1.0)) for word, p in zip(words, sure, strict=True)]
        others = nbest(lattice.penalise_words(penalty), alternatives, acoustic) if alternatives else ()
        return Utterance(begin, end, words, [Alternative(self._timed(one, begin), -one.graph - acoustic * one.acoustic) for one in others])

    def _timed(self, path: LatticePath, begin: float) -> list[Word]:
        """The words of a path, with times where there can be some."""
        names = [self._words.symbol(word) for word in path.words]
        if self._timer is None:
            return [Word(name) for name in names]
        said = [part for part in self._timer.spoken(path.words, path.transition_ids) if part.word]
        return [Word(name, begin + part.start * self._shift, begin + (part.start + part.frames) * self._shift)
                for name, part in zip(names, said, strict=True)]


class Transcribing(Protocol):
    """What recognises whole recordings, at a sampling rate of its own; `parts` says of what it was made."""

    rate: int

    @property
    def parts(self) -> str: ...

    def transcribe(self, recordings: Sequence[tuple[str, np.ndarray]], alternatives: int = 0) -> Iterator[Transcript]:
        """Transcribe recordings, (name, samples at `rate`), with so many alternatives of each utterance.

        Raises UserError, naming the recording, where one cannot be recognised.
        """
        ...


class Transcriber:
    """A finished model with its graph, and what else it takes to recognise utterances that have ended.

    Raises UserError where a part is missing or does not fit; `parts` says what was found. Several may share a graph.
    """

    def __init__(self, model_dir: Path, options: TranscribeOptions, decoding: DecoderOptions) -> None:
        self.adapting = adapting_gmm(model_dir, Path(options.adapt_model) if options.adapt_model else None)
        self.model_dir, self._options = model_dir, options
        self.graph_dir = graph_of(model_dir, options.graph)
        check_graph(self.graph_dir, model_dir / "final.mdl")
        self._model: AcousticModel | None = None  # that of an adapted GMM is made of the speakers' transforms
        if self.adapting != model_dir:
            self._model = load_acoustic_model(model_dir, forwarding=ForwardOptions(device=options.device, dtype=options.dtype))
        first = GmmModel(self.adapting) if self.adapting is not None else self._model
        assert first is not None
        self.kind, self.config = features_of(model_dir, options.kind, options.feats_config,
                                             lambda kind, config: _fits(first, kind, config))
        self.rate = int(feature_options(self.kind, self.config).sample_frequency)
        self.decoding = replace(decoding, acwt=acwt_of(model_dir, options.acwt))
        self.scales = scales_of(model_dir, options.lmwt, options.word_ins_penalty)
        tid2pdf = (self._model or first).tid2pdf
        self.graph = read_graph(self.graph_dir, tid2pdf)
        self._decoder = make_decoder(self.graph, tid2pdf, self.decoding)
        self._reader = WordReader(model_dir, self.graph_dir, self.scales, self.decoding)

    @property
    def parts(self) -> str:
        """What was found, in words."""
        adapted = f", adapted by {self.adapting}" if self.adapting else ""
        return (f"graph {self.graph_dir}, features {self.kind} by {self.config}{adapted}, words chosen by {self.scales}")

    def transcribe(self, recordings: Sequence[tuple[str, np.ndarray]], alternatives: int = 0) -> Iterator[Transcript]:
        """As `Transcribing` says."""
        utterances: dict[str, tuple[float, float]] = {}
        samples: dict[str, np.ndarray] = {}
        for number, (_, whole) in enumerate(recordings):
            for place, (begin, end) in enumerate(places_of(whole, self.rate, self._options.longest)):
                utt = f"{number:06d}-{place:06d}"
                utterances[utt], samples[utt] = (begin, end), whole[round(begin * self.rate):round(end * self.rate)]
        speakers = {utt: "speaker" if self._options.one_speaker else utt.partition("-")[0] for utt in utterances}
        with tempfile.TemporaryDirectory(prefix="pykaldist-transcribe-") as work:
            found = self._lattices(samples, speakers, Path(work), [name for name, _ in recordings])
            for number, (name, whole) in enumerate(recordings):
                own = [utt for utt in utterances if utt.startswith(f"{number:06d}-")]
                yield Transcript(name, len(whole) / self.rate, [self._reader.read(next(found), *utterances[utt], alternatives)
                                                                     for utt in own])

    def _lattices(self, samples: Mapping[str, np.ndarray], speakers: Mapping[str, str], work: Path,
                  names: Sequence[str]) -> Iterator[Lattice | None]:
        """The lattice of each utterance, in order."""
        if not samples:
            return
        data = make_features(samples.items(), speakers, work, self.kind, self.config)
        data, model = self._adapted(data, work)
        for utt in progress(data.utterances(), "transcribing", unit="utterance"):
            try:
                yield self._decoder.decode(model.loglikes(model.features(data, utt)))
            except UserError as error:
                raise UserError(f"{names[int(utt.partition('-')[0])]}: {error}") from error

    def _adapted(self, data: DataDir, work: Path) -> tuple[DataDir, AcousticModel]:
        """The data as the model takes them, and the model: where it adapts to speakers, with their transforms."""
        if self.adapting is None:
            assert self._model is not None
            return data, self._model
        transforms = adapt(data, self.graph, self.graph_dir, self.adapting, work, self.decoding)
        if self._model is None:
            return data, GmmModel(self.model_dir, None, transforms)
        adapted = write_datadir(work / "adapted", data.wav_scp, None, data.utt2spk)
        transform_part(data, adapted, FeaturePipeline.from_dir(self.adapting, transforms), work / "fmllr", 1, 1)
        collect_parts(adapted, work / "fmllr", "fmllr", 1)
        return DataDir(adapted.path), self._model


def places_of(samples: np.ndarray, rate: int, longest: float) -> list[tuple[float, float]]:
    """Begin and end of a recording's utterances in seconds: the whole where it is not longer than `longest` seconds."""
    seconds = len(samples) / rate
    return [(0.0, seconds)] if seconds <= longest else utterances_of(samples, rate, longest)


def _fits(model: AcousticModel, kind: str, config: str) -> bool:
    """Whether a model takes features of these options, which is tried on half a second of noise."""
    rate = int(feature_options(kind, config).sample_frequency)
    noise = np.random.default_rng(0).normal(scale=100, size=rate // 2).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="pykaldist-transcribe-") as work:
        try:
            data = make_features([("trial", noise)], {"trial": "trial"}, Path(work), kind, config)
            model.features(data, "trial")
        except UserError:
            return False
    return True


def transcribe_files(paths: Sequence[str], transcriber: Transcribing, options: TranscribeOptions) -> Iterator[Transcript]:
    """Transcribe files: of one speaker all together, else one after the other, so that memory holds one."""
    if options.one_speaker:
        yield from transcriber.transcribe([(path, samples_of(path, options.channel, transcriber.rate)) for path in paths])
        return
    for path in paths:
        yield from transcriber.transcribe([(path, samples_of(path, options.channel, transcriber.rate))])


def adapting_gmm(model_dir: Path, chosen: Path | None) -> Path | None:
    """Find the speaker-adapted GMM system whose transforms the model's features need; None where they are not adapted."""
    if not model_dir.is_dir():
        there = next(folder for folder in model_dir.absolute().parents if folder.is_dir())
        raise UserError(f"{model_dir} does not exist; name a trained model: pykaldist ls {shlex.quote(str(there))} lists them.")
    if chosen is None and (model_dir / "final.alimdl").is_file():
        return model_dir
    if chosen is None and (model_dir / "config.json").is_file() and not FeaturePipeline.from_dir(model_dir).cmvn.norm_means:
        origin = store_origin(model_dir, "name the GMM system that adapts with --adapt-model")
        if origin is not None and origin.ali:
            chosen = Path(origin.ali.removesuffix("_ali"))
        if chosen is None or not (chosen / "final.mdl").is_file():
            raise UserError(f"{model_dir} was trained on adapted features, and its frame store does not lead to the GMM system that "
                            "adapts; name it with --adapt-model.")
    return chosen


def adapt(data: DataDir, graph: SearchGraph | LookaheadGraph, graph_dir: Path, gmm: Path, work: Path, decoding: DecoderOptions) -> Path:
    """Make the folder with fMLLR transforms of the recordings' speakers, by the speaker-adapted system `gmm`."""
    colons = LangDir(graph_dir).file("phones/silence.csl").read_text(encoding="utf-8").strip()
    silence, utts = [int(phone) for phone in colons.split(":")], data.utterances()
    options = FmllrOptions(fmllr_min_count=MIN_COUNT, silence_weight=SILENCE_WEIGHT)
    alimdl = gmm / "final.alimdl" if (gmm / "final.alimdl").is_file() else gmm / "final.mdl"
    second = replace(decoding, lattice_beam=LATTICE_BEAM)
    first = replace(second, beam=FIRST_BEAM, max_active=FIRST_MAX_ACTIVE)
    transforms: Path | None = None
    for name, search, aligner, beam in (("first", first, alimdl, LATTICE_BEAM), ("second", second, None, SECOND_LATTICE_BEAM)):
        model = GmmModel(gmm, aligner, transforms)
        decoder = make_decoder(graph, model.tid2pdf, search)

        def lattices(model: GmmModel = model, decoder: LatticeDecoder = decoder, name: str = name) -> Iterator[tuple[str, Lattice]]:
            for utt in progress(utts, f"{name} transforms", unit="recording"):
                if (lattice := decoder.decode(model.loglikes(model.features(data, utt)))) is not None:
                    yield utt, lattice

        archive = work / f"{name}.gz"
        write_lattices(archive, lattices())
        made, _ = transforms_from_lattices(data, utts, gmm, archive, silence, decoding.acwt, options, aligner, transforms, None, beam)
        transforms = work / name
        write_speaker_transforms(transforms / "trans.1", made.items())
    assert transforms is not None
    return transforms
