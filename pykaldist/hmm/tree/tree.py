"""Phonetic decision trees, which map a window of phones and a pdf-class to a pdf.

A tree is an event map (Kaldi's tree/event-map.h). An event gives a value to each key: key 0 .. N-1 is the phone at that place of
the context window, key -1 the pdf-class. Three kinds of node: `Constant` is a leaf, `Split` asks whether a key's value is in a
set, `Table` looks a key's value up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykaldist.errors import UserError
from pykaldist.io.tokens import TokenReader

if TYPE_CHECKING:
    import numpy as np

    from pykaldist.io.kaldi import KaldiWriter

PDF_CLASS = -1
_FEW = 32  # windows that are sooner answered one after the other


@dataclass(frozen=True)
class Constant:
    """A leaf of a tree: the pdf."""

    answer: int


@dataclass(frozen=True)
class Split:
    """A node of a tree that asks a question: `yes` where the key's value is in `yes_set`, else `no`."""

    key: int
    yes_set: frozenset[int]
    yes: EventMap
    no: EventMap


@dataclass(frozen=True)
class Table:
    """A node of a tree that looks a value up: `table[value]`; None where no event leads."""

    key: int
    table: tuple[EventMap | None, ...]


EventMap = Constant | Split | Table


@dataclass(frozen=True)
class ContextDependency:
    """A tree over windows of `width` phones (Kaldi's N) in which place `central` (P) is the phone that is modelled."""

    width: int
    central: int
    to_pdf: EventMap

    def compute(self, window: Sequence[int], pdf_class: int) -> int:
        """The pdf of `pdf_class` of the central phone of `window` (N phones; 0 beyond the edges of an utterance).

        Raises UserError where the tree has no answer.
        """
        node: EventMap | None = self.to_pdf
        while not isinstance(node, Constant):
            if node is None:
                raise _no_answer(window, pdf_class)
            value = pdf_class if node.key == PDF_CLASS else window[node.key]
            if isinstance(node, Split):
                node = node.yes if value in node.yes_set else node.no
            else:
                node = node.table[value] if 0 <= value < len(node.table) else None
        return node.answer

    def pdfs(self, windows: np.ndarray, pdf_class: int) -> np.ndarray:
        """`compute` for all rows of `windows` (rows x N) at once: the pdf of each (int64).

        Raises UserError where the tree has no answer for a row.
        """
        import numpy as np  # not above: tree-info needs none, and starts faster so

        if len(windows) <= _FEW:
            return np.array([self.compute(window, pdf_class) for window in windows.tolist()], np.int64)
        answers = np.empty(len(windows), np.int64)
        stack: list[tuple[EventMap | None, np.ndarray]] = [(self.to_pdf, np.arange(len(windows)))]
        while stack:
            node, rows = stack.pop()
            if not len(rows):
                continue
            if isinstance(node, Constant):
                answers[rows] = node.answer
                continue
            if node is None:
                raise _no_answer(windows[rows[0]].tolist(), pdf_class)
            values = np.full(len(rows), pdf_class) if node.key == PDF_CLASS else windows[rows, node.key]
            if isinstance(node, Split):
                inside = np.isin(values, list(node.yes_set))
                stack += [(node.yes, rows[inside]), (node.no, rows[~inside])]
            else:
                for value in np.unique(values).tolist():
                    stack.append((node.table[value] if 0 <= value < len(node.table) else None, rows[values == value]))
        return answers

    def possible_pdfs(self, phone: int, pdf_class: int) -> list[int]:
        """All pdfs that `pdf_class` of `phone` can have in any context, sorted."""
        known = {self.central: phone, PDF_CLASS: pdf_class}
        found: set[int] = set()
        stack: list[EventMap | None] = [self.to_pdf]
        while stack:
            node = stack.pop()
            if isinstance(node, Constant):
                found.add(node.answer)
            elif isinstance(node, Split):
                if node.key not in known:
                    stack += [node.yes, node.no]
                else:
                    stack.append(node.yes if known[node.key] in node.yes_set else node.no)
            elif node is not None:
                if node.key not in known:
                    stack += node.table
                elif 0 <= known[node.key] < len(node.table):
                    stack.append(node.table[known[node.key]])
        return sorted(found)

    @property
    def num_pdfs(self) -> int:
        return 1 + max(leaf.answer for leaf in leaves(self.to_pdf))

    @classmethod
    def read(cls, reader: TokenReader) -> ContextDependency:
        """Read `ContextDependency ... EndContextDependency`, binary or text."""
        reader.expect("ContextDependency")
        width, central = reader.integer(), reader.integer()
        if not 0 <= central < width:
            raise reader.error(f"expected a central place below the width {width}, found {central}")
        reader.expect("ToPdf")
        try:
            to_pdf = _read(reader, width)
        except RecursionError as error:
            raise reader.error("the tree is too deep") from error
        if to_pdf is None:
            raise reader.error("the tree is empty")
        reader.expect("EndContextDependency")
        return cls(width, central, to_pdf)

    def write(self, writer: KaldiWriter) -> None:
        """Write the tree as Kaldi does."""
        writer.token("ContextDependency")
        writer.integer(self.width)
        writer.integer(self.central)
        writer.token("ToPdf")
        _write(writer, self.to_pdf)
        writer.token("EndContextDependency")


def _no_answer(window: Sequence[int], pdf_class: int) -> UserError:
    return UserError(f"the tree has no pdf for phones {list(window)}, pdf-class {pdf_class}; "
                     "the tree and the language directory do not belong together.")


def leaves(node: EventMap | None) -> Iterator[Constant]:
    """All leaves below a node."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Constant):
            yield node
        elif isinstance(node, Split):
            stack += [node.yes, node.no]
        elif node is not None:
            stack += node.table


def _read(reader: TokenReader, width: int) -> EventMap | None:
    token = reader.token()
    if token == "NULL":
        return None
    if token not in ("CE", "SE", "TE"):
        raise reader.error(f"expected CE, SE, TE or NULL, found {token!r}")
    key = reader.integer()
    if token == "CE":
        if key < 0:
            raise reader.error(f"expected a pdf, found {key}")
        return Constant(key)
    if not PDF_CLASS <= key < width:
        raise reader.error(f"expected a key from -1 to {width - 1}, found {key}")
    if token == "TE":
        size = reader.count("tree nodes", 3)
        reader.expect("(")
        table = tuple(_read(reader, width) for _ in range(size))
        reader.expect(")")
        return Table(key, table)
    yes_set = frozenset(reader.int_list())
    reader.expect("{")
    yes, no = _read(reader, width), _read(reader, width)
    if yes is None or no is None:
        raise reader.error("a split of the tree has an empty side")
    reader.expect("}")
    return Split(key, yes_set, yes, no)


def _write(writer: KaldiWriter, node: EventMap | None) -> None:
    if node is None:
        writer.token("NULL")
    elif isinstance(node, Constant):
        writer.token("CE")
        writer.integer(node.answer)
    elif isinstance(node, Table):
        writer.token("TE")
        writer.integer(node.key)
        writer.integer(len(node.table), unsigned=True)
        writer.token("(")
        for child in node.table:
            _write(writer, child)
        writer.token(")")
        writer.end_line()
    else:
        writer.token("SE")
        writer.integer(node.key)
        writer.int_list(sorted(node.yes_set))
        writer.token("{")
        _write(writer, node.yes)
        _write(writer, node.no)
        writer.token("}")
        writer.end_line()


def root_map(phone_sets: Sequence[Sequence[int]], central: int, shared: Sequence[bool], num_pdf_classes: Callable[[int], int],
             answers: Iterator[EventMap]) -> EventMap:
    """The map from the central phone to what `answers` gives for its set: one answer where `shared`, else one for each pdf-class.

    The shape is that of Kaldi's GetStubMap: sets are halved until one is left, or until each has one phone and a table by phone is shorter.
    """
    if len(phone_sets) == 1:
        if shared[0]:
            return next(answers)
        return Table(PDF_CLASS, tuple(next(answers) for _ in range(max(map(num_pdf_classes, phone_sets[0])))))
    highest = max(map(max, phone_sets))
    if max(map(len, phone_sets)) == 1 and len(phone_sets) <= 2 * highest:
        by_phone = {phones[0]: root_map([phones], central, [one], num_pdf_classes, answers)
                    for phones, one in zip(phone_sets, shared, strict=True)}
        return Table(central, tuple(by_phone.get(phone) for phone in range(highest + 1)))
    half = len(phone_sets) // 2
    yes_set = frozenset(phone for phones in phone_sets[:half] for phone in phones)
    return Split(central, yes_set, root_map(phone_sets[:half], central, shared[:half], num_pdf_classes, answers),
                 root_map(phone_sets[half:], central, shared[half:], num_pdf_classes, answers))


def monophone_tree(phone_sets: Sequence[Sequence[int]], num_pdf_classes: Callable[[int], int]) -> ContextDependency:
    """The tree of a monophone system in which the phones of each set share their pdfs (Kaldi's gmm-init-mono --shared-phones).

    Pdfs are numbered set by set, and within a set by pdf-class.
    """
    if not phone_sets or not all(phone_sets):
        raise UserError("a monophone tree needs at least one phone in each set; check phones/sets.int.")
    leaf = (Constant(number) for number in itertools.count())
    return ContextDependency(1, 0, root_map(phone_sets, 0, [False] * len(phone_sets), num_pdf_classes, leaf))
