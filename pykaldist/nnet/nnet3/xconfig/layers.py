"""The kinds of layers of xconfig files by the word with which a line begins."""

from __future__ import annotations

from pykaldist.nnet.nnet3.xconfig import attention, basic, convolution, fixed, gru, recurrent, single, tdnnf
from pykaldist.nnet.nnet3.xconfig.layer import Layer

LAYERS: dict[str, type[Layer]] = {
    kind: cls for module in (basic, fixed, single, tdnnf, convolution, attention, recurrent, gru) for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Layer) and cls.__module__ == module.__name__ for kind in cls.kinds}
