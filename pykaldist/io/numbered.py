"""Sequences whose items are made when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Numbered(Sequence[T], ABC):
    """A sequence that makes its items one by one, from their numbers; a slice of it is a list."""

    @abstractmethod
    def item(self, number: int) -> T:
        """Item `number`, which is at least 0 and less than the length."""

    @overload
    def __getitem__(self, number: int) -> T: ...

    @overload
    def __getitem__(self, number: slice) -> list[T]: ...

    def __getitem__(self, number: int | slice) -> T | list[T]:
        numbers = range(len(self))
        return [self.item(n) for n in numbers[number]] if isinstance(number, slice) else self.item(numbers[number])
