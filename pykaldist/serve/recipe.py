"""What belongs to a model and stands elsewhere in its recipe: the language directory, and the options of its features.

A model is in `exp/<name>` of a recipe's folder, its language directory in `data/lang`, the options of its features in `conf/mfcc.conf`. Who
has them elsewhere names them.
"""

from __future__ import annotations

from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.lang import LangDir


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
