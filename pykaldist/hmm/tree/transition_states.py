"""The states at the head of a model, and how many phones, pdfs and transition-ids it has: read without numpy, so that programs start fast.

What they are is said in `transition_model.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.hmm.lang.topology import Topology
from pykaldist.io.tokens import TokenReader


@dataclass(frozen=True)
class TransitionStates:
    """The topology and the transition-states (phone, hmm_state, forward_pdf, self_loop_pdf) of a model."""

    topology: Topology
    tuples: list[tuple[int, int, int, int]]

    @property
    def num_phones(self) -> int:
        return len({phone for phone, _, _, _ in self.tuples})

    @property
    def num_pdfs(self) -> int:
        return 1 + max(max(forward, self_loop) for _, _, forward, self_loop in self.tuples)

    @property
    def num_transition_ids(self) -> int:
        return sum(len(self.topology.entry(phone)[hmm_state].transitions) for phone, hmm_state, _, _ in self.tuples)

    @classmethod
    def read(cls, reader: TokenReader) -> TransitionStates:
        """Read a transition model up to its probabilities, binary or text."""
        reader.expect("<TransitionModel>")
        topology = Topology.read(reader)
        kind = reader.token()
        if kind not in ("<Triples>", "<Tuples>"):
            raise reader.error(f"expected <Triples> or <Tuples>, found {kind!r}")
        width = 3 if kind == "<Triples>" else 4
        tuples = []
        for _ in range(reader.count("transition-states", 2 * width)):
            phone, hmm_state, forward = reader.integer(), reader.integer(), reader.integer()
            self_loop = forward if width == 3 else reader.integer()
            if phone not in topology.phone_entry or not 0 <= hmm_state < len(topology.entry(phone)) - 1 or min(forward, self_loop) < 0:
                raise reader.error(f"transition-state (phone {phone}, state {hmm_state}, pdf {forward}) is not in the topology")
            tuples.append((phone, hmm_state, forward, self_loop))
        if not tuples:
            raise reader.error("the transition model has no states")
        reader.expect(kind.replace("<", "</"))
        return cls(topology, tuples)

    def skip_probabilities(self, reader: TokenReader) -> None:
        """Read over what is behind the states; raises UserError where there is not a probability for each transition-id."""
        reader.expect("<LogProbs>")
        self.check_count(reader, reader.skip_vector())
        reader.expect("</LogProbs>", "</TransitionModel>")

    def check_count(self, reader: TokenReader, found: int) -> None:
        """Check that there is a probability for each transition-id, and one for 0."""
        if found != self.num_transition_ids + 1:
            raise reader.error(f"expected {self.num_transition_ids + 1} transition probabilities, found {found}")
