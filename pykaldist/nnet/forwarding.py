"""The options for passing utterances through a trained network."""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.options import option

DTYPES = "float32", "bf16", "int8"
DTYPE_HELP = ("arithmetic of the network: bf16 where the CPU multiplies it (AVX512-BF16, AMX); int8 for the affine layers of a DNN, where "
              "the CPU multiplies that (VNNI, AMX)")


@dataclass
class ForwardOptions:
    """How an utterance passes through a network: where, in which arithmetic; a bidirectional one whole, in chunks, or latency-controlled.

    In chunks, each begins from a state of zero, and where two overlap the mean of their posteriors is taken (Chen & Huo, 2016).
    Latency-controlled (Zhang et al., 2016) is chunk by chunk too, but the direction forward in time goes on from the chunk before, so
    that the network waits for the chunk's end and its context after, and no longer. Looped is for nnet3 networks: chunk by chunk, as if
    the utterance still came (`nnet3/stream.py`), which gives the outputs of the whole.
    """

    forward: str = option("whole", "utterances through a bidirectional network: whole, in chunks, or latency-controlled; through an nnet3 "
                          "network: whole, or looped", ("whole", "chunks", "latency-controlled", "looped"))
    forward_chunk: str | None = option(None, "chunk of --forward chunks or latency-controlled, as 21-64+21 (that of training)")
    forward_overlap: int = option(32, "frames by which the chunks of --forward chunks overlap")
    device: str = option("auto", "where the network computes: cpu, cuda, cuda:N, or auto: cuda where there is one")
    dtype: str = option("float32", DTYPE_HELP, DTYPES)

    def __post_init__(self) -> None:
        if self.forward == "whole" and self.forward_chunk is not None:
            raise UserError(f"--forward-chunk {self.forward_chunk}: --forward whole cuts nothing; leave it out.")
        if self.forward_overlap < 0:
            raise UserError(f"--forward-overlap {self.forward_overlap} is negative.")
