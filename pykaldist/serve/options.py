"""The options of each format that a model is exported to."""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.decode.vosk import VoskOptions
from pykaldist.options import option


@dataclass
class OnnxOptions:
    """The options of an ONNX file."""

    int8: bool = option(False, "affine maps of an nnet3 network in 8-bit integers, by ONNX Runtime's dynamic quantisation")


@dataclass
class KaldiOptions:
    """Kaldi's formats have no options."""


@dataclass
class VoskDirOptions(VoskOptions):
    """The options of a Vosk model directory."""

    graph_dir: str = option("", "directory with HCLG.fst, or with HCLr.fst, Gr.fst and disambig_tid.int (found by itself)")
    extractor: str = option("", "directory of the i-vector extractor, for a network that takes i-vectors")
    mean_of: str = option("", "training data of a network that takes features less each speaker's mean; the export subtracts the mean of "
                              "all of it")


FORMAT_OPTIONS: dict[str, type] = {"onnx": OnnxOptions, "nnet1": KaldiOptions, "nnet3": KaldiOptions, "vosk": VoskDirOptions}
