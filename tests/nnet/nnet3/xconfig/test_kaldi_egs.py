"""The xconfig files of all of Kaldi's recipes become the configs that Kaldi's own code makes of them, and are refused where it refuses."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers
from pykaldist.nnet.nnet3.xconfig.layer import FILES

HERE = re.compile(r"cat\s*<<-?\s*['\"]?(\w+)['\"]?\s*>>?\s*\S*xconfig")
ASSIGNED = re.compile(r"\s*(?:local\s+|export\s+)?([A-Za-z_]\w*=.*)")
#: what scripts ask of their data
PROGRAMS = {"tree-info": "num-pdfs 2000", "feat-to-dim": "40", "am-info": "number of pdfs 2000", "hmm-info": "number of pdfs 2000",
            "gmm-info": "number of pdfs 2000"}
#: dimensions that scripts find out in a way that is not followed here
UNKNOWN = [(r"(input dim=)0?( name=ivector)", r"\g<1>100\2"), (r"(input dim=)( name=input)", r"\g<1>40\2"),
           (r"(?m)^(.*output-layer.* dim=)(?= |$)", r"\g<1>2000")]


def xconfigs_of(script: Path, programs: Path) -> list[str]:
    """The xconfig files that a script writes: its assignments are run, and its here-documents."""
    lines = script.read_text(errors="replace").split("\n")
    commands, number = ["dir=DIR"], 0
    while number < len(lines):
        if here := HERE.search(lines[number]):
            end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == here[1])
            commands.append("\n".join([f"echo @@@; cat <<{here[1]}", *lines[number + 1:end], here[1]]))
            number = end
        elif (assigned := ASSIGNED.match(lines[number])) and "<<" not in lines[number] and not lines[number].rstrip().endswith("\\"):
            command = re.sub(r"(\|\||&&).*$", "", assigned[1]).strip().rstrip(";")
            if all(command.count(quote) % 2 == 0 for quote in "\"'`") and command.count("(") == command.count(")"):
                commands.append(f"{{ {command}\n}} 2>/dev/null")
        number += 1
    if not any(command.startswith("echo @@@") for command in commands):
        return []
    found = subprocess.run(["bash"], input="\n".join(commands), capture_output=True, text=True, timeout=60, check=False,
                           env={"PATH": f"{programs}:/usr/bin:/bin"}, cwd=programs).stdout
    return found.split("@@@\n")[1:]


def comparable(lines: list[str]) -> list[str]:
    """Lines without comments; whole numbers that Kaldi's division makes 32.0 of are 32."""
    return [re.sub(r"(\d)\.0(?= |$|,)", r"\1", " ".join(line.split())) for line in lines if not line.startswith("#")]


def kaldis(parser: Any, text: str) -> list[list[str]]:
    layers: list[Any] = []
    for line in text.split("\n"):
        if (layer := parser.xconfig_line_to_object(line, layers)) is not None:
            layers.append(layer)
    written = [list(map(str, layers))]
    for layer in layers:
        layer.normalize_descriptors()
    written.append(list(map(str, layers)))
    configs: dict[str, list[str]] = {file: [] for file in FILES}
    for layer in layers:
        for file, line in layer.get_full_config():
            configs[file].append(line)
    if not any(line.startswith("output-node") for line in configs["init"]):
        configs["init"] = []
    return [*written, *configs.values()]


def ours(text: str) -> list[list[str]]:
    layers = read_layers(text.split("\n"))
    written = [list(map(str, layers))]
    for layer in layers:
        layer.name_inputs()
    return [*written, list(map(str, layers)), *config_lines(layers).values()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_all_recipes_xconfigs_become_kaldis_configs(kaldi_egs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, answer in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.syspath_prepend(str(kaldi_egs / "wsj/s5/steps"))
    parser = importlib.import_module("libs.nnet3.xconfig.parser")
    monkeypatch.setattr(importlib.import_module("libs.common"), "write_kaldi_matrix", lambda *_: None)
    count: Counter[str] = Counter()
    for script in sorted(kaldi_egs.glob("*/*/local/**/*.sh")):
        if script.is_symlink():
            continue
        for text in xconfigs_of(script, tmp_path):
            for unknown, given in UNKNOWN:
                text = re.sub(unknown, given, text)
            try:
                expected = kaldis(parser, text)
            except Exception:
                with pytest.raises(UserError):
                    ours(text)
                count["refused by both"] += 1
                continue
            for own, other in zip(ours(text), expected, strict=True):
                assert comparable(own) == comparable(other), script
            count["equal"] += 1
    print(dict(count))  # of Kaldi at f40076610: equal 437, refused by both 12
    assert count["equal"] >= 437
