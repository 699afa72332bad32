"""Vosk model directories: a chain model, its graph and its i-vector extractor as the Vosk recogniser reads them.

Vosk computes MFCCs as conf/mfcc.conf says and gives them to the network as they are. A network that was trained on features less each
speaker's mean gets a fixed bias in front, minus the mean of its training data, in place of the speakers' own.
"""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.decode.pairs import check_graph
from pykaldist.errors import UserError
from pykaldist.feats.extract import MfccOptions
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.conf import format_conf, read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor, parse_node
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model
from pykaldist.options import option

FOLDERS = ("am", "conf", "graph", "ivector")
LOOKAHEAD = ("HCLr.fst", "Gr.fst", "disambig_tid.int")  # a graph composed with its language model while decoding
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


def with_mean_subtracted(nnet: Nnet3, mean: np.ndarray) -> Nnet3:
    """Make the network that subtracts `mean` from its input `input`, by a fixed bias in front of all that takes it."""
    name = "input-mean"
    if name in nnet.nodes:
        raise UserError(f"the network has a node {name}, which subtracts a mean already.")
    nodes = {}
    for node in nnet.nodes.values():
        nodes[node.name] = replace(node, input=_renamed(node.input, "input", name)) if node.input is not None else copy.copy(node)
        if node.kind == "dim-range-node" and node.values["input-node"] == "input":
            nodes[node.name].values = {**node.values, "input-node": name}
        if node.name == "input":
            nodes[name] = parse_node(f"component-node name={name} component={name} input=input")
    bias = Nnet3Component(name, "FixedBiasComponent", {"Bias": -np.asarray(mean, np.float32)})
    return Nnet3(nodes, {name: bias, **nnet.components})


def _renamed(descriptor: Descriptor, node: str, by: str) -> Descriptor:
    """A descriptor that takes the node `by` where it took `node`."""
    if not descriptor.function:
        return replace(descriptor, node=by) if descriptor.node == node else descriptor
    return replace(descriptor, parts=tuple(_renamed(part, node, by) for part in descriptor.parts))


def mean_of(data: DataDir) -> np.ndarray:
    """The mean of all frames of a data directory, from its speakers' CMVN statistics."""
    cmvn = data.cmvn
    missing = [speaker for speaker in data.spk2utt if speaker not in cmvn]
    if missing or not data.spk2utt:
        raise UserError(f"{data.path}/cmvn.scp has no statistics of {missing[0] if missing else 'any speaker'}; run "
                        f"steps/compute_cmvn_stats.sh {data.path} again.")
    first = np.stack([cmvn[speaker][0] for speaker in data.spk2utt]).sum(0, dtype=np.float64)
    return first[:-1] / first[-1]


def export_vosk(model_dir: Path, graph_dir: Path, target: Path, extractor: Path | None, mean_data: Path | None,
                options: VoskOptions) -> None:
    """Write the Vosk model directory `target` of the nnet3 model in `model_dir` and its graph.

    `extractor` is the directory of the i-vector extractor of a network that takes i-vectors, `mean_data` the training data of a network
    that takes features less their speakers' means. Folders am, conf, graph and ivector of an earlier export are replaced. Raises UserError
    where the parts do not fit, and for a model whose features Vosk cannot make.
    """
    options.check()
    check_graph(graph_dir, model_dir / "final.mdl")
    model = Nnet3Model.read(model_dir / "final.mdl")
    mfcc = read_conf(MfccOptions, options.mfcc_config)
    _check_features(model_dir, model, mfcc, mean_data, options)
    _check_ivectors(model_dir, model, extractor)
    graph_files = _graph_files(graph_dir, model)
    if mean_data is not None:
        mean = mean_of(DataDir(mean_data))
        if len(mean) != model.nnet.dim("input"):
            raise UserError(f"{mean_data}/cmvn.scp has means of dimension {len(mean)}, the network of {model_dir} takes "
                            f"{model.nnet.dim('input')}; name the data that it was trained on.")
        model.nnet = with_mean_subtracted(model.nnet, mean)
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


def _check_features(model_dir: Path, model: Nnet3Model, mfcc: MfccOptions, mean_data: Path | None, options: VoskOptions) -> None:
    pipeline = FeaturePipeline.from_dir(model_dir, nnet3=True)
    cmvn = pipeline.cmvn
    if pipeline.lda is not None or pipeline.deltas.delta_order or cmvn.norm_vars or cmvn.sliding:
        raise UserError(f"{model_dir} takes features with deltas, final.mat, variance or sliding normalisation, none of which Vosk makes; "
                        "train a network on MFCCs as they are.")
    if cmvn.norm_means and mean_data is None:
        raise UserError(f"{model_dir}/cmvn_opts says that the network takes features less each speaker's mean, and Vosk subtracts nothing "
                        "(nearly every word would be wrong); name its training data with --mean-of, whose mean the export then subtracts, "
                        "or train without CMVN.")
    if mean_data is not None and not cmvn.norm_means:
        raise UserError(f"{model_dir} takes MFCCs as they are, without CMVN; leave out --mean-of.")
    if model.nnet.dim("input") != mfcc.num_ceps:
        raise UserError(f"{options.mfcc_config} makes {mfcc.num_ceps} MFCCs, the network of {model_dir} takes {model.nnet.dim('input')} "
                        "dimensions; name the config of its training data with --mfcc-config.")


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
            raise UserError(f"{extractor}/{name} does not exist; name the directory of an i-vector extractor.")


def _graph_files(graph_dir: Path, model: Nnet3Model) -> list[Path]:
    """The files of a graph directory that go into the export."""
    lookahead = [graph_dir / name for name in LOOKAHEAD]
    fsts = lookahead if all(path.is_file() for path in lookahead) else [graph_dir / "HCLG.fst"]
    needed = [*fsts, graph_dir / "words.txt", graph_dir / "phones/silence.csl"]
    for path in needed:
        if not path.is_file():
            raise UserError(f"{path} does not exist; make the graph with utils/mkgraph.sh.")
    if fsts != lookahead:
        fst, ids = Fst.read(fsts[0]), len(model.transition_model.tid2pdf) - 1
        if fst.num_arcs and fst.ilabel.max() > ids:
            raise UserError(f"{fsts[0]} has transition-ids up to {fst.ilabel.max()} where the model has {ids}; make the graph for this "
                            "model with utils/mkgraph.sh.")
    boundary = graph_dir / "phones/word_boundary.int"  # phones without places in words have none, and Vosk then no times of words
    return [*fsts, graph_dir / "words.txt", *([boundary] if boundary.is_file() else [])]
