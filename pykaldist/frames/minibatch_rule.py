"""The rule of how many chunks a minibatch has, by their length, as Kaldi's scripts write it."""

from __future__ import annotations

from pykaldist.errors import UserError


class MinibatchRule:
    """How many chunks a minibatch has: `128`; `128,64`, the largest; `150=128,64/300=64`, by the length that is nearest, in frames.

    Raises UserError, with the `option` that gives it, where the text is no rule.
    """

    def __init__(self, text: str, option: str = "--num-chunk-per-minibatch") -> None:
        self.text = text
        try:
            self._sizes = {}
            for part in text.split("/"):
                of, equals, numbers = part.rpartition("=")
                sizes = [int(number) for some in numbers.split(",") for number in some.split(":")]
                self._sizes[int(of) if equals else 0] = max(sizes)
        except ValueError as error:
            raise UserError(f"{option} {text}: expected a number, as 128, some, as 128,64, or rules, as 150=128,64/300=64.") from error
        if min(self._sizes.values()) < 1:
            raise UserError(f"{option} {text}: expected at least one chunk.")

    def chunks(self, length: int) -> int:
        """The number of chunks of so many frames in a minibatch."""
        return self._sizes[min(self._sizes, key=lambda other: abs(other - length))]

    def __str__(self) -> str:
        return self.text
