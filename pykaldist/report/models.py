"""Models in numbers: what kind of model a folder holds, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.hmm.gmm.model_files import read_model, read_transition_model
from pykaldist.nnet.describe import describe
from pykaldist.nnet.kinds import kind_of
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet3.model import Nnet3Model, is_nnet3_model


@dataclass
class ModelFacts:
    """A model: its kind, its size as (name, number), and a table of its layers where it is a network."""

    kind: str
    numbers: dict[str, int] = field(default_factory=dict)
    layers: str = ""

    def __str__(self) -> str:
        return ", ".join([self.kind, *(f"{number:,} {name}" for name, number in self.numbers.items())])


def model_facts(folder: Path) -> ModelFacts | None:
    """Describe the model of an experiment's folder; None where it holds none. Raises UserError where one is damaged."""
    if (folder / "final.pt").is_file():
        network = Network.load(folder / "final.pt")
        model = network.model
        return ModelFacts(kind_of(network.options), {"parameters": len(model.params), "outputs": model.output_dim},
                          describe(network.options, model, list(network.transform.splice)))
    final = folder / "final.mdl"
    if not final.is_file():
        return None
    if is_nnet3_model(final):
        count = Nnet3Model.read(final).nnet.num_params
        return ModelFacts("nnet3", {"parameters": count, "pdfs": read_transition_model(final).num_pdfs,
                                    "frames in, one out": read_subsampling(folder)})
    transitions, gmm = read_model(final)
    return ModelFacts("GMM", {"pdfs": transitions.num_pdfs, "Gaussians": gmm.num_gauss})
