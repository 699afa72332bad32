"""Values of archives whose numbers are not looked at until they are asked for: copies, and sizes, need no numpy."""

from __future__ import annotations

import io
import struct
from typing import IO, TYPE_CHECKING, Any

from pykaldist.io.raw_values import COMPRESSED, INTEGERS, RawValue, read_raw

if TYPE_CHECKING:
    import numpy as np


class LazyValue(RawValue):
    """A matrix, a vector, or a vector of integers."""

    @classmethod
    def of(cls, value: np.ndarray) -> LazyValue:
        """The value of an array: int32, float64, or else float32."""
        from pykaldist.io.table_streams import write_value

        stream = io.BytesIO()
        write_value(stream, value, True)
        stream.seek(0)
        return read_lazy(io.BufferedReader(stream))

    def array(self) -> np.ndarray:
        """The value as float32, float64 or int32."""
        from pykaldist.io.archive import array_of

        return array_of(self)

    def __getitem__(self, index: Any) -> LazyValue:
        return LazyValue.of(self.array()[index])

    def integers(self) -> list[int]:
        """The numbers of a vector of integers."""
        return [value for value, in struct.iter_unpack("<xi", self.content)]

    def binary(self) -> bytes:
        r"""Its binary form, from `\0B` on; a compressed matrix becomes one of floats."""
        if self.kind in COMPRESSED:
            return LazyValue.of(self.array()).binary()
        dims = b"".join(struct.pack("<bi", 4, dim) for dim in self.shape)
        return b"\0B" + (b"" if self.kind == INTEGERS else self.kind.encode() + b" ") + dims + self.content


def read_lazy(stream: io.BufferedReader) -> LazyValue:
    """Read the value at the stream's position, binary or text. Raises one of DAMAGE."""
    if stream.peek(1)[:1] == b"\0":
        raw = read_raw(stream)
        return LazyValue(raw.kind, raw.shape, raw.content)
    from pykaldist.io.archive import read_value

    return LazyValue.of(read_value(stream))


def read_lazy_ints(stream: io.BufferedReader) -> LazyValue:
    """Read a vector of integers, binary or text; raises ValueError for values of another kind."""
    if stream.peek(1)[:1] not in (b"\0", b"["):
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise EOFError("its last line has no end")
        try:
            numbers = [int(field) for field in line.split()]
            return LazyValue(INTEGERS, (len(numbers),), b"".join(struct.pack("<bi", 4, number) for number in numbers))
        except (ValueError, struct.error) as error:
            raise ValueError("expected a vector of integers, found other numbers") from error
    value = read_lazy(stream)
    if value.kind != INTEGERS:
        raise ValueError(f"expected a vector of integers, found {'a matrix' if value.ndim == 2 else 'other numbers'}")
    return value


def write_lazy(stream: IO[bytes], value: LazyValue, binary: bool) -> None:
    """Write a matrix, a vector, or a vector of integers."""
    if binary:
        stream.write(value.binary())
    elif value.kind == INTEGERS:
        stream.write(b"".join(b"%d " % number for number in value.integers()) + b"\n")
    else:
        from pykaldist.io.table_streams import write_value

        write_value(stream, value.array(), False)
