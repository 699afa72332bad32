"""Tools for paths and logs: links, folders on several disks, warnings."""

from __future__ import annotations

import glob
import math
import os
import re

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import tool, warn

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from pykaldist.io.text_tools.tool import Output


def _link(target: str, link: str) -> None:
    """Make a symbolic link, in place of another link of this name."""
    if os.path.islink(link):
        os.unlink(link)
    try:
        os.symlink(target, link)
    except FileExistsError as error:
        raise UserError(f"{link} is there and no link; remove it, so that it can become a link to {target}.") from error


@tool("""ln.pl <file> ... <folder>
 e.g.: utils/ln.pl exp/tri1/final.mdl exp/tri1/tree exp/copy
Makes links to files in a folder, relative ones where file and folder are below one folder of /.""", arguments=(2, -1))
def ln_pl(options: dict[str, str], *paths: str) -> Output:
    """Make relative links."""
    *files, folder = paths
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is no folder; the last argument is where the links go.")
    for file in files:
        path, target = os.path.abspath(file), os.path.abspath(folder)
        together = os.path.commonpath([path, target]) != "/"
        _link(os.path.relpath(path, target) if together else path, os.path.join(folder, os.path.basename(path)))
    return None


@tool("""make_absolute.sh <path>
 e.g.: utils/make_absolute.sh exp/mono/final.mdl
Prints the absolute path, links followed.""", arguments=(1, 1))
def make_absolute_sh(options: dict[str, str], path: str) -> Output:
    """Print an absolute path."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is no folder; check the path {path}.")
    return [os.path.realpath(path).encode() + b"\n"]


@tool("""create_split_dir.pl [--suffix <path>] <storage-dir> ... <pseudo-storage-dir>
 e.g.: utils/create_split_dir.pl /disk1/me/storage /disk2/me/storage exp/nnet/egs/storage
Makes the storage folders, on several disks, and links to them: <pseudo-storage-dir>/1, 2, ... Those that are there stay.""",
      "suffix=", (2, -1))
def create_split_dir_pl(options: dict[str, str], *folders: str) -> Output:
    """Make folders on several disks, and links to them."""
    *storages, pseudo = folders
    os.makedirs(pseudo, exist_ok=True)
    storages = [os.path.abspath(os.path.join(storage, options.get("suffix", ""))) for storage in storages]
    for index, storage in enumerate(storages, 1):
        link = os.path.join(pseudo, str(index))
        if os.path.islink(link):
            warn(f"the link {link} is there already; it stays.")
            continue
        os.makedirs(storage, exist_ok=True)
        with open(os.path.join(storage, "README.txt"), "w", encoding="utf-8") as readme:
            readme.write(f"# {os.path.abspath(pseudo)} has a link to this folder. All folders of its data:\n" + "\n".join(storages) + "\n")
        _link(storage, link)
    return None


@tool("""create_data_link.pl <file> ...
 e.g.: utils/create_data_link.pl exp/nnet/egs/egs.3.4.ark exp/nnet/egs/egs.3.5.ark
Where the folder of the files has storage/ of create_split_dir.pl, makes each of them, before it is written, a link to
storage/<n>/<file>; the numbers in its name choose <n>. Else nothing is done.""", arguments=(1, -1))
def create_data_link_pl(options: dict[str, str], *files: str) -> Output:
    """Divide files among several disks by links."""
    folder = os.path.dirname(files[0])
    storage = os.path.join(folder, "storage")
    if not os.path.isdir(storage):
        return None
    count = sum(name.isdigit() for name in os.listdir(storage))
    if not count or not all(os.path.isdir(os.path.join(storage, str(n))) for n in range(1, count + 1)):
        raise UserError(f"{storage} has not the folders 1 to {max(count, 1)}; make it with utils/create_split_dir.pl.")
    steps = [n for n in range(1, count + 1) if math.gcd(n, count) == 1]  # so that each number alone goes round all folders
    for file in files:
        if os.path.dirname(file) != folder:
            raise UserError(f"{file} is not in {folder or 'the current folder'} as the first one is; name files of one folder.")
        numbers = [int(digits) for digits in re.findall(r"\d+", os.path.basename(file))]
        chosen = sum(n * steps[i % len(steps)] for i, n in enumerate(numbers)) % count + 1
        if os.path.isfile(file) and not os.path.islink(file):
            os.unlink(file)
        _link(os.path.join("storage", str(chosen), os.path.basename(file)), file)
    return None


@tool("""summarize_warnings.pl <log-dir>
 e.g.: utils/summarize_warnings.pl exp/tri1/log
Prints how many lines with WARNING the logs have, those of one stage's jobs and iterations together.""", arguments=(1, 1))
def summarize_warnings_pl(options: dict[str, str], folder: str) -> Output:
    """Count the warnings in logs."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is no folder; name one with logs.")
    warnings: dict[str, int] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder.rstrip("/")), "*.log"))):
        kind = re.sub(r"\.\d+(?=\.)", ".*", path)
        with open(path, "rb") as stream:
            warnings[kind] = warnings.get(kind, 0) + sum(bool(re.search(rb"\bWARNING\b", line)) for line in stream)
    return [f"{count} warnings in {kind}\n".encode() for kind, count in warnings.items() if count]
