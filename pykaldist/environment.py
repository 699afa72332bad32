"""Check of the user's own Python: it has the packages that pykaldist needs, by their versions; nothing is imported.

`python -m pykaldist.environment STAMP KEY`: path.sh runs it for the interpreter that PYKALDIST_PYTHON names. Where all is there, STAMP is
written: KEY, then the folders of packages and the files that the answer depends on. path.sh asks again when one of them is newer.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def release(version: str) -> tuple[int, ...]:
    """The release numbers of a version: (2, 13, 0) of 2.13.0+cpu."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


def needed(pyproject: Path = PYPROJECT) -> dict[str, str]:
    """The packages that pykaldist needs, with the oldest version that will do ('' where any will).

    In a checkout these are `dependencies` of pyproject.toml; where pykaldist is installed, they are in the package's metadata.
    """
    if pyproject.is_file():
        listed = re.search(r"^dependencies = \[(.*?)\]", pyproject.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        assert listed is not None, f"{pyproject} has no dependencies"
        lines = re.findall(r'"(.*?)"', listed[1])
    else:
        lines = [line for line in importlib.metadata.requires("pykaldist") or [] if "extra ==" not in line]
    return {name: oldest for line in lines for name, oldest in re.findall(r"^([\w.-]+)(?:>=([\d.]+))?", line)}


def installed(name: str) -> str | None:
    """The version of a package that this interpreter has; '' where only its module says that it is there; None without it."""
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return "" if importlib.util.find_spec(name) else None


def complaint(packages: dict[str, str]) -> str:
    """A sentence about what this interpreter lacks of `packages`, with the command that mends it; '' where nothing is missing."""
    missing, old, wanted = [], [], []
    for name, oldest in packages.items():
        version = installed(name)
        if version is None:
            missing.append(name)
        elif version and oldest and release(version) < release(oldest):
            old.append(f"{name} {version} (needs {oldest} or later)")
        else:
            continue
        wanted.append(f"{name}>={oldest}" if oldest else name)
    faults = [f"has no {', '.join(missing)}"] * bool(missing) + [f"has too old {', '.join(old)}"] * bool(old)
    pip = f"{sys.executable} -m pip install" if importlib.util.find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"{' and '.join(faults)}; install with: {pip} {shlex.join(wanted)}" if faults else ""


def write_stamp(stamp: Path, key: str) -> None:
    """Write the file that says that all is there; a checkout where nobody may write is asked anew every time."""
    checkout = PYPROJECT.is_file()
    watched = [folder for folder in sys.path if os.path.isdir(folder) and not (checkout and PYPROJECT.parent.samefile(folder))]
    try:
        stamp.parent.mkdir(exist_ok=True)
        temporary = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        temporary.write_text("\n".join([key, sys.executable, *[str(PYPROJECT)] * checkout, *watched]) + "\n", encoding="utf-8")
        temporary.replace(stamp)
    except OSError:
        pass


if __name__ == "__main__":
    sys.path[:] = [folder for folder in sys.path if folder != os.getcwd()]  # -m puts it there; packages are not looked for in it
    sentence = complaint(needed())
    if sentence:
        sys.exit(f"path.sh: ERROR: PYKALDIST_PYTHON={os.environ.get('PYKALDIST_PYTHON', sys.executable)} {sentence}")
    write_stamp(Path(sys.argv[1]), sys.argv[2])
