"""Alignment of a data directory with a network: the best path of each utterance through its training graph.

Graphs and search are those of GMM systems (hmm/alignments/align.py); the scores are the network's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import NETWORKS, AcousticModel, load_acoustic_model
from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import AlignOptions, align_scored
from pykaldist.hmm.alignments.alignment_dir import clear, record
from pykaldist.hmm.alignments.graphs import GraphCompiler
from pykaldist.hmm.gmm.engine import Engine, Scorer
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.training.experiment import aligned_line, finish, load_corpus
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.progress import Progress


def align_nnet_dir(data_dir: Path, lang_dir: Path, src: Path, ali: Path, options: AlignOptions, forwarding: ForwardOptions, nj: int = 1,
                   log: Callable[[str], None] = print) -> str:
    """Align a data directory with the network in `src`, into `nj` archives; returns a line that says what came out.

    `forwarding`: where the network computes, and how utterances go through it. Raises UserError where `src` has no network, or more than
    a tenth of the utterances cannot be aligned.
    """
    if src.resolve() == ali.resolve():
        raise UserError(f"{ali} is both source and target; align into another directory.")
    if not any((src / name).is_file() for name in NETWORKS):
        raise UserError(f"{src} has no network ({' or '.join(NETWORKS)}); steps/align_si.sh aligns with GMMs.")
    provenance.check(src, inputs=False)
    data, lang = DataDir(data_dir), LangDir(lang_dir)
    own = threading.local()  # a network's buffers are of one thread

    def network() -> AcousticModel:
        if not hasattr(own, "model"):
            own.model = load_acoustic_model(src, forwarding=forwarding)
        model: AcousticModel = own.model
        return model

    network().features(data, data.utterances()[0])  # which raises where its dimension is another, before all are read
    check_phones(lang, src)
    transition_model, tree = read_transition_model(src / "final.mdl"), read_tree(src / "tree")
    compiler = GraphCompiler(lang, tree, transition_model)
    corpus = load_corpus(data, lang, FeaturePipeline.from_dir(src), nj, log, ali)
    clear(ali)
    graphs = compiler.compile_all(corpus.words, ali)

    def scorer(feats: np.ndarray) -> Scorer:
        return lambda first, end, pdfs: np.ascontiguousarray(network().loglikes(feats[first:end])[:, pdfs])

    with Progress("aligning", len(corpus), "utt") as bar:
        alignments = align_scored(corpus, graphs, transition_model, scorer, options, Engine(min(nj, os.cpu_count() or 1)), bar)
    alignments.check(corpus, graphs)
    for name in ("tree", "final.mdl", "cmvn_opts", "delta_opts"):
        if (src / name).is_file():
            copy_file(src / name, ali / name)
    finish(ali, lang, data, corpus, alignments, nj, log)
    record(ali, "steps/nnet/align.sh", data)
    return aligned_line(corpus, alignments)
