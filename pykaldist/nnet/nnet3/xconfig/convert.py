"""An xconfig file made into config files, as Kaldi's xconfig_to_configs.py does.

`final.config` is the network. `ref.config` is the same with random stand-ins for matrices that are not there yet: the context of the
network is worked out from it, and goes into `vars`. `init.config` is what stands before an LDA-like transform, with its input as output,
of which the transform's statistics are taken; it is written where there is such a layer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import torch

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.nnet.nnet3.config import nearest
from pykaldist.nnet.nnet3.edits import edit, without_recurrence
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.nnet.nnet3.xconfig.fixed import IdctLayer
from pykaldist.nnet.nnet3.xconfig.layer import FILES, ExistingLayer, Layer
from pykaldist.nnet.nnet3.xconfig.layers import LAYERS
from pykaldist.nnet.nnet3.xconfig.line import parse_line


def read_layers(lines: Iterable[str], source: str = "the xconfig", existing: Nnet3 | None = None) -> list[Layer]:
    """Read the layers of an xconfig file; those of an `existing` network can be named as inputs, and are not in the result.

    Raises UserError with the number of the line.
    """
    before: list[Layer] = [ExistingLayer(name, existing.dim(name)) for name in existing.nodes] if existing else []
    layers: list[Layer] = []
    for number, text in enumerate(lines, 1):
        try:
            parsed = parse_line(text)
            if parsed is None:
                continue
            kind, fields = parsed
            if kind not in LAYERS:
                raise ValueError(f"{kind} is no layer that is known here; {nearest(kind, LAYERS)}")
            layer = LAYERS[kind](kind, fields, [*before, *layers])
        except ValueError as error:
            raise UserError(f"{source}, line {number} ({' '.join(text.split())[:80]}): {error}.") from error
        layers.append(layer)
    if not layers:
        raise UserError(f"{source} has no layers; is it the right file?")
    return layers


def config_lines(layers: Iterable[Layer]) -> dict[str, list[str]]:
    """The lines of init.config (empty where no layer asks for it), ref.config and final.config."""
    lines: dict[str, list[str]] = {file: [] for file in FILES}
    for layer in layers:
        for file, own in layer.configs().items():
            lines[file] += own
    if not any(line.startswith("output-node") for line in lines["init"]):
        lines["init"] = []
    return lines


def write_configs(xconfig: str | os.PathLike[str], folder: str | os.PathLike[str], existing: Nnet3 | None = None, edits: str = "",
                  command: str = "") -> tuple[int, int]:
    """Write the configs of an xconfig file to `folder`; returns the left and right context of the network, of its output `output`.

    `existing` is a network to which the layers are added, `edits` are made before the context is worked out (`edits.py`). Beside the
    configs: `vars` with the context, `ref.raw` (and `init.raw`), `xconfig` and, with all fields, `xconfig.expanded.1`, and with inputs
    written out `xconfig.expanded.2`. Raises UserError for what is no network.
    """
    source, folder = Path(xconfig), Path(folder)
    with named(source):
        text = source.read_text(encoding="utf-8")
    layers = read_layers(text.splitlines(), str(source), existing)
    lines = config_lines(layers)
    head = f"# Made by the command:\n# {command}\n" if command else ""
    if not any(line.startswith("output-node") for line in lines["final"]):
        raise UserError(f"{source} has no output or output-layer; add one.")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "xconfig", f"{head}# It is a copy of {source}, of which the configs here are made.\n\n", text.splitlines())
    _write(folder / "xconfig.expanded.1", f"{head}# The layers of xconfig with all of their fields.\n\n", map(str, layers))
    for layer in layers:
        layer.name_inputs()
    _write(folder / "xconfig.expanded.2", f"{head}# The layers of xconfig with all of their fields, abbreviations of inputs written out."
           "\n\n", map(str, layers))
    _write_matrices(layers)
    for file in FILES:
        for old in (folder / f"{file}.config", folder / f"{file}.raw"):
            old.unlink(missing_ok=True)  # of another xconfig
        if lines[file]:
            _write(folder / f"{file}.config", f"{head}# {CONTENTS[file]}\n\n", lines[file])
    contexts = {file: _context(lines[file], folder / file, existing, edits if file == "ref" else "") for file in ("init", "ref")
                if lines[file]}
    if "init" in contexts and any(a > b for a, b in zip(contexts["init"], contexts["ref"], strict=True)):
        raise UserError(f"{source}: the input of the first fixed-affine-layer has the context {contexts['init']}, more than the network's "
                        f"{contexts['ref']}, as an output-delay makes it; give delay= to the fixed-affine-layer instead.")
    left, right = contexts["ref"]
    _write(folder / "vars", "", [f"model_left_context={left}", f"model_right_context={right}"])
    return left, right


CONTENTS = {"init": "What stands before the LDA-like transform, with its input as output: the transform's statistics are taken of it.",
            "ref": "The network, with random stand-ins for matrices that are read: its context is worked out from it.",
            "final": "The network."}


def _write(path: Path, head: str, lines: Iterable[str]) -> None:
    with atomic_open(path, "w") as stream:
        stream.write(head + "".join(f"{line.strip() if path.name == 'xconfig' else line}\n" for line in lines))


def _context(lines: list[str], path: Path, existing: Nnet3 | None, edits: str) -> tuple[int, int]:
    """The context of a config's network, which is written to `path` with `.raw` behind it."""
    nnet = initialised(lines, torch.Generator().manual_seed(0), source=f"{path}.config", existing=existing)
    nnet.write(f"{path}.raw")
    plan = Plan(without_recurrence(edit(nnet, edits) if edits else nnet))
    return plan.left_context, plan.right_context


def _write_matrices(layers: Iterable[Layer]) -> None:
    """Write the matrices that layers know themselves: those of idct-layer."""
    for layer in layers:
        if isinstance(layer, IdctLayer):
            with atomic_open(layer.values["affine-transform-file"], "w") as stream:
                stream.write("[ " + "\n".join(" ".join(map(str, row)) for row in layer.matrix()) + " ]")
