"""The corpora of a study: prepared folders of recipes, or Kaldi's, from which stores of frames and test sets are made.

A JSON file says of each corpus what is where in its folder, which the user names:

    {"an4": {"train": "data/train", "ali": "tri3_ali", "graph": "graph_tri3", "test": "data/test", ...}}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import copy_file
from pykaldist.io.schema import read_json_map
from pykaldist.study.verbs import run_verbs


@dataclass(frozen=True)
class Corpus:
    """What a corpus's folder has, paths relative to it, and the options of packing and scoring.

    Without `train_feats` and `test_feats`, archives, the data directories have features of their own. `cv_utts` lists the held-out
    utterances. The language model weight is fixed, for the best one of each training would be chosen by the test set. Networks that start
    from others with lattices need `lang`. Of chain models `tree` and `configs` are the tree and the network, and `chain` has those options
    of steps/nnet3/chain/train.py that all trainings have; the options of cells are those of that script, and nothing is packed.
    """

    about: str
    train: str
    test: str
    ali: str
    graph: str
    decode: str
    score: str
    pack: str = ""
    train_feats: str = ""
    test_feats: str = ""
    cv_utts: str = ""
    lang: str = ""
    tree: str = ""
    configs: str = ""
    chain: str = ""


@dataclass(frozen=True)
class Prepared:
    """A corpus that is ready: the folder that it was made in, its store, its test set, and what decodes it."""

    spec: Corpus
    source: Path
    store: Path
    test: Path
    graph: Path


def read_corpora(path: Path) -> dict[str, Corpus]:
    """Read what is known of each corpus; raises UserError for a file that is damaged."""
    return read_json_map(path, Corpus, "correct it")


def missing(spec: Corpus, source: Path) -> list[str]:
    """What a corpus's folder should have, and has not."""
    paths = (spec.train, spec.test, spec.ali, spec.graph, spec.train_feats, spec.test_feats, spec.cv_utts, spec.lang, spec.tree,
             spec.configs)
    return [path for path in paths if path and not (source / path).exists()]


def prepare(spec: Corpus, source: Path, out: Path) -> Prepared:
    """Pack a corpus's frames into folder `out`, and give its test set features, as far as that has not been done."""
    if lacking := missing(spec, source):
        raise UserError(f"{source} has no {lacking[0]}; name a folder that was prepared (egs/study/corpora.json says what it holds).")
    ready = Prepared(spec, source, out / "store", out / "test" if spec.test_feats else source / spec.test, source / spec.graph)
    if spec.chain or (ready.store / "dev" / "manifest.json").is_file():
        return ready
    train = source / spec.train
    if spec.train_feats:
        train = _with_features(train, source / spec.train_feats, out / "train")
    if spec.test_feats:
        _with_features(source / spec.test, source / spec.test_feats, out / "test")
    held_out = ["--cv-utts", str(source / spec.cv_utts)] if spec.cv_utts else []
    run_verbs(out / "pack.log", ["pack", *spec.pack.split(), *held_out, train, source / spec.ali, ready.store])
    return ready


def _with_features(data: Path, archive: Path, out: Path) -> Path:
    """A data directory with the features of an archive."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("text", "utt2spk", "spk2utt"):
        copy_file(data / name, out / name)
    run_verbs(out / "feats.log", ["copy-feats", f"ark:{archive}", f"ark,scp:{out}/feats.ark,{out}/feats.scp"])
    return out
