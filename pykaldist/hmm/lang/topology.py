"""HMM topology: for each phone its states, their pdf-classes, and the transitions between them with initial probabilities.

The last state of a phone is final: it has no pdf-class and no transitions. State 0 is where the phone is entered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykaldist.errors import UserError
from pykaldist.io.tokens import TokenReader

if TYPE_CHECKING:
    from pykaldist.io.kaldi import KaldiWriter

NO_PDF = -1


@dataclass(frozen=True)
class HmmState:
    """A state of an HMM: its pdf-class (-1 in the final state), that of its self-loop, and (destination, probability) pairs."""

    forward_pdf_class: int
    self_loop_pdf_class: int
    transitions: tuple[tuple[int, float], ...]


Entry = tuple[HmmState, ...]


class Topology:
    """The HMM topology of all phones: HMM prototypes, and which phones have which.

    `entries` are the prototypes, `phone_entry` maps a phone to its index in them. Raises UserError for a topology that no HMM
    can have.
    """

    def __init__(self, entries: Sequence[Entry], phone_entry: dict[int, int], where: str = "topology") -> None:
        self.entries, self.phone_entry = tuple(entries), dict(sorted(phone_entry.items()))
        for phone in self.phone_entry:
            if phone < 1:
                raise UserError(f"{where}: phone {phone} is no phone number; phones are numbered from 1.")
        for number, entry in enumerate(self.entries):
            _check(entry, f"{where}, entry {number + 1}")
        self._min_lengths = [_min_length(entry) for entry in self.entries]

    @property
    def phones(self) -> list[int]:
        return list(self.phone_entry)

    @property
    def is_hmm(self) -> bool:
        """True if in every state the self-loop has the pdf-class of the forward transition (not so in chain models)."""
        return all(s.forward_pdf_class == s.self_loop_pdf_class for entry in self.entries for s in entry)

    def entry(self, phone: int) -> Entry:
        """The prototype of `phone`."""
        if phone not in self.phone_entry:
            raise UserError(f"phone {phone} has no topology; the model and the language directory do not belong together.")
        return self.entries[self.phone_entry[phone]]

    def num_pdf_classes(self, phone: int) -> int:
        return 1 + max(max(s.forward_pdf_class, s.self_loop_pdf_class) for s in self.entry(phone))

    def min_length(self, phone: int) -> int:
        """The least number of frames that `phone` takes."""
        self.entry(phone)
        return self._min_lengths[self.phone_entry[phone]]

    @classmethod
    def read(cls, reader: TokenReader) -> Topology:
        """Read `<Topology> ... </Topology>`, binary or text."""
        reader.expect("<Topology>")
        if not reader.binary:
            return cls(*_read_text(reader), reader.name)
        phones, phone_entry = reader.int_list(), reader.int_list()
        count = reader.integer()
        is_hmm = count != -1  # -1 stands before the count where self-loops have pdf-classes of their own
        if not is_hmm:
            count = reader.integer()
        entries = []
        for _ in range(count):
            states = []
            for _ in range(reader.count("states", 5)):
                forward = reader.integer()
                self_loop = forward if is_hmm else reader.integer()
                transitions = tuple((reader.integer(), reader.floating()) for _ in range(reader.count("transitions", 5)))
                states.append(HmmState(forward, self_loop, transitions))
            entries.append(tuple(states))
        reader.expect("</Topology>")
        if any(not (0 <= p < len(phone_entry) and 0 <= phone_entry[p] < len(entries)) for p in phones):
            raise reader.error("the topology has phones without an entry")
        return cls(entries, {p: phone_entry[p] for p in phones}, reader.name)

    def write(self, writer: KaldiWriter) -> None:
        """Write the topology as Kaldi does."""
        writer.token("<Topology>")
        if writer.binary:
            self._write_binary(writer)
        else:
            writer.end_line()
            for number, entry in enumerate(self.entries):
                self._write_text_entry(writer, number, entry)
        writer.token("</Topology>")
        writer.end_line()

    def _write_binary(self, writer: KaldiWriter) -> None:
        writer.int_list(self.phones)
        writer.int_list([self.phone_entry.get(phone, -1) for phone in range(max(self.phones) + 1)])
        if not self.is_hmm:
            writer.integer(-1)
        writer.integer(len(self.entries))
        for entry in self.entries:
            writer.integer(len(entry))
            for state in entry:
                writer.integer(state.forward_pdf_class)
                if not self.is_hmm:
                    writer.integer(state.self_loop_pdf_class)
                writer.integer(len(state.transitions))
                for to, probability in state.transitions:
                    writer.integer(to)
                    writer.floating(probability)

    def _write_text_entry(self, writer: KaldiWriter, number: int, entry: Entry) -> None:
        writer.token("<TopologyEntry>")
        writer.end_line()
        writer.token("<ForPhones>")
        writer.end_line()
        for phone, index in self.phone_entry.items():
            if index == number:
                writer.integer(phone)
        writer.end_line()
        writer.token("</ForPhones>")
        writer.end_line()
        for s, state in enumerate(entry):
            writer.token("<State>")
            writer.integer(s)
            if state.forward_pdf_class != NO_PDF:
                writer.token("<PdfClass>" if self.is_hmm else "<ForwardPdfClass>")
                writer.integer(state.forward_pdf_class)
                if not self.is_hmm:
                    writer.token("<SelfLoopPdfClass>")
                    writer.integer(state.self_loop_pdf_class)
            for to, probability in state.transitions:
                writer.token("<Transition>")
                writer.integer(to)
                writer.floating(probability)
            writer.token("</State>")
            writer.end_line()
        writer.token("</TopologyEntry>")
        writer.end_line()


def _check(entry: Entry, where: str) -> None:
    if len(entry) < 2:
        raise UserError(f"{where}: expected at least one emitting state and a final one, found {len(entry)} states.")
    for s, state in enumerate(entry):
        final = s == len(entry) - 1
        if final != (state.forward_pdf_class == NO_PDF) or final != (not state.transitions):
            raise UserError(f"{where}, state {s}: the last state, and no other, has neither pdf-class nor transitions.")
        destinations = [to for to, _ in state.transitions]
        if any(not 0 <= to < len(entry) for to in destinations) or len(set(destinations)) != len(destinations):
            raise UserError(f"{where}, state {s}: transitions to {destinations}; expected different states below {len(entry)}.")
        if any(not 0 < probability <= 1 for _, probability in state.transitions):
            raise UserError(f"{where}, state {s}: a transition probability is not in (0, 1].")


def _min_length(entry: Entry) -> int:
    best = [0] + [len(entry)] * (len(entry) - 1)
    for _ in entry:
        for s, state in enumerate(entry):
            for to, _ in state.transitions:
                best[to] = min(best[to], best[s] + 1)
    return best[-1]


def _read_text(reader: TokenReader) -> tuple[list[Entry], dict[int, int]]:
    entries: list[Entry] = []
    phone_entry: dict[int, int] = {}
    while reader.peek_token() != "</Topology>":
        reader.expect("<TopologyEntry>", "<ForPhones>")
        while reader.peek_token() != "</ForPhones>":
            phone = reader.integer()
            if phone in phone_entry:
                raise reader.error(f"phone {phone} is in two topology entries")
            phone_entry[phone] = len(entries)
        reader.expect("</ForPhones>")
        states: list[HmmState] = []
        while reader.peek_token() != "</TopologyEntry>":
            reader.expect("<State>")
            if reader.integer() != len(states):
                raise reader.error(f"expected state {len(states)}; states are listed in order")
            states.append(_read_text_state(reader))
        reader.expect("</TopologyEntry>")
        entries.append(tuple(states))
    reader.expect("</Topology>")
    return entries, phone_entry


def _read_text_state(reader: TokenReader) -> HmmState:
    forward = self_loop = NO_PDF
    transitions = []
    while (token := reader.token()) != "</State>":
        if token == "<PdfClass>":
            forward = self_loop = reader.integer()
        elif token == "<ForwardPdfClass>":
            forward = reader.integer()
        elif token == "<SelfLoopPdfClass>":
            self_loop = reader.integer()
        elif token == "<Transition>":
            transitions.append((reader.integer(), reader.floating()))
        else:
            raise reader.error(f"expected <PdfClass>, <Transition> or </State>, found {token!r}")
    return HmmState(forward, self_loop, tuple(transitions))


def read_topology(path: str | os.PathLike[str]) -> Topology:
    """Read the `topo` file of a language directory."""
    from pykaldist.io.kaldi import KaldiReader  # here and not above: programs that only show a model start faster without numpy

    return Topology.read(KaldiReader.open(path))


def bakis_topology_text(nonsilence: Sequence[int], silence: Sequence[int], num_nonsil_states: int = 3,
                        num_sil_states: int = 5) -> str:
    """The text of `topo` as Kaldi's gen_topo.pl writes it: left-to-right phones; silence ergodic in its inner states.

    A silence phone of one or two states is left-to-right too. Raises UserError for fewer than one state.
    """
    if num_nonsil_states < 1 or num_sil_states < 1:
        raise UserError("--num-nonsil-states and --num-sil-states: a phone needs at least one state, found "
                        f"{min(num_nonsil_states, num_sil_states)}.")
    bakis = [[(s, 0.75), (s + 1, 0.25)] for s in range(num_nonsil_states)]
    if num_sil_states > 2:
        last, p = num_sil_states - 1, 1 / (num_sil_states - 1)
        inner = [(to, p) for to in range(1, last + 1)]
        quiet = [[(to, p) for to in range(last)], *([inner] * (last - 1)), [(last, 0.75), (last + 1, 0.25)]]
    else:
        quiet = [[(s, 0.75), (s + 1, 0.25)] for s in range(num_sil_states)]
    lines = ["<Topology>"]
    for phones, states in ((nonsilence, bakis), (silence, quiet)):
        lines += ["<TopologyEntry>", "<ForPhones>", " ".join(map(str, phones)), "</ForPhones>"]
        for s, transitions in enumerate(states):
            arcs = " ".join(f"<Transition> {to} {p:.15g}" for to, p in transitions)
            lines.append(f"<State> {s} <PdfClass> {s} {arcs} </State>")
        lines += [f"<State> {len(states)} </State>", "</TopologyEntry>"]
    return "\n".join([*lines, "</Topology>", ""])


def chain_topology_text(phones: Sequence[int]) -> str:
    """The text of `topo` of chain (LF-MMI) models, as Kaldi's chain/gen_topo.py writes it.

    Each phone has one state, whose first frame has pdf-class 0 and whose further frames, by the self-loop, have pdf-class 1.
    """
    if not phones:
        raise UserError("a topology needs at least one phone.")
    return "\n".join([
        "<Topology>", "<TopologyEntry>", "<ForPhones>", " ".join(map(str, phones)), "</ForPhones>",
        "<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>", "<State> 1 </State>",
        "</TopologyEntry>", "</Topology>", ""])
