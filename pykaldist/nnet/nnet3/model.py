"""nnet3 files: a raw network, and `final.mdl` (transition model, network, its context, priors), binary and text, as Kaldi writes them.

A raw network is `<Nnet3>`, the lines of its nodes, an empty line, `<NumComponents>`, components, `</Nnet3>`. In a final.mdl the transition
model stands before it, `<LeftContext>`, `<RightContext>` and `<Priors>` behind it. Source: src/nnet3 of Kaldi 5.5.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor, Node, parse_node


@dataclass
class Nnet3:
    """An nnet3 network: its nodes by name, its components by name, both in the file's order."""

    nodes: dict[str, Node]
    components: dict[str, Nnet3Component]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Nnet3:
        """Read a raw network; raises UserError where the file is damaged, has an unknown component, or its parts do not fit."""
        reader = KaldiReader.open(path)
        nnet = cls.parse(reader)
        if not reader.at_end():
            raise reader.error("expected the end of the file")
        return nnet

    @classmethod
    def parse(cls, reader: KaldiReader) -> Nnet3:
        """Read the raw network that a reader stands at."""
        reader.expect("<Nnet3>")
        end = reader.data.find(b"\n\n", reader.pos)
        if end < 0:
            raise reader.error("expected the nodes of a network and an empty line")
        nodes: dict[str, Node] = {}
        try:
            for line in reader.data[reader.pos:end].decode("ascii", "backslashreplace").strip().split("\n"):
                node = parse_node(line)
                if node.name in nodes:
                    raise ValueError(f"node {node.name} is there twice")
                nodes[node.name] = node
        except ValueError as error:
            raise reader.error(str(error)) from error
        reader.pos = end
        reader.expect("<NumComponents>")
        components: dict[str, Nnet3Component] = {}
        for _ in range(reader.count("components", 20)):
            component = Nnet3Component.read(reader)
            if component.name in components:
                raise reader.error(f"component {component.name} is there twice")
            components[component.name] = component
        reader.expect("</Nnet3>")
        nnet = cls(nodes, components)
        try:
            nnet.check()
        except ValueError as error:
            raise reader.error(str(error)) from error
        return nnet

    def write_to(self, writer: KaldiWriter) -> None:
        """Write a raw network."""
        self.check()
        writer.token("<Nnet3>")
        writer.stream.write("".join(["\n", *(f"{node}\n" for node in self.nodes.values()), "\n"]).encode("ascii"))
        writer.token("<NumComponents>")
        writer.integer(len(self.components))
        writer.end_line()
        for component in self.components.values():
            component.write(writer)
        writer.token("</Nnet3>")

    def write(self, path: str | os.PathLike[str], binary: bool = True) -> None:
        """Write a raw network to a file, atomically."""
        with atomic_open(path, "wb") as stream:
            self.write_to(KaldiWriter(stream, binary))

    def dim(self, name: str) -> int:
        """The dimension of a node's output."""
        node = self.nodes[name]
        if node.kind == "component-node":
            return self.components[node.component].output_dim
        if node.input is None or node.kind == "dim-range-node":
            return int(node.values["dim"])
        return self.descriptor_dim(node.input)

    def taken_by(self, name: str) -> Descriptor | None:
        """The descriptor that a node computes with: none of inputs, and of dropout masks, whose lines name themselves."""
        node = self.nodes[name]
        masks = node.kind == "component-node" and self.components[node.component].type == "DropoutMaskComponent"
        return None if masks else node.input

    def descriptor_dim(self, descriptor: Descriptor) -> int:
        """The dimension of a descriptor's value; raises ValueError where those of its parts do not fit."""
        if not descriptor.function:
            if descriptor.node not in self.nodes or self.nodes[descriptor.node].kind == "output-node":
                raise ValueError(f"there is no node {descriptor.node} to take input from")
            return self.dim(descriptor.node)
        if descriptor.function == "Const":
            return int(descriptor.numbers[1])
        dims = [self.descriptor_dim(part) for part in descriptor.parts]
        if descriptor.function == "Append":
            return sum(dims)
        if len(set(dims)) > 1:
            raise ValueError(f"{descriptor} has parts of dimensions {', '.join(map(str, dims))}")
        return dims[0]

    def check(self) -> None:
        """Raise ValueError where a node or a component is missing, or dimensions do not fit."""
        for node in self.nodes.values():
            if node.kind == "component-node" and node.component not in self.components:
                raise ValueError(f"node {node.name} is of the component {node.component}, which is not there")
        for node in self.nodes.values():
            if node.input is None:
                continue
            found = self.descriptor_dim(node.input)
            if node.kind == "component-node" and found != (expected := self.components[node.component].input_dim):
                raise ValueError(f"node {node.name} has input of dimension {found}, its component takes {expected}")
            if node.kind == "dim-range-node" and int(node.values["dim-offset"]) + int(node.values["dim"]) > found:
                raise ValueError(f"node {node.name} takes dimensions beyond the {found} of {node.input}")

    @property
    def num_params(self) -> int:
        return sum(component.num_params for component in self.components.values())


@dataclass
class Nnet3Model:
    """A final.mdl: transition model, network, the frames of context that an output needs, priors of pdfs (empty: none)."""

    transition_model: TransitionModel
    nnet: Nnet3
    left_context: int
    right_context: int
    priors: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Nnet3Model:
        """Read a final.mdl; raises UserError where it is damaged, or transition model and network do not fit."""
        return cls.parse(KaldiReader.open(path))

    @classmethod
    def parse(cls, reader: KaldiReader) -> Nnet3Model:
        """Read the model that a reader stands at, and which is all that is left."""
        transition_model, nnet = TransitionModel.read(reader), Nnet3.parse(reader)
        reader.expect("<LeftContext>")
        left = reader.integer()
        reader.expect("<RightContext>")
        right = reader.integer()
        reader.expect("<Priors>")
        model = cls(transition_model, nnet, left, right, reader.vector())
        if not reader.at_end():
            raise reader.error("expected the end of the file")
        if "output" in nnet.nodes and not transition_model.num_pdfs == nnet.dim("output") == (len(model.priors) or nnet.dim("output")):
            raise reader.error(f"the transition model has {transition_model.num_pdfs} pdfs, the network {nnet.dim('output')} outputs "
                               f"and {len(model.priors)} priors")
        return model

    def write_to(self, writer: KaldiWriter) -> None:
        """Write a final.mdl."""
        self.transition_model.write(writer)
        self.nnet.write_to(writer)
        writer.token("<LeftContext>")
        writer.integer(self.left_context)
        writer.token("<RightContext>")
        writer.integer(self.right_context)
        writer.token("<Priors>")
        writer.vector(self.priors)

    def write(self, path: str | os.PathLike[str], binary: bool = True) -> None:
        """Write a final.mdl, atomically."""
        with atomic_open(path, "wb") as stream:
            self.write_to(KaldiWriter(stream, binary))


def is_nnet3_model(path: str | os.PathLike[str]) -> bool:
    """Whether a model file has an nnet3 network behind its transition model, which is not read."""
    reader, end = KaldiReader.open(path), b"</TransitionModel>"
    reader.pos = reader.data.find(end)
    return reader.pos >= 0 and reader.data[reader.pos + len(end):reader.pos + 128].lstrip().startswith(b"<Nnet3> ")
