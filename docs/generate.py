"""Pages of the site that are made from the code when it is built: options, verbs, scripts, API, results, the study of claims.

A hook of mkdocs (mkdocs.yml). Options are read from the parsers of `pykaldist <verb>`, which are made of the options' dataclasses, so that
the pages say what the programs do.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pykaldist.cli import verbs
from pykaldist.cli.train import RECURRENT, VARIANTS
from pykaldist.io.text_tools.run import tool_named
from pykaldist.nnet.nnet3.xconfig.layers import LAYERS
from pykaldist.programs.command import COMMON, Command
from pykaldist.programs.table import FILES, load
from pykaldist.study.claims import read_claims
from pykaldist.study.order import Examined
from pykaldist.study.page import plot, render
from pykaldist.study.results import Results
from pykaldist.train.frame_experiment import RecurrentExperimentOptions

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"nnet": "Network", "init": "Initial weights", "objective": "Objective", "schedule": "Schedule", "optimizer": "Optimiser",
         "strategy": "Strategy"}
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
USAGE = re.compile(r"^usage\(\) \{\n  cat <<EOF\n(Usage: utils/.*?)^EOF$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages whose number is not fixed into the site's navigation."""
    for section in config.nav:
        if isinstance(section, dict) and "API reference" in section:
            section["API reference"] = [f"api/{name}.md" for name in ("index", *rooms())]
        if isinstance(section, dict) and "Evidence" in section:
            section["Evidence"] = [*section["Evidence"], *(f"results/{name}.md" for name in results())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"options.md": training_options(), "verbs.md": every_verb(), "scripts.md": every_script(), "programs.md": every_program(),
             "xconfig.md": every_layer(),
             **{page: moved(ROOT / name) for name, page in ROOT_PAGES.items()},
             **{f"results/{name}.md": path.read_text(encoding="utf-8") for name, path in results().items()},
             "api/index.md": ground(), **{f"api/{name}.md": f"::: pykaldist.{name}\n" for name in rooms()}}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for name, content in study().items():
        files.append(File.generated(config, name, content=content))
    return files


def study() -> dict[str, str | bytes]:
    """The page of the study of claims, and its pictures."""
    claims, found = read_claims(ROOT / "egs/study/claims"), Results(ROOT / "egs/study/results")
    pictures: dict[str, str | bytes] = {}
    addresses = {}
    with tempfile.TemporaryDirectory() as folder:
        for claim in claims:
            for corpus in claim.corpora:
                path = Path(folder) / f"{claim.name}-{corpus}.png"
                if plot(Examined(claim, corpus, found), path):
                    addresses[claim.name, corpus] = f"images/study/{path.name}"
                    pictures[addresses[claim.name, corpus]] = path.read_bytes()
    return {"study.md": render(claims, found, addresses), **pictures}


def rooms() -> list[str]:
    """The folders of the library."""
    return sorted(path.parent.name for path in (ROOT / "pykaldist").glob("*/__init__.py"))


def results() -> dict[str, Path]:
    """Recipe -> its page of results."""
    return {path.parent.parent.name: path for path in sorted(ROOT.glob("egs/*/s5*/RESULTS.md"))}


def moved(path: Path) -> str:
    """A page of the project's root, with links that hold on the site."""
    text = path.read_text(encoding="utf-8").replace("](docs/", "](")
    for name, page in ROOT_PAGES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def ground() -> str:
    """The modules beside the rooms."""
    names = sorted(path.stem for path in (ROOT / "pykaldist").glob("*.py") if not path.stem.startswith("__"))
    lines = ["# API reference", "", "Each room of the library has a page; [Architecture](../architecture.md) says which is for what. This "
             "page has the modules that all rooms stand on.", ""]
    return "\n".join([*lines, *(f"::: pykaldist.{name}\n" for name in names)])


def escaped(text: str) -> str:
    """Plain text for a cell of a Markdown table."""
    return re.sub(r"([*_|\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Option, default, meaning as a Markdown table."""
    return ["| option | default | meaning |", "| --- | --- | --- |", *(f"| {a} | {b} | {c} |" for a, b, c in rows), ""]


def shown(default: Any) -> str:
    """A default value as the command line would have it."""
    if default in (None, "", argparse.SUPPRESS):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def meaning(text: str, choices: Any) -> str:
    """The help of an option, without the default that has a column of its own, and its choices."""
    text = re.sub(r" \(default: [^()]*\)$", "", text.replace("%%", "%"))
    return escaped(text) + (f" ({', '.join(f'`{choice}`' for choice in choices)})" if choices else "")


def parser_of(verb: str) -> tuple[str, argparse.ArgumentParser]:
    """The help text of a verb, and its parser."""
    module = importlib.import_module(f"pykaldist.cli.{verb.replace('-', '_')}")
    parser = argparse.ArgumentParser(add_help=False)
    module.add_arguments(parser)
    return module.__doc__ or "", parser


def groups(parser: argparse.ArgumentParser) -> dict[str, list[tuple[str, str, str]]]:
    """Title of a group of options -> its rows: name, default, meaning."""
    found = {}
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            if action.help == argparse.SUPPRESS:
                continue
            name = f"`{action.option_strings[0]}`" if action.option_strings else f"`<{action.metavar or action.dest}>`"
            # options of which one of several dataclasses has the value say all defaults in their help
            text = action.help or ""
            several = action.default == argparse.SUPPRESS
            rows.append((name, "" if several else shown(action.default),
                         escaped(text.replace("%%", "%")) if several else meaning(text, action.choices)))
        if rows:
            found[group.title or ""] = rows
    return found


def described(doc: str) -> str:
    """A docstring, which is plain text, as Markdown: indented lines are code, signs that Markdown would take for its own are escaped."""
    lines: list[str] = []
    for line in doc.strip().splitlines():
        code, before = line.startswith("  "), bool(lines) and lines[-1].startswith("  ")
        if lines and lines[-1] and code != before:
            lines.append("")
        lines.append("    " + line if code else "".join(
            part if i % 2 else re.sub(r"([*_\[\]#])", r"\\\1", part.replace("&", "&amp;").replace("<", "&lt;"))
            for i, part in enumerate(re.split(r"(`[^`]*`)", line))))
    return "\n".join(lines)


class PlainDocstrings(griffe.Extension):
    """Docstrings of the API pages, escaped."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = described(obj.docstring.value)


def fields_of(options: type) -> list[tuple[str, str, str]]:
    """The rows of a dataclass of options: name, default, meaning."""
    return [(f"`--{field.name.replace('_', '-')}`", shown(field.default), meaning(field.metadata.get("help", ""),
             field.metadata.get("choices"))) for field in dataclasses.fields(options)]


def training_options() -> str:
    """The options of `pykaldist train`: those of every training, then those of each kind of network, schedule and so on."""
    _, parser = parser_of("train")
    lines = ["# Options of training", "", "`steps/nnet/train.sh` and `pykaldist train` take these options. This page is made from the "
             "code. An option that belongs to a network, objective, schedule, optimiser or strategy that is not chosen is an error.", ""]
    for title, rows in groups(parser).items():
        if " | " not in title and title not in set().union(*VARIANTS.values()):
            words = re.sub(r"(?<!^)([A-Z])", lambda found: " " + found[1].lower(), title)
            lines += [f"## {words[0].upper()}{words[1:]}", "", *table(rows)]
    for kind, variants in VARIANTS.items():
        for name, cls in variants.items():
            rows = fields_of(cls)
            lines += [f"## {KINDS[kind]}: {name}", "", f"`--{kind} {name}`" + ("" if rows else " has no options of its own."), ""]
            lines += table(rows) if rows else []
        if kind == "objective":
            lines += [f"## {KINDS[kind]}: {RECURRENT}", "", "`--objective xent` of networks that train on chunks of frames", "",
                      *table(fields_of(RecurrentExperimentOptions))]
    return "\n".join(lines)


def every_verb() -> str:
    """The arguments and options of every verb but `train`."""
    lines = ["# Every verb", "", "`pykaldist <verb> --help` prints the same. [Options of training](options.md) are those of `pykaldist "
             "train`. This page is made from the code.", ""]
    for verb in verbs():
        if verb != "train":
            doc, parser = parser_of(verb)
            lines += [f"## {verb}", "", described(doc), ""]
            for title, rows in groups(parser).items():
                lines += [*([f"Options that depend on a choice: {escaped(title)}", ""] if " | " in title else []), *table(rows)]
    return "\n".join(lines)


def every_program() -> str:
    """The usage texts of Kaldi's and OpenFst's programs, by what they work on."""
    lines = ["# Every program", "", "Kaldi's and OpenFst's programs, and those of language model "
             "toolkits, that `src/bin` has; `path.sh` puts them on `PATH`, and `pykaldist "
             "NAME` runs the same. Each prints this with `--help`. All have these options, too:", "", "```text", COMMON.rstrip(), "```", ""]
    for file, names in FILES.items():
        about = importlib.import_module(f"pykaldist.programs.{file}").__doc__ or ""
        lines += [f"## {file}", "", about.splitlines()[0], ""]
        for name in names.split():
            text = Command(name, load(name)).usage().removesuffix(COMMON).rstrip().removesuffix("Options:").rstrip()
            lines += [f"### {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def every_layer() -> str:
    """The kinds of layers of xconfig files, with their fields."""
    lines = ["# Layers of xconfig files", "", "What `steps/nnet3/xconfig_to_configs.py` takes, with defaults; every layer has a `name=` "
             "too. A field without a default is left out of the config where it is not given.", "", "| layers | what it is | fields |",
             "| --- | --- | --- |"]
    for cls in dict.fromkeys(LAYERS.values()):
        fields = ", ".join(f"`{key}`" if default == "" else f"`{key}={default}`" for key, default in cls.fields.items())
        about = escaped((cls.__doc__ or "").splitlines()[0])
        lines.append(f"| {', '.join(f'`{kind}`' for kind in cls.kinds)} | {about} | {fields} |")
    return "\n".join([*lines, ""])


def usage(path: Path) -> str | None:
    """What a script prints when it is called without arguments; None where it is none that a user calls, but that others source.

    Several scripts of `steps` share their usage text with others, so that these are called; that of `utils` is read. A tool with several
    names has one place, that of the name in its usage text; so has a script with links to it.
    """
    if not os.access(path, os.X_OK):
        return None
    if path.is_symlink():
        tool = tool_named(path.name)
        text = f"Usage: utils/{tool.usage}" if tool else ""
        return text if text.startswith(f"Usage: {path.relative_to(ROOT)} ") else None
    if path.relative_to(ROOT).parts[0] == "steps":
        env = {**os.environ, "PYKALDIST_PYTHON": sys.executable, "PYKALDIST_TOLD": "true"}
        text = subprocess.run(["bash", str(path)], cwd=ROOT, env=env, capture_output=True, text=True, check=False).stderr
        return text if text.startswith("Usage: ") else None
    found = USAGE.search(path.read_text(encoding="utf-8"))
    return re.sub(r"\\([$`\\])", r"\1", found[1]) if found else None


def every_script() -> str:
    """The usage texts of the scripts of `steps` and `utils`."""
    lines = ["# Every script", "", "A script prints this when it is called without arguments. This page is made from the scripts.", ""]
    for folder in ("steps", "utils"):
        for path in sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".sh", ".pl", ".py")):
            text = usage(path)
            if text is not None:
                lines += [f"## {path.relative_to(ROOT)}", "", "```text", text.rstrip(), "```", ""]
    return "\n".join(lines)
