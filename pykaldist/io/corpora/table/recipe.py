"""The folder of a new recipe: its scripts, made of the files `*.template` beside this one, with sizes that go with the hours of speech."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora.table.prepare import GRAPHEMES, Corpus, TableOptions

TEMPLATES = Path(__file__).parent
SCRIPTS = {"run.sh": "run.sh", "local/prepare_data.sh": "prepare_data.sh", "local/decode_gmms.sh": "decode_gmms.sh"}
LINKS = ("steps", "utils", "path.sh")


@dataclass(frozen=True)
class Sizes:
    """How large the systems of a recipe are; `totgauss` is of monophones, `leaves` and `gauss` of triphones."""

    totgauss: int
    leaves: int
    gauss: int
    hid_layers: int
    hid_dim: int
    num_epochs: int


SIZES = {  # up to so many hours of training speech: for few as this project's recipes have them, for many as Kaldi's have
    0.3: Sizes(400, 300, 2000, 2, 256, 8),
    1.5: Sizes(1000, 1200, 8000, 4, 384, 8),
    8.0: Sizes(1000, 2000, 12000, 4, 512, 8),
    40.0: Sizes(1000, 3200, 30000, 5, 1024, 8),
    150.0: Sizes(1000, 4200, 50000, 6, 1024, 6),
    float("inf"): Sizes(1000, 5000, 90000, 6, 2048, 4),
}


def sizes_for(hours: float) -> Sizes:
    """The sizes for so many hours of training speech."""
    return next(sizes for most, sizes in SIZES.items() if hours <= most)


def check_folder(name: str, folder: Path) -> None:
    """Raise UserError for a name that is none of a recipe, and for a folder that exists."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(f"expected a name of letters, digits, dots, dashes and underlines for the recipe, found {name!r}.")
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} exists; remove it, or give another name or --dir.")


def write_recipe(name: str, folder: Path, root: Path, corpus: Corpus, audio: str, transcripts: str, lexicon: str,
                 options: TableOptions) -> Sizes:
    """Write a recipe's folder, whole or not at all; `root` is the folder with steps/, utils/ and path.sh, to which it gets links.

    Raises UserError where the folder exists.
    """
    check_folder(name, folder)
    sizes = sizes_for(corpus.hours("train"))
    given = "".join(f"--{field.name.replace('_', '-')}={shlex.quote(str(getattr(options, field.name)))} "
                    for field in dataclasses.fields(options) if getattr(options, field.name) != field.default)
    values = {"NAME": name, "HOURS": f"{corpus.hours('train'):.2f}", "AUDIO": _quoted(audio), "TRANSCRIPTS": _quoted(transcripts),
              "LEXICON": GRAPHEMES if lexicon == GRAPHEMES else _quoted(lexicon), "OPTIONS": given,
              "OOV": "" if lexicon == GRAPHEMES else '--oov "<UNK>" ',
              **{field.name.upper(): str(getattr(sizes, field.name)) for field in dataclasses.fields(sizes)}}
    part = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        for target, template in SCRIPTS.items():
            text = (TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
            write_text(part / target, re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text))
            (part / target).chmod(0o755)
        write_text(part / "cmd.sh", (TEMPLATES / "cmd.sh.template").read_text(encoding="utf-8"))
        write_text(part / "conf/mfcc.conf", f"--sample-frequency={corpus.rate}\n--use-energy=false\n")
        home = folder.parent.resolve()
        for link in LINKS:
            to = root.resolve() / link
            (part / link).symlink_to(os.path.relpath(to, home / folder.name) if home.is_relative_to(root.resolve()) else to)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sizes


def _quoted(path: str) -> str:
    """An absolute path, for the shell."""
    return shlex.quote(str(Path(path).absolute()))
