"""Sequences whose items are made when they are asked for, beside a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.io.numbered import Numbered


class Squares(Numbered[int]):
    """The squares of the first numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def item(self, number: int) -> int:
        assert 0 <= number < self.count
        return number * number


@given(count=st.integers(0, 12), data=st.data())
def test_it_is_indexed_as_a_list_is(count, data):
    squares, expected = Squares(count), [n * n for n in range(count)]
    part = data.draw(st.slices(max(count, 1)))
    assert squares[part] == expected[part]
    assert list(squares) == expected
    number = data.draw(st.integers(-15, 15))
    if -count <= number < count:
        assert squares[number] == expected[number]
    else:
        with pytest.raises(IndexError):
            squares[number]
