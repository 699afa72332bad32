"""What belongs to a model and stands elsewhere in its recipe: language directory, decoding graph, features' options, the best scales.

A model is in `exp/<name>` of a recipe's folder, its language directory in `data/lang`, the options of its features in `conf/mfcc.conf`. Its
graph is the one that its decode directories were made with, which also say the best weight of the language model. Who has any of these
elsewhere names them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.decode.lookahead_graph import LEXICON, graph_files
from pykaldist.decode.pairs import model_facts
from pykaldist.errors import UserError
from pykaldist.feats.extract import KINDS
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io import provenance
from pykaldist.io.lang import LangDir
from pykaldist.io.schema import read_json
from pykaldist.report.table import System, scored

ACWT, CHAIN_ACWT = 0.083333, 1.0  # of the search
CHAIN_FACTOR = 10.0  # --post-decode-acwt of chain models, by which a weight of 10 is their scale of 1
DEFAULT_LMWT = 12  # one over ACWT
GRAPHS = ("HCLG.fst", LEXICON)  # of graph directories


@dataclass
class Trained:
    """What is needed of a network's config.json."""

    store: str


@dataclass
class Origin:
    """What is needed of a frame store's provenance: data directory and alignment, empty where there was none."""

    data: str
    ali: str = ""


@dataclass
class Packed:
    """What is needed of a frame store's manifest."""

    provenance: Origin


@dataclass
class Scales:
    """How the words of a lattice are chosen: scale of its acoustic costs, penalty of a word, and who says so."""

    acoustic: float
    penalty: float
    source: str

    def __str__(self) -> str:
        return f"{self.source} (acoustic scale {self.acoustic:.3g}, penalty {self.penalty:g})"


def recipe_of(model_dir: Path) -> Path:
    """The recipe's folder of a model in `exp/<name>`, or deeper: the folder that holds `exp`; else the folder above the model's."""
    where = model_dir.resolve()
    return next((folder.parent for folder in where.parents if folder.name == "exp"), where.parent)


def lang_of(model_dir: Path, named: Path | None) -> LangDir:
    """The language directory `named`, or the model's own; raises UserError where there is none."""
    path = named or recipe_of(model_dir) / "data/lang"
    if not (path / "phones.txt").is_file():
        cure = "give a language directory" if named else "name the language directory that the model was trained with, with --lang"
        raise UserError(f"{path} is no language directory (it has no phones.txt); {cure}.")
    return LangDir(path)


def feats_config_of(model_dir: Path, kind: str, named: str | None) -> str:
    """The file with the options of a model's features: `named`, or conf/<kind>.conf of its recipe; raises UserError where there is none."""
    path = Path(named) if named else recipe_of(model_dir) / f"conf/{kind}.conf"
    if not path.is_file():
        raise UserError(f"{path} does not exist; name the file with the options of the model's features with --feats-config.")
    return str(path)


def features_of(model_dir: Path, kind: str | None, config: str | None, fits: Callable[[str, str], bool]) -> tuple[str, str]:
    """The kind of a model's features and the file with their options: the first of its recipe that `fits` the model.

    `kind` and `config` are what was named of both. Raises UserError where none fits, or what was named is not there.
    """
    if config is not None:
        return kind or "mfcc", feats_config_of(model_dir, kind or "mfcc", config)
    kinds, folder = (kind,) if kind else tuple(KINDS), recipe_of(model_dir) / "conf"
    tried = [(one, str(path)) for one in kinds for path in sorted(folder.glob(f"{one}*.conf"))]
    if not tried:
        raise UserError(f"{folder} has no options of features ({', '.join(f'{one}.conf' for one in kinds)}); name their file with "
                        "--feats-config, and their kind with --kind.")
    found = next((one for one in tried if fits(*one)), None)
    if found is None:
        raise UserError(f"no features that {folder} has options for ({', '.join(Path(path).name for _, path in tried)}) fit the model of "
                        f"{model_dir}; name the file of the right ones with --feats-config, and their kind with --kind.")
    return found


def graph_of(model_dir: Path, named: str | None) -> Path:
    """The directory of a model's decoding graph: `named`, or the one that the model was decoded with, or any of its recipe that fits.

    Raises UserError where there is none.
    """
    if named:
        if not all(path.is_file() for path in graph_files(named)):
            raise UserError(f"{named} has no HCLG.fst; name a directory that utils/mkgraph.sh or utils/mkgraph_lookahead.sh has made.")
        return Path(named)
    facts = model_facts(model_dir / "final.mdl")
    for folder in dict.fromkeys(_graphs(model_dir)):
        try:
            provenance.compare(folder, facts, str(model_dir), "")
        except UserError:
            continue
        return folder
    raise UserError(f"no decoding graph below {recipe_of(model_dir) / 'exp'} is for the model of {model_dir}; make one with "
                    "utils/mkgraph.sh, or name its directory with --graph.")


def _graphs(model_dir: Path) -> Iterator[Path]:
    """Directories of graphs, those of the model's decode directories first."""
    for decode in sorted(model_dir.glob("decode*")):
        known = provenance.read(decode)
        for name in known.inputs if known else ():
            path = Path(os.path.normpath(decode.resolve() / name))
            if path.name in GRAPHS and path.is_file():
                yield path.parent
    for folder in (model_dir, recipe_of(model_dir) / "exp"):
        yield from sorted(path.parent for name in GRAPHS for path in folder.glob(f"**/*graph*/{name}"))


def acwt_of(model_dir: Path, named: float | None) -> float:
    """The scale of the log-likelihoods in the search: `named`, or what is usual for the model."""
    return named if named is not None else CHAIN_ACWT if read_subsampling(model_dir) > 1 else ACWT


def scales_of(model_dir: Path, lmwt: float | None, penalty: float | None) -> Scales:
    """How a model's words are chosen: by what was named, else as its scored decode directories say is best, else by the usual weight."""
    systems: list[System] = scored(model_dir)
    best, weight, added, source = next(iter(systems), None), float(DEFAULT_LMWT), 0.0, "the default"
    if best is not None:
        weight, added, source = best.lmwt, best.wip, f"the scoring of {best.decode_dir}"
    chain = read_subsampling(model_dir) > 1
    if best is None and chain:
        weight = CHAIN_FACTOR
    if lmwt is not None:
        weight, source = lmwt, "--lmwt"
    return Scales((CHAIN_FACTOR if chain else 1.0) / weight, added if penalty is None else penalty, source)


def store_origin(model_dir: Path, cure: str) -> Origin | None:
    """Of what a network's frame store was made, as paths that exist wherever the recipe was run from; None where that is not on record."""
    config = model_dir / "config.json"
    if not config.is_file():
        return None
    manifest = in_recipe(model_dir, read_json(config, Trained, cure, extra=True).store) / "train/manifest.json"
    if not manifest.is_file():
        return None
    found = read_json(manifest, Packed, cure, extra=True).provenance
    return Origin(*(str(in_recipe(model_dir, path)) if path else "" for path in (found.data, found.ali)))


def in_recipe(model_dir: Path, path: str) -> Path:
    """A path that a recipe's stage has put on record: relative to the recipe's folder, else as it stands."""
    own = recipe_of(model_dir) / path
    return own if own.exists() else Path(path)


def mean_data_of(model_dir: Path, named: str | None) -> Path | None:
    """The training data of a network whose features are less each speaker's mean: `named`, or its store's; None where it needs none."""
    if named:
        return Path(named)
    if not FeaturePipeline.from_dir(model_dir, nnet3=True).cmvn.norm_means:
        return None
    origin = store_origin(model_dir, "name the training data with --mean-of")
    return Path(origin.data) if origin and (Path(origin.data) / "cmvn.scp").is_file() else None


def extractor_of(model_dir: Path, dim: int, named: str | None) -> Path | None:
    """The directory of the i-vector extractor of a network that takes i-vectors of `dim` dimensions: `named`, or its recipe's.

    None where it takes none and none is named. Raises UserError where there is not exactly one.
    """
    if named or not dim:
        return Path(named) if named else None
    from pykaldist.hmm.ivector.extractor import IvectorExtractor

    found = [path.parent for path in sorted((recipe_of(model_dir) / "exp").glob("**/final.ie")) if IvectorExtractor.read(path).dim == dim]
    if len(found) != 1:
        raise UserError(f"{model_dir} takes i-vectors of {dim} dimensions, and its recipe has {len(found)} extractors of such; name the "
                        "directory of its own with --extractor.")
    return found[0]
