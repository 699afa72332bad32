"""How many Gaussians a model has, of which dimension: read without numpy, so that gmm-info starts fast."""

from __future__ import annotations

from pykaldist.io.tokens import TokenReader

VECTORS, MATRICES = ("<GCONSTS>", "<WEIGHTS>"), ("<MEANS_INVVARS>", "<INV_VARS>")


def read_sizes(reader: TokenReader) -> tuple[int, int]:
    """The dimension and the number of Gaussians of the mixtures of all pdfs, which are read over."""
    reader.expect("<DIMENSION>")
    dim = reader.integer()
    reader.expect("<NUMPDFS>")
    number = sum(_read_size(reader, dim) for _ in range(reader.count("pdfs", 20)))
    if not number:
        raise reader.error("the model has no pdfs")
    return dim, number


def _read_size(reader: TokenReader, dim: int) -> int:
    """The number of Gaussians of one mixture."""
    begin_mixture(reader)
    lengths: dict[str, int] = {}
    shapes: dict[str, tuple[int, int]] = {}
    while token := next_part(reader):
        if token in VECTORS:
            lengths[token] = reader.skip_vector()
        else:
            shapes[token] = reader.skip_matrix()
    number = lengths.get("<WEIGHTS>", 0)
    if not number or set(lengths.values()) != {number} or shapes != dict.fromkeys(MATRICES, (number, dim)):
        raise reader.error(f"expected a mixture of dimension {dim}, found {number} weights, and means and variances of {shapes}")
    return number


def begin_mixture(reader: TokenReader) -> None:
    """Read the token before a mixture."""
    if reader.token() not in ("<DiagGMM>", "<DiagGMMBegin>"):
        raise reader.error("expected <DiagGMM>; only models of diagonal Gaussians are read")


def next_part(reader: TokenReader) -> str:
    """Read the token before the next vector or matrix of a mixture; empty at the mixture's end."""
    token = reader.token()
    if token in ("</DiagGMM>", "<DiagGMMEnd>"):
        return ""
    if token not in VECTORS + MATRICES:
        raise reader.error(f"expected part of a mixture, found {token!r}")
    return token
