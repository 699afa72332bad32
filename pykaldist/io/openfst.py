"""FSTs of kaldifst read from and written to rxfilenames and wxfilenames; for programs, which start fast: numpy is not imported here.

kaldifst takes files only. What comes from a pipe or goes to one takes the way of an anonymous file in memory.
"""

from __future__ import annotations

import io
import os
import struct
from array import array
from collections.abc import Iterator
from typing import IO, Any

import kaldifst

from pykaldist.errors import AGAIN, UserError, named
from pykaldist.io.xfilenames import open_rxfilename, open_wxfilename

_MAGIC = struct.pack("<i", 2125659606)


def fst_kind(head: bytes, name: str) -> tuple[str, str]:
    """The FST type and the arc type that the first bytes of a file tell; raises UserError where it is no binary FST."""
    words = []
    pos = 4
    try:
        if head[:4] != _MAGIC:
            raise ValueError
        for _ in range(2):
            (length,) = struct.unpack_from("<i", head, pos)
            words.append(head[pos + 4 : pos + 4 + length].decode("ascii"))
            pos += 4 + length
    except (struct.error, ValueError) as error:
        found = "nothing" if not head else "an FST as text; compile it with fstcompile" if head[:1].isdigit() else "something else"
        raise UserError(f"{name}: expected a binary FST, found {found}.") from error
    return words[0], words[1]


def read_fst(name: str) -> Any:
    """Read a kaldifst.StdVectorFst, of a `vector` or a `const` file; raises UserError for anything else."""
    with open_rxfilename(name) as stream, named(name):
        data = stream.read()
    return parse_fst(data, "standard input" if name in ("", "-") else name)


def parse_fst(data: bytes, name: str) -> Any:
    """Make a kaldifst.StdVectorFst of the bytes of a file."""
    kind, arc = fst_kind(data[:200], name)
    if arc != "standard" or kind not in ("vector", "const"):
        raise UserError(f"{name}: expected a vector or const FST of standard arcs, found a {kind} FST of {arc} arcs.")
    with open(os.memfd_create("fst"), "wb") as memory:
        memory.write(data)
        memory.flush()
        path = f"/proc/self/fd/{memory.fileno()}"
        fst = kaldifst.StdVectorFst.read(path) if kind == "vector" else kaldifst.StdConstFst.read(path)
    if fst is None:
        raise UserError(f"{name} is truncated or damaged; {AGAIN}.")
    return fst if kind == "vector" else kaldifst.StdVectorFst(fst)


class Body:
    """The states and arcs of a kaldifst FST as an array of 32-bit words, which can be changed in place.

    A state is its final cost, its number of arcs (two words) and the arcs: input label, output label, cost, next state.
    """

    def __init__(self, fst: Any) -> None:
        plain = fst.copy()
        plain.input_symbols = plain.output_symbols = None
        data = fst_bytes(plain)
        kind, arc = fst_kind(data[:200], "")
        begin = 4 + 4 + len(kind) + 4 + len(arc)
        # version and flags stay; of the properties, which changes may break, only "expanded" and "mutable"
        self._head = data[: begin + 8] + struct.pack("<Q", 3) + data[begin + 16 : begin + 40]
        self.words = array("i", data[begin + 40 :])

    def states(self) -> Iterator[range]:
        """The places of each state's arcs, of four words each, in the order of the states; the final cost is 3 words before the first."""
        words, end, pos = self.words, len(self.words), 0
        while pos < end:
            arcs = range(pos + 3, pos + 3 + 4 * words[pos + 1])
            yield arcs
            pos = arcs.stop

    def fst(self) -> Any:
        """The FST that the words make, without symbols."""
        return parse_fst(self._head + self.words.tobytes(), "the FST")


def fst_bytes(fst: Any) -> bytes:
    """The file of a kaldifst FST."""
    with open(os.memfd_create("fst"), "rb") as memory:
        fst.write(f"/proc/self/fd/{memory.fileno()}")
        return memory.read()


def symbols_of(fst: Any) -> tuple[Any, Any]:
    """Copies of an FST's input and output symbols, None where it has none; the tables themselves go with the FST."""
    tables = fst.input_symbols, fst.output_symbols
    return tables[0] and tables[0].copy(), tables[1] and tables[1].copy()


def write_fst(fst: Any, name: str) -> None:
    """Write a kaldifst FST; a file appears when it is whole."""
    data = fst_bytes(fst)
    with open_wxfilename(name) as stream:
        stream.write(data)


def read_fst_value(stream: io.BufferedReader) -> Any:
    """Read an FST of a table: binary, or as text up to an empty line."""
    head = stream.peek(4)[:4]
    if head != _MAGIC:
        lines = []
        if head.startswith(b"\n"):
            stream.readline()
        while (line := stream.readline()).strip():
            lines.append(line)
        return kaldifst.compile(b"".join(lines).decode())
    raise UserError("a binary table of FSTs is not read here; write it as text (ark,t:).")


def write_fst_value(stream: IO[bytes], fst: Any, binary: bool) -> None:
    """Write an FST of a table: binary, or as text that begins on a line of its own and ends with an empty line."""
    stream.write(fst_bytes(fst) if binary else ("\n" + fst.to_str(fst_field_separator="\t") + "\n").encode())
