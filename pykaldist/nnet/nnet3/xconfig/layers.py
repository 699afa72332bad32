"""The kinds of layers of xconfig files by the word with which a line begins."""

from __future__ import annotations

import importlib

from pykaldist.nnet.nnet3.xconfig.layer import Layer

FILES = ("basic", "fixed", "single", "tdnnf", "convolution", "attention", "recurrent")


def _classes() -> list[type[Layer]]:
    found: list[type[Layer]] = []
    for file in FILES:
        module = importlib.import_module(f"pykaldist.nnet.nnet3.xconfig.{file}")
        found += [value for value in vars(module).values()
                  if isinstance(value, type) and issubclass(value, Layer) and value.__module__ == module.__name__]
    return found


LAYERS: dict[str, type[Layer]] = {kind: cls for cls in _classes() for kind in cls.kinds}
