r"""Reader of tokens, numbers and lists of integers, of which Kaldi's files are made; `kaldi.py` adds arrays, and says how they look.

It needs no numpy, so that a program which reads only these (tree-info) starts fast.
"""

from __future__ import annotations

import struct

from pykaldist.errors import UserError
from pykaldist.io.entries import reason

_SPACE = b" \t\r\n"
_LONGEST_TOKEN = 128


class TokenReader:
    """Reads tokens, numbers and lists of integers one after another from a file that is held in memory.

    Every method raises UserError, with the file and the byte, where the file ends early or has something else. A length is
    checked against what is left of the file before anything is allocated.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.binary = data[:2] == b"\0B"
        self.pos = 2 if self.binary else 0

    def error(self, problem: str) -> UserError:
        """Make a UserError that says where the reader is: file, byte, and the size of the file."""
        return UserError(f"{self.name}, byte {self.pos} of {len(self.data)}: {problem}; the file is damaged or of another kind.")

    def at_end(self) -> bool:
        """True where nothing but white space is left."""
        return not self.data[self.pos:self.pos + _LONGEST_TOKEN].strip() and not self.data[self.pos:].strip()

    def _skip_space(self) -> None:
        while self.data[self.pos:self.pos + 1] in (b" ", b"\t", b"\r", b"\n"):
            self.pos += 1

    def _word(self) -> tuple[str, int]:
        """The next word and the position after it; nothing is consumed but white space before it."""
        self._skip_space()
        window = self.data[self.pos:self.pos + _LONGEST_TOKEN]
        length = next((i for i, byte in enumerate(window) if byte in _SPACE), len(window))
        if length == 0:
            raise self.error("expected a token, found the end of the file")
        if length == _LONGEST_TOKEN:
            raise self.error(f"expected a token, found {window[:20]!r}...")
        return window[:length].decode("ascii", "backslashreplace"), self.pos + length

    def peek_token(self) -> str:
        """The next token, which stays to be read."""
        return self._word()[0]

    def token(self) -> str:
        """Read the next token and the space behind it."""
        word, end = self._word()
        self.pos = min(end + 1, len(self.data))
        return word

    def expect(self, *tokens: str) -> None:
        """Read these tokens in this order; raises UserError where others stand there."""
        for expected in tokens:
            found, end = self._word()
            if found != expected:
                raise self.error(f"expected {expected}, found {found!r}")
            self.pos = min(end + 1, len(self.data))

    def _take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.pos:
            raise self.error(f"expected {count} more bytes, found {len(self.data) - self.pos}")
        self.pos += count
        return self.data[self.pos - count:self.pos]

    def _sized(self, formats: dict[int, str], what: str) -> float:
        size = struct.unpack("b", self._take(1))[0]
        if size not in formats:
            self.pos -= 1
            raise self.error(f"expected {what}, found the size byte {size}")
        return struct.unpack(formats[size], self._take(abs(size)))[0]

    def integer(self) -> int:
        """Read a sized integer of 1, 2, 4 or 8 bytes, signed or not, whose value an int32 can hold."""
        start = self.pos
        if self.binary:
            value = int(self._sized({1: "<b", -1: "<B", 2: "<h", -2: "<H", 4: "<i", -4: "<I", 8: "<q", -8: "<Q"}, "an integer"))
        else:
            word = self.token()
            try:
                value = int(word)
            except ValueError as error:
                self.pos = start
                raise self.error(f"expected an integer, found {word!r}") from error
        if not -(2**31) <= value < 2**31:
            self.pos = start
            raise self.error(f"expected an integer of 32 bits, found {value}")
        return value

    def floating(self) -> float:
        """Read a sized float or double."""
        if self.binary:
            return float(self._sized({4: "<f", 8: "<d"}, "a number"))
        start, word = self.pos, self.token()
        try:
            return float(word)
        except ValueError as error:
            self.pos = start
            raise self.error(f"expected a number, found {word!r}") from error

    def boolean(self) -> bool:
        """Read `T` or `F`."""
        if not self.binary:
            self._skip_space()
        letter = self._take(1)
        if letter not in (b"T", b"F"):
            self.pos -= 1
            raise self.error(f"expected T or F, found {letter!r}")
        return letter == b"T"

    def count(self, what: str, least_bytes: int = 1) -> int:
        """Read an integer that says how many `what` follow: not negative, and not more than the rest of the file can hold."""
        start, number = self.pos, self.integer()
        if number < 0 or number * least_bytes > len(self.data) - self.pos:
            self.pos = start
            raise self.error(f"expected a number of {what}, found {number} where {len(self.data) - start} bytes are left")
        return number

    def int_list(self) -> list[int]:
        """Read a vector of int32 (Kaldi's WriteIntegerVector) as a list."""
        if self.binary:
            if self._take(1) != b"\4":
                self.pos -= 1
                raise self.error("expected a vector of int32")
            length = struct.unpack("<i", self._take(4))[0]
            return list(struct.unpack(f"<{max(length, 0)}i", self._take(4 * length)))
        self.expect("[")
        values = []
        while self.peek_token() != "]":
            values.append(self.integer())
        self.expect("]")
        return values

    def pair_list(self) -> list[tuple[int, int]]:
        """Read a vector of pairs of int32 (Kaldi's WriteIntegerPairVector) as a list."""
        if self.binary:
            if self._take(1) != b"\4":
                self.pos -= 1
                raise self.error("expected a vector of pairs of int32")
            length = max(struct.unpack("<i", self._take(4))[0], 0)
            values = struct.unpack(f"<{2 * length}i", self._take(8 * length))
            return list(zip(values[::2], values[1::2], strict=True))
        self.expect("[")
        pairs = []
        while (word := self.token()) != "]":
            first, comma, second = word.partition(",")
            if not comma or not all(part.lstrip("-").isdecimal() for part in (first, second)):
                raise self.error(f"expected pairs of integers as 1,2 and ], found {word!r}")
            pairs.append((int(first), int(second)))
        return pairs

    def skip_vector(self) -> int:
        """Read over a vector of floats or doubles; returns its length."""
        if not self.binary:
            return sum(map(len, self.bracketed()))
        width = self._width("V", "vector")
        length = self.count("elements", width)
        self._take(length * width)
        return length

    def skip_matrix(self) -> tuple[int, int]:
        """Read over a matrix of floats or doubles; returns its rows and columns."""
        if not self.binary:
            rows = self.bracketed()
            if len(set(map(len, rows))) > 1:
                raise self.error("expected matrix rows of equal length")
            return len(rows), len(rows[0]) if rows else 0
        width = self._width("M", "matrix")
        dims = self.integer(), self.integer()
        if min(dims) < 0 or (dims[0] == 0) != (dims[1] == 0):
            raise self.error(f"expected the dimensions of a matrix, found {dims[0]} x {dims[1]}")
        self._take(dims[0] * dims[1] * width)
        return dims

    def _width(self, letter: str, what: str) -> int:
        """Read the token before a vector, matrix or packed matrix; returns the bytes of an element."""
        found, end = self._word()
        if found not in ("F" + letter, "D" + letter):
            raise self.error(f"expected a {what} of float or double, found {found!r}")
        self.pos = end + 1
        return 4 if found[0] == "F" else 8

    def bracketed(self) -> list[list[float]]:
        """Read the numbers between `[` and `]` of a text file, line by line, without the lines that have none."""
        self._skip_space()
        end = self.data.find(b"]", self.pos)
        if self.data[self.pos:self.pos + 1] != b"[" or end < 0:
            raise self.error("expected numbers in [ ]")
        try:
            rows = [[float(word) for word in line.split()] for line in self.data[self.pos + 1:end].split(b"\n")]
        except ValueError as error:
            raise self.error(f"expected numbers in [ ] ({reason(error)})") from error
        self.pos = end + 1
        return [row for row in rows if row]
