"""Lattices of transcripts: all ways to say a transcript that a model finds likely enough, with their times and costs.

They hold the alternative pronunciations of the words, and silences between words or none; chain training makes its numerators of them. The
graph of a transcript has the probabilities of the lexicon and of the transitions; the decoder goes through it, and what it finds within the
beam is determinised on phones and words, so that the lattice has each sequence of phones once, in its best times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import AcousticModel, GmmModel, load_acoustic_model
from pykaldist.decode.chunks import Nnet3Options
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, write_lattices
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.graphs import Lexicon
from pykaldist.hmm.chain.den_graph import graph_of_phones
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.tables import write_int_vectors
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import option
from pykaldist.progress import progress

_NARROW = 0.1  # a lattice beam, where only the best path is wanted
_LEFT_OUT = ("WARNING: {}: no path through its transcript within the beam; left out (is the transcript right, or the utterance too "
             "short for it?)")


@dataclass
class TranscriptLatticeOptions:
    """Options of `TranscriptLattices`."""

    acoustic_scale: float = option(0.1, "scale of acoustic log-likelihoods")
    transition_scale: float = option(1.0, "scale of transition probabilities")
    self_loop_scale: float = option(0.1, "scale of self-loop probabilities")
    beam: float = option(20.0, "beam of the search, and of the lattice")
    retry_beam: float = option(0.0, "beam where an utterance does not reach its end with --beam; 0: it is left out then")
    max_active: int = option(7000, "about the largest number of states active in a frame")
    boost_silence: float = option(1.0, "factor on the likelihoods of optional silence")

    def __post_init__(self) -> None:
        for name in ("acoustic_scale", "beam", "boost_silence"):
            if not getattr(self, name) > 0:
                raise UserError(f"--{name.replace('_', '-')} must be above 0, found {getattr(self, name):g}.")


class TranscriptLattices:
    """Makes the lattices of utterances' transcripts with the model in `model_dir`, a GMM with or without fMLLR, or a network.

    `nnet3`: an nnet3 network's i-vectors and chunks. Networks of jobs number `job` take a machine's devices in turn.
    """

    def __init__(self, lang: LangDir, model_dir: Path, options: TranscriptLatticeOptions, model: Path | None = None,
                 transform_dir: Path | None = None, device: str = "cpu", nnet3: Nnet3Options | None = None, job: int = 1) -> None:
        check_phones(lang, model_dir)
        self.lang, self.options = lang, options
        self.lexicon = Lexicon(lang.file("L.fst"), lang.disambig_phones)
        self.tree, self.transitions = read_tree(model_dir / "tree"), read_transition_model(model or model_dir / "final.mdl")
        self._acoustic = load_acoustic_model(model_dir, model, transform_dir, ForwardOptions(device=device), job, nnet3=nnet3)
        silent = self.transitions.tid2phone == lang.optional_silence
        self._boost = np.zeros(self.transitions.num_pdfs, np.float32)
        self._boost[self.transitions.tid2pdf[silent]] = np.log(options.boost_silence)

    def lattice(self, data: DataDir, utt: str) -> Lattice | None:
        """The lattice of an utterance's transcript; None where no path reaches its end within the beams."""
        found = self._search(data, utt, self.options.beam)
        return None if found is None else determinized_on_phones(found, self.transitions, self.options)

    def alignment(self, data: DataDir, utt: str) -> np.ndarray | None:
        """The best path of an utterance's transcript as transition_ids (int32), one for each output of the model; None as in `lattice`."""
        found = self._search(data, utt, _NARROW)
        return None if found is None else self.best(found)

    def best(self, lattice: Lattice) -> np.ndarray:
        """The transition_ids of a lattice's best path, int32."""
        return np.asarray(best_path(lattice, self.options.acoustic_scale).transition_ids, np.int32)

    def _search(self, data: DataDir, utt: str, lattice_beam: float) -> Lattice | None:
        """The decoder's lattice of a transcript."""
        options = self.options
        phones = self.lexicon.transducer(self.lang.word_ids(data.text[utt])[0])
        graph = graph_of_phones(phones, self.tree, self.transitions, options.transition_scale, options.self_loop_scale)
        tids = graph.ilabel[graph.ilabel > 0]
        pdfs, column = np.unique(self.transitions.tid2pdf[tids], return_inverse=True)
        tid2column = np.zeros_like(self.transitions.tid2pdf)
        tid2column[tids] = column
        scores = _loglikes(self._acoustic, self._acoustic.features(data, utt), pdfs) + self._boost[pdfs]
        for beam in (options.beam, options.retry_beam):
            if beam > 0:
                decoding = DecoderOptions(beam, min(beam, lattice_beam), options.max_active, acwt=options.acoustic_scale)
                found = LatticeDecoder(graph, tid2column, decoding).decode(scores)
                if found is not None and found.reached_final:
                    return found
        return None


def _loglikes(model: AcousticModel, feats: np.ndarray, pdfs: np.ndarray) -> np.ndarray:
    return model.loglikes(feats, pdfs) if isinstance(model, GmmModel) else model.loglikes(feats)[:, pdfs]


def determinized_on_phones(lattice: Lattice, model: TransitionModel, options: TranscriptLatticeOptions) -> Lattice:
    """A lattice of the decoder with each sequence of phones and words once, in its best times."""
    tid = np.zeros(lattice.num_arcs, np.int64)
    has = np.diff(lattice.string[: lattice.num_arcs + 1]) > 0
    tid[has] = lattice.transition_ids[lattice.string[:-1][: lattice.num_arcs][has]]
    begins = (tid > 0) & (model.tid2hmm_state[tid] == 0) & ~model.tid_is_self_loop[tid]
    base = int(lattice.word.max(initial=0)) + 1
    pairs, label = np.unique(np.append(0, np.where(begins, model.tid2phone[tid], 0).astype(np.int64) * base + lattice.word),
                             return_inverse=True)
    found = determinize(replace(lattice, word=label.reshape(-1)[1:].astype(np.int32)), options.acoustic_scale, options.beam)
    return replace(found, word=(pairs[found.word] % base).astype(np.int32))


def write_transcript_lattices(data: DataDir, maker: TranscriptLattices, out: Path, job: int, nj: int, alignments: bool = False) -> str:
    """Write the lattices of one of `nj` jobs into `out`/lat.<job>.gz, and with `alignments` their best paths into ali.<job>.gz.

    Returns a line that says what came out.
    """
    best: list[tuple[str, np.ndarray]] = []

    def lattices() -> Iterator[tuple[str, Lattice]]:
        for utt in progress(data.part(job, nj), "lattices of transcripts", unit="utt"):
            found = maker.lattice(data, utt)
            if found is None:
                print(_LEFT_OUT.format(utt))
                continue
            if alignments:
                best.append((utt, maker.best(found)))
            yield utt, found

    done = write_lattices(out / f"lat.{job}.gz", lattices())
    if alignments:
        write_int_vectors(out / f"ali.{job}.gz", best)
    return f"{done} of {len(data.part(job, nj))}"


def write_alignments(data: DataDir, maker: TranscriptLattices, out: Path, job: int, nj: int) -> str:
    """Write the alignments of one of `nj` jobs into `out`/ali.<job>.gz; returns a line that says what came out."""
    best: list[tuple[str, np.ndarray]] = []
    for utt in progress(data.part(job, nj), "aligning", unit="utt"):
        found = maker.alignment(data, utt)
        if found is None:
            print(_LEFT_OUT.format(utt))
        else:
            best.append((utt, found))
    write_int_vectors(out / f"ali.{job}.gz", best)
    return f"{len(best)} of {len(data.part(job, nj))}"
