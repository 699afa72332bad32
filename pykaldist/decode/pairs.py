"""Which graph, model, lattices and word list belong together: by what `inputs.json` of their folders says (io/provenance.py).

A graph's input labels are a model's transition-ids (or a CTC network's outputs), a lattice's word numbers those of the graph's words.txt.
With a model of as many pdfs, or another list of words, everything can be read and is wrong.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pykaldist.errors import DECODING
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io import provenance
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.provenance import PathLike

WORDS, TRANSITIONS, TREE, TOKENS = "words", "transition-ids", "tree", "tokens"  # names of facts
LANG_FILES = ("L_disambig.fst", "G.fst", "words.txt", "phones.txt", "phones/disambig.int")


def transition_facts(model: TransitionModel) -> dict[str, str]:
    """What a transition model's ids mean: phone, HMM state, pdf and destination of each; probabilities do not count."""
    digest = hashlib.blake2b(digest_size=16)
    for column in (model.tid2phone, model.tid2hmm_state, model.tid2pdf, model.tid2destination):
        digest.update(np.ascontiguousarray(column, np.int32).tobytes())
    return {TRANSITIONS: digest.hexdigest()}


def tree_facts(tree: ContextDependency) -> dict[str, str]:
    """What a tree says, in whatever form its file is."""
    stream = io.BytesIO()
    tree.write(KaldiWriter(stream))
    return {TREE: hashlib.blake2b(stream.getvalue(), digest_size=16).hexdigest()}


def token_facts(model_dir: PathLike) -> dict[str, str]:
    """What the outputs of a network trained with CTC stand for."""
    return {TOKENS: provenance.checksum(Path(model_dir) / "tokens.txt")}


def model_facts(model: Path) -> dict[str, str]:
    """What the ids of a model mean to a graph; `model` is its final.mdl, or a file in its place."""
    if (model.parent / "tokens.txt").is_file():
        return token_facts(model.parent)
    facts = transition_facts(read_transition_model(model)) if model.is_file() else {}
    return {**facts, **(tree_facts(read_tree(model.parent / "tree")) if (model.parent / "tree").is_file() else {})}


def word_facts(folder: PathLike) -> dict[str, str]:
    """What the word numbers of a language or graph directory stand for."""
    return {WORDS: provenance.checksum(Path(folder) / "words.txt")}


def check_graph(graph_dir: PathLike, model: Path) -> None:
    """Check that a graph is as it was made, of what it was made, and for a model like `model` (final.mdl, or a file in its place).

    Raises UserError that names the file which has changed, or the two that do not belong together.
    """
    provenance.check(graph_dir)
    provenance.check(model.parent, inputs=False)
    cure = f"make a graph for {model.parent} with utils/mkgraph.sh, and decode with it"
    provenance.compare(graph_dir, model_facts(model), str(model), cure)


def record_decoding(decode_dir: PathLike, graph_dir: PathLike, model: Path, more: Iterable[PathLike] = ()) -> None:
    """Leave in a decode directory which graph, model and words its lattices are of."""
    graph = Path(graph_dir)
    files = [*(graph / name for name in ("HCLG.fst", "HCLr.fst", "Gr.fst", "words.txt")), *_of_model(model), *more]
    provenance.record(decode_dir, "steps/decode.sh", files,
                      facts={**word_facts(graph), **model_facts(model)})


def record_rescoring(decode_dir: PathLike, lattice_dir: PathLike, model: Path) -> None:
    """Leave in a decode directory that its lattices are those of another, with the scores of `model`."""
    before = provenance.read(lattice_dir)
    provenance.record(decode_dir, "steps/decode_fmllr.sh", _of_model(model), facts=before.facts if before else model_facts(model),
                      sources=[lattice_dir])


def record_lm_rescoring(decode_dir: PathLike, lattice_dir: PathLike, models: Iterable[PathLike]) -> None:
    """Leave in a decode directory that its lattices are those of another, with the scores of language models."""
    before = provenance.read(lattice_dir)
    provenance.record(decode_dir, "steps/lmrescore.sh", models, facts=before.facts if before else None, sources=[lattice_dir])


def _of_model(model: Path) -> list[Path]:
    """The files of a model that lattices depend on."""
    return [model, *(model.parent / name for name in ("final.pt", "final.nnet"))]


def check_decoding(decode_dir: PathLike, lang: PathLike | None = None, model: Path | None = None) -> None:
    """Check that the graph and the model of a decode directory are as they were, and that `lang` has its words, `model` its ids.

    Raises UserError that names the file which has changed, or the two that do not belong together.
    """
    provenance.check(decode_dir)
    if lang is not None:
        provenance.compare(decode_dir, word_facts(lang), f"{lang}/words.txt", "use the graph directory that it was decoded with")
    if model is not None:
        provenance.compare(decode_dir, model_facts(model), str(model), f"decode again with this model ({DECODING})")
