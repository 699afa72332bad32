"""Recognition of audio that still comes: features, network and search go on with each piece of it; endpointing ends utterances.

What is kept is the network's context and the lattice of the present utterance, which ends after 20 seconds at the latest (rule 5 of
`endpoint`). The network goes on from utterance to utterance, the search begins anew in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.decode.decoder import DecoderOptions, Decoding, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.lattice import Lattice
from pykaldist.decode.lookahead import read_decoder
from pykaldist.decode.pairs import check_graph
from pykaldist.decode.paths import best_path
from pykaldist.decode.silence_weights import BACK, FrameWeights, SilenceWeighting
from pykaldist.decode.unnormalised import for_plain_features
from pykaldist.errors import UserError
from pykaldist.feats.extract import Extractor
from pykaldist.feats.pipeline import FeaturePipeline, OnlineCmvn
from pykaldist.feats.stream import FeatureStream
from pykaldist.hmm.ivector.online import OnlineExtractor, SpeakerState
from pykaldist.hmm.ivector.stream import IvectorStream
from pykaldist.io.lang import SymbolTable
from pykaldist.options import option


@dataclass
class StreamOptions:
    """The options of recognising audio as it comes."""

    chunk_length: float = option(0.1, "seconds of audio that are searched at once")
    do_endpointing: bool = option(True, "end utterances by the rules of endpointing; false: one a recording")
    partial: bool = option(True, "print what is recognised so far of an utterance, too, behind each chunk that changes it")
    mean_of: str | None = option(None, "training data of a network that takes features less each speaker's mean; the mean of all of it is "
                                       "subtracted")

    extractor: str | None = option(None, "directory of the i-vector extractor, for a network that takes i-vectors")

    def check(self) -> None:
        """Check the options; raises UserError for a value that cannot work."""
        if not 0.01 <= self.chunk_length <= 60:
            raise UserError(f"--chunk-length {self.chunk_length:g}: expected 0.01 to 60 seconds.")


@dataclass
class Heard:
    """What was recognised of an utterance: its words, when it began, and up to when it is searched, in seconds of the recording.

    `lattice` is that of an utterance which has ended; None while it goes on.
    """

    words: list[str]
    begin: float
    end: float
    lattice: Lattice | None = None


class Recogniser:
    """A chain model, or another nnet3 network on features as they are or with online CMVN, with its graph.

    It recognises one recording at a time, more where each has a decoder of its own (`LatticeDecoder.another`). `ivectors` extracts those
    of a network that takes i-vectors, `mean_data` is the training data of one that takes features less each speaker's mean, `model` a file
    in place of the directory's final.mdl, `cmvn` online CMVN in place of what the directory says, `weighting` what silence counts for
    i-vectors; the network computes the outputs of `frames_per_chunk` frames at once. Raises UserError where the parts do not fit.
    """

    def __init__(self, model_dir: Path, graph_dir: Path, extractor: Extractor, decoding: DecoderOptions, endpointing: Endpointing | None,
                 mean_data: Path | None = None, model: Path | None = None, device: str = "cpu",
                 ivectors: OnlineExtractor | None = None, cmvn: OnlineCmvn | None = None,
                 weighting: SilenceWeighting | None = None, frames_per_chunk: int = 1) -> None:
        import torch

        from pykaldist.nnet.nnet3.model import Nnet3Model, is_nnet3_model
        from pykaldist.nnet.nnet3.run import Nnet3Forward

        torch.set_num_threads(1)
        path = model or model_dir / "final.mdl"
        if not (path.is_file() and is_nnet3_model(path)):
            raise UserError(f"{path} is no nnet3 network, such as a chain model, and no other model recognises audio as it comes.")
        check_graph(graph_dir, path)
        found = Nnet3Model.read(path)
        subsampling = read_subsampling(model_dir)
        self.cmvn = cmvn or FeaturePipeline.from_dir(model_dir, nnet3=True).online
        nnet = for_plain_features(model_dir, found.nnet, mean_data, online_cmvn=True)
        self.forward = Nnet3Forward(nnet, device, subsampling=subsampling)
        self._check_ivectors(path, ivectors)
        self.ivectors = ivectors
        self.weighting = weighting if ivectors is not None and weighting is not None and weighting.active else None
        self.extractor, self.frames_per_chunk = extractor, frames_per_chunk
        dim = extractor.extract([("", np.zeros(extractor.options.samples_per_frame, np.float32))])[0].shape[1]
        if dim != self.forward.inputs["input"]:
            raise UserError(f"the features have {dim} dimensions, the network of {path} takes {self.forward.inputs['input']}; name the "
                            "config of its training data with --feats-config.")
        self.log_priors = np.log(found.priors) if len(found.priors) else np.float32(0)
        self.tid2phone = found.transition_model.tid2phone
        self.words = SymbolTable.read(graph_dir / "words.txt")
        self.graph_dir = graph_dir
        self.decoder = read_decoder(graph_dir, found.transition_model.tid2pdf, decoding)
        self.endpointing = endpointing
        self.frame_shift = extractor.options.frame_shift / 1000 * subsampling

    def _check_ivectors(self, path: Path, ivectors: OnlineExtractor | None) -> None:
        found = {} if ivectors is None else {"ivector": ivectors.extractor.dim}
        wanted = {name: dim for name, dim in self.forward.inputs.items() if name != "input"}
        if wanted.keys() - {"ivector"}:
            raise UserError(f"{path} takes {' and '.join(wanted)}; networks with other inputs than features and i-vectors do not recognise "
                            "audio as it comes here.")
        if wanted != found:
            dims = [f"i-vectors of {one['ivector']} dimensions" if one else "no i-vectors" for one in (wanted, found)]
            raise UserError(f"{path} takes {dims[0]}, and there are {dims[1]}; name the directory of its own extractor.")


class Recognition:
    """One recording on its way through a recogniser: `accept` takes the next samples, `finish` ends it; both give what is new.

    That is each utterance that ended, and last what is known of the one that goes on, if any of it is searched. `speaker` is what earlier
    recordings told of the speaker for i-vectors, `cmvn_stats` for online CMVN; both go on to the next. With `decoder`, others may be on
    their way, in other threads.
    """

    def __init__(self, recogniser: Recogniser, speaker: SpeakerState | None = None, decoder: LatticeDecoder | None = None,
                 cmvn_stats: np.ndarray | None = None) -> None:
        from pykaldist.nnet.nnet3.stream import Nnet3Stream

        self._recogniser, self._decoder = recogniser, decoder or recogniser.decoder
        extractor = recogniser.extractor if decoder is None else Extractor(recogniser.extractor.options)  # which has buffers
        self._features, self._network = FeatureStream(extractor), Nnet3Stream(recogniser.forward, recogniser.frames_per_chunk)
        self._cmvn = None if recogniser.cmvn is None else recogniser.cmvn.stream(cmvn_stats)
        self._ivectors: IvectorStream | None = None
        if recogniser.ivectors is not None:
            self._ivectors = IvectorStream(recogniser.ivectors, speaker or recogniser.ivectors.new_speaker(),
                                           remembered=BACK * recogniser.forward.subsampling)
        self._weights: FrameWeights | None = None
        if recogniser.weighting is not None:
            self._weights = FrameWeights(recogniser.weighting, recogniser.tid2phone, recogniser.forward.subsampling)
        self._decoding: Decoding = self._decoder.begin()
        self._begin = 0  # the utterance's first frame

    def accept(self, samples: np.ndarray) -> list[Heard]:
        """Take the next samples, at the model's rate and in 16-bit scale; raises UserError where features or outputs are not finite."""
        feats = self._features.accept(samples)
        if not np.isfinite(feats).all():
            raise UserError("the audio gives features that are not finite; look at it.")
        changes = None if self._weights is None else self._weights.changes
        others = {} if self._ivectors is None else {"ivector": self._ivectors.accept(feats, changes)}
        normalised = feats if self._cmvn is None else self._cmvn.accept(feats)
        return self._advance(self._network.accept(normalised, **others))

    @property
    def cmvn_stats(self) -> np.ndarray | None:
        """What is known of the speaker for online CMVN, this recording included."""
        return None if self._cmvn is None else self._cmvn.heard

    def finish(self) -> list[Heard]:
        """End the recording: what is left of it."""
        changes = None if self._weights is None else self._weights.changes
        others = {} if self._ivectors is None else {"ivector": self._ivectors.finish(changes)}
        self._search(self._network.finish(**others))
        return self._ended()

    def _search(self, outputs: np.ndarray) -> None:
        self._decoding.advance(outputs - self._recogniser.log_priors)

    def _advance(self, outputs: np.ndarray) -> list[Heard]:
        if not len(outputs):
            return []
        own = self._recogniser
        self._search(outputs)
        path = self._decoding.best_path()
        if path is None:
            return self._ended()
        if self._weights is not None:
            self._weights.heard(path.transition_ids)
        if own.endpointing is not None and own.endpointing.detected(path, own.tid2phone, own.frame_shift):
            return self._ended()
        return [Heard([own.words.symbol(word) for word in path.words], *self._times())]

    def _ended(self) -> list[Heard]:
        """End the utterance, and begin the next; nothing where none of it was searched, or no path survived the beam."""
        own, times = self._recogniser, self._times()
        lattice = self._decoding.lattice()
        self._begin += self._decoding.frames
        self._decoding = self._decoder.begin()
        if own.weighting is not None:
            step = own.forward.subsampling
            self._weights = FrameWeights(own.weighting, own.tid2phone, step, self._begin * step, self._weights)
        if lattice is None:
            return []
        options = own.decoder.options  # of words that sound alike, the determinised lattice has the one that decoding's would have
        words = best_path(determinize(lattice, options.acwt, options.lattice_beam), options.acwt).words
        return [Heard([own.words.symbol(word) for word in words], *times, lattice)]

    def _times(self) -> tuple[float, float]:
        shift = self._recogniser.frame_shift
        return self._begin * shift, (self._begin + self._decoding.frames) * shift


class FirstUtterance:
    """Decodes recordings (samples) as they come to the lattice of their first utterance, which without endpointing is the whole."""

    def __init__(self, recogniser: Recogniser, chunk: int) -> None:
        self._recogniser, self._chunk = recogniser, chunk
        self.options, self.ivectors = recogniser.decoder.options, recogniser.ivectors
        self._speaker: SpeakerState | None = None  # that of the next recording
        self._cmvn_stats: np.ndarray | None = None
        self._told = False  # whether `new_speaker` says whose the recordings are; else each is another's

    def new_speaker(self) -> None:
        """The next recording is another speaker's."""
        self._speaker = None if self.ivectors is None else self.ivectors.new_speaker()
        self._cmvn_stats, self._told = None, True

    def decode(self, samples: np.ndarray) -> Lattice | None:
        """Decode a recording; None where no path survives the beam."""
        recognition = Recognition(self._recogniser, self._speaker, cmvn_stats=self._cmvn_stats)
        pieces = (samples[start:start + self._chunk] for start in range(0, len(samples), self._chunk))
        first = next((heard.lattice for piece in pieces for heard in recognition.accept(piece) if heard.lattice is not None), None)
        rest = recognition.finish()
        if self._told:
            self._cmvn_stats = recognition.cmvn_stats
        return rest[-1].lattice if first is None and rest else first


def recognise(recogniser: Recogniser, pieces: Iterable[np.ndarray]) -> Iterator[Heard]:
    """Recognise a recording that comes in pieces: partial results, and each utterance when it has ended."""
    recognition = Recognition(recogniser)
    for piece in pieces:
        yield from recognition.accept(piece)
    yield from recognition.finish()
