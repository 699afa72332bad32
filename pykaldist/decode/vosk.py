"""Vosk model directories: a chain model, its graph and its i-vector extractor as the Vosk recogniser reads them.

Vosk computes MFCCs as conf/mfcc.conf says and gives them to the network as they are (see `unnormalised`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.decode.lookahead_graph import FILES as LOOKAHEAD_FILES
from pykaldist.decode.lookahead_graph import LookaheadGraph
from pykaldist.decode.pairs import check_graph
from pykaldist.decode.unnormalised import for_plain_features
from pykaldist.errors import UserError
from pykaldist.feats.extract import MfccOptions
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.conf import format_conf, read_conf
from pykaldist.io.fst import Fst
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.options import option

FOLDERS = ("am", "conf", "graph", "ivector")
IVECTOR_FILES = ("final.dubm", "final.ie", "final.mat", "global_cmvn.stats", "online_cmvn.conf")


@dataclass
class VoskOptions:
    """The options of the search that a Vosk model directory carries, and of its features."""

    mfcc_config: str = option("conf/mfcc_hires.conf", "options of the MFCCs, as in training")
    beam: float = option(15.0, "beam of the search")
    lattice_beam: float = option(8.0, "beam of its lattices")
    max_active: int = option(7000, "about the largest number of states active in a frame")
    min_active: int = option(200, "states kept active in a frame even outside the beam")
    acwt: float = option(1.0, "scale of the log-likelihoods; 1 for chain models")

    def check(self) -> None:
        """Check the options; raises UserError for a value that cannot work."""
        if not (min(self.beam, self.lattice_beam, self.acwt) > 0 and 0 <= self.min_active < self.max_active):
            raise UserError(f"expected --beam ({self.beam:g}), --lattice-beam ({self.lattice_beam:g}) and --acwt ({self.acwt:g}) above 0, "
                            f"and --min-active ({self.min_active}) from 0 to below --max-active ({self.max_active}).")


def export_vosk(model_dir: Path, graph_dir: Path, target: Path, extractor: Path | None, mean_data: Path | None,
                options: VoskOptions) -> None:
    """Write the Vosk model directory `target` of the nnet3 model in `model_dir` and its graph.

    `extractor` is the directory of the i-vector extractor of a network that takes i-vectors, `mean_data` the training data of a network
    that takes features less their speakers' means. Folders am, conf, graph and ivector of an earlier export are replaced. Raises UserError
    where the parts do not fit, and for a model whose features Vosk cannot make.
    """
    from pykaldist.nnet.nnet3.run import Nnet3Forward  # with PyTorch, for which no help should wait

    options.check()
    check_graph(graph_dir, model_dir / "final.mdl")
    model = Nnet3Model.read(model_dir / "final.mdl")
    mfcc = read_conf(MfccOptions, options.mfcc_config)
    if model.nnet.dim("input") != mfcc.num_ceps:
        raise UserError(f"{options.mfcc_config} makes {mfcc.num_ceps} MFCCs, the network of {model_dir} takes {model.nnet.dim('input')} "
                        "dimensions; name the config of its training data with --mfcc-config.")
    model.nnet = for_plain_features(model_dir, model.nnet, mean_data)
    Nnet3Forward(model.nnet, subsampling=read_subsampling(model_dir))  # it can be computed: Vosk itself takes what has no statistics
    _check_ivectors(model_dir, model, extractor)
    graph_files = _graph_files(graph_dir, model)
    silence = (graph_dir / "phones/silence.csl").read_text(encoding="utf-8").strip()

    target.mkdir(parents=True, exist_ok=True)
    others = sorted(path.name for path in target.iterdir() if path.name not in FOLDERS)
    if others:
        raise UserError(f"{target} has {others[0]}, which is no part of a Vosk model; give a directory that is empty or not there.")
    for folder in FOLDERS:
        shutil.rmtree(target / folder, ignore_errors=True)
    for path in graph_files:
        copy_file(path, target / "graph" / path.relative_to(graph_dir))
    if extractor is not None:
        for name in IVECTOR_FILES:
            copy_file(extractor / name, target / "ivector" / name)
        words = (extractor / "splice_opts").read_text(encoding="utf-8").split()
        write_text(target / "ivector/splice.conf", "".join(f"{word}\n" for word in words))
    own = [*format_conf(replace(mfcc, dither=0.0)).split(), f"--dither={mfcc.dither:g}"]  # Kaldi's default is 1
    write_text(target / "conf/mfcc.conf", "".join(f"{word}\n" for word in own))
    settings = {"min-active": options.min_active, "max-active": options.max_active, "beam": options.beam,
                "lattice-beam": options.lattice_beam, "acoustic-scale": options.acwt,
                "frame-subsampling-factor": read_subsampling(model_dir), "endpoint.silence-phones": silence}
    write_text(target / "conf/model.conf", "".join(f"--{name}={value}\n" for name, value in settings.items()))
    model.write(target / "am/final.mdl")


def _check_ivectors(model_dir: Path, model: Nnet3Model, extractor: Path | None) -> None:
    takes = "ivector" in model.nnet.nodes
    if takes and extractor is None:
        raise UserError(f"the network of {model_dir} takes i-vectors; name the directory of their extractor with --extractor.")
    if extractor is None:
        return
    if not takes:
        raise UserError(f"the network of {model_dir} takes no i-vectors; leave out --extractor.")
    for name in (*IVECTOR_FILES, "splice_opts"):
        if not (extractor / name).is_file():
            raise UserError(f"{extractor}/{name} does not exist; name the directory of an i-vector extractor (--extractor).")
    found, wanted = IvectorExtractor.read(extractor / "final.ie").dim, model.nnet.dim("ivector")
    if found != wanted:
        raise UserError(f"{extractor}/final.ie makes i-vectors of dimension {found}, the network of {model_dir} takes {wanted}; name the "
                        "extractor that it was trained with (--extractor).")


def _graph_files(graph_dir: Path, model: Nnet3Model) -> list[Path]:
    """The files of a graph directory that go into the export."""
    lookahead = [graph_dir / name for name in LOOKAHEAD_FILES]
    fsts = lookahead if all(path.is_file() for path in lookahead) else [graph_dir / "HCLG.fst"]
    needed = [*fsts, graph_dir / "words.txt", graph_dir / "phones/silence.csl"]
    for path in needed:
        if not path.is_file():
            raise UserError(f"{path} does not exist; make the graph with utils/mkgraph.sh, or utils/mkgraph_lookahead.sh.")
    if fsts == lookahead:
        LookaheadGraph.read(graph_dir, model.transition_model.tid2pdf)  # it fits the model
    else:
        fst, ids = Fst.read(fsts[0]), len(model.transition_model.tid2pdf) - 1
        if fst.num_arcs and fst.ilabel.max() > ids:
            raise UserError(f"{fsts[0]} has transition-ids up to {fst.ilabel.max()} where the model has {ids}; make the graph for this "
                            "model with utils/mkgraph.sh.")
    boundary = graph_dir / "phones/word_boundary.int"  # phones without places in words have none, and Vosk then no times of words
    return [*fsts, graph_dir / "words.txt", *([boundary] if boundary.is_file() else [])]
