"""Programs on networks of nnet3: what is in them, copies, models made of them, features through them."""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.archive import read_value
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_table, write_value
from pykaldist.io.xfilenames import open_wxfilename
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.programs.matrices import say
from pykaldist.programs.models import kaldi_reader, read_transition_model


def _raw(rxfilename: str) -> Nnet3:
    """Read a raw network."""
    reader = kaldi_reader(rxfilename)
    if reader.peek_token() == "<TransitionModel>":
        raise UserError(f"{rxfilename} is a model, not a raw network; give 'nnet3-am-copy --raw=true {rxfilename} - |'.")
    nnet = Nnet3.parse(reader)
    if not reader.at_end():
        raise reader.error("expected the end of the file")
    return nnet


def _write(nnet: Nnet3 | Nnet3Model, wxfilename: str, binary: bool) -> None:
    with open_wxfilename(wxfilename) as stream:
        nnet.write_to(KaldiWriter(stream, binary))


def _changed(nnet: Nnet3, prepare_for_test: bool, learning_rate: float) -> Nnet3:
    """The network with another learning rate (times each component's factor; below 0: as it is), and for the test where asked."""
    from pykaldist.nnet.nnet3.prepare import prepare_for_test as prepare

    if learning_rate >= 0:
        for component in nnet.components.values():
            if "LearningRate" in component.values:
                factor = component.number("LearningRateFactor") if "LearningRateFactor" in component.values else 1.0
                component.values["LearningRate"] = learning_rate * factor
    return prepare(nnet) if prepare_for_test else nnet


def _print_info(nnet: Nnet3) -> None:
    plan = Plan(nnet)
    print(f"left-context: {plan.left_context}\nright-context: {plan.right_context}\nnum-parameters: {nnet.num_params}\n"
          f"modulus: {plan.modulus}")
    for node in nnet.nodes.values():
        if node.kind == "component-node":
            component = nnet.components[node.component]
            print(f"{node} input-dim={component.input_dim} output-dim={component.output_dim}")
        elif node.kind == "output-node":
            objective = node.values.get("objective", "linear")
            print(f"output-node name={node.name} input={node.input} dim={nnet.dim(node.name)} objective={objective}")
        else:
            print(node)
    for component in nnet.components.values():
        print(", ".join([f"component name={component.name} type={component.type}", *_facts(component)]))


def _facts(component: Nnet3Component) -> list[str]:
    """What Kaldi's info says of a component, but for the distributions of its values."""
    names = {"LearningRate": "learning-rate", "L2Regularize": "l2-regularize", "LearningRateFactor": "learning-rate-factor",
             "MaxChange": "max-change", "OrthonormalConstraint": "orthonormal-constraint", "SelfRepairScale": "self-repair-scale",
             "BlockDim": "block-dim", "Epsilon": "epsilon", "TargetRms": "target-rms", "DropoutProportion": "dropout-proportion"}
    one_dim = "Dim" in component.values
    facts = [f"dim={component.input_dim}"] if one_dim else [f"input-dim={component.input_dim}", f"output-dim={component.output_dim}"]
    facts += [f"{name}={component.number(token):g}" for token, name in names.items()
              if token in component.values and (token != "OrthonormalConstraint" or component.number(token))]
    if "Count" in component.values and component.number("Count"):
        facts.append(f"count={component.number('Count'):{'g' if component.type == 'BatchNormComponent' else '.3g'}}")
    if component.type == "TdnnComponent":
        facts.append(f"time-offsets={','.join(map(str, component.time_offsets))}")
    if not one_dim and component.type != "FixedBiasComponent":
        name = "params" if component.type == "LinearComponent" else "linear-params"
        facts.append(f"{name}-rms={np.sqrt(np.mean(component.linear.astype(np.float64) ** 2)):.4g}")
    return facts


def nnet3_info(nnet: str) -> None:
    """Print what is in a raw network: its context, its parameters, its nodes and components.

    Usage: nnet3-info <raw-nnet>
    e.g.: nnet3-info exp/chain/tdnn/0.raw | grep context
    """
    _print_info(_raw(nnet))


def nnet3_am_info(model: str) -> None:
    """Print what is in a model with an nnet3 network: its dimensions, and what nnet3-info prints of the network.

    Usage: nnet3-am-info <model>
    e.g.: nnet3-am-info exp/chain/tdnn/final.mdl | grep num-pdfs
    """
    found = Nnet3Model.parse(kaldi_reader(model))
    dims = [found.nnet.dim(name) if name in found.nnet.nodes else -1 for name in ("input", "ivector", "output")]
    print(f"input-dim: {dims[0]}\nivector-dim: {dims[1]}\nnum-pdfs: {dims[2]}\nprior-dimension: {len(found.priors)}")
    print("# Nnet info follows.")
    _print_info(found.nnet)


def nnet3_copy(source: str, target: str, *, binary: bool = True, learning_rate: float = -1.0, prepare_for_test: bool = False) -> None:
    """Copy a raw network.

    Usage: nnet3-copy [options] <raw-nnet> <raw-nnet>
    e.g.: nnet3-copy --binary=false final.raw final.txt

    Options:
      --binary: write binary (default: true)
      --learning-rate: the new learning rate, times each component's factor (default: -1: as it is)
      --prepare-for-test: batch normalisation and dropout in test mode, affine components behind each other made one (default: false)
    """
    _write(_changed(_raw(source), prepare_for_test, learning_rate), target, binary)


def nnet3_am_copy(source: str, target: str, *, binary: bool = True, learning_rate: float = -1.0, prepare_for_test: bool = False,
                  raw: bool = False) -> None:
    """Copy a model with an nnet3 network, or its network alone.

    Usage: nnet3-am-copy [options] <model> <model|raw-nnet>
    e.g.: nnet3-am-copy --raw=true final.mdl final.raw

    Options:
      --binary: write binary (default: true)
      --learning-rate: the new learning rate, times each component's factor (default: -1: as it is)
      --prepare-for-test: batch normalisation and dropout in test mode, affine components behind each other made one (default: false)
      --raw: write the network alone (default: false)
    """
    model = Nnet3Model.parse(kaldi_reader(source))
    model.nnet = _changed(model.nnet, prepare_for_test, learning_rate)
    _write(model.nnet if raw else model, target, binary)


def nnet3_am_init(transition_model: str, nnet: str, model: str, *, binary: bool = True) -> None:
    """Make a model of a transition model and a raw network.

    Usage: nnet3-am-init [options] <transition-model> <raw-nnet> <model>
    e.g.: nnet3-am-init 0.trans_mdl final.raw final.mdl

    Options:
      --binary: write binary (default: true)
    """
    transitions, network = read_transition_model(transition_model), _raw(nnet)
    if "output" not in network.nodes or network.dim("output") != transitions.num_pdfs:
        found = network.dim("output") if "output" in network.nodes else "no"
        raise UserError(f"{transition_model} has {transitions.num_pdfs} pdfs, the network {nnet} has {found} outputs; give the tree's own.")
    plan = Plan(network)
    _write(Nnet3Model(transitions, network, plan.left_context, plan.right_context), model, binary)


def nnet3_compute(nnet: str, feats: str, output: str, *, apply_exp: bool = False, frame_subsampling_factor: int = 1,
                  frames_per_chunk: int = 50, extra_left_context: int = 0, extra_right_context: int = 0,
                  extra_left_context_initial: int = -1, extra_right_context_final: int = -1, ivectors: str = "",
                  use_gpu: str = "no") -> int:
    """Forward features through a raw network.

    Usage: nnet3-compute [options] <raw-nnet> <feats-rspecifier> <outputs-wspecifier>
    e.g.: nnet3-compute --frame-subsampling-factor=3 "nnet3-am-copy --raw=true final.mdl - |" scp:feats.scp ark:-

    Options:
      --apply-exp: output the exponential (default: false)
      --frame-subsampling-factor: frames of the features for each of the output (default: 1)
      --frames-per-chunk: has no effect: an utterance goes through the network as a whole
      --extra-left-context: has no effect
      --extra-right-context: has no effect
      --extra-left-context-initial: has no effect
      --extra-right-context-final: has no effect
      --ivectors: table with the i-vector of each utterance, for networks that take one
      --use-gpu: yes, no or optional (default: no)
    """
    import torch

    from pykaldist.devices import choose_device
    from pykaldist.nnet.nnet3.run import Nnet3Forward

    torch.set_num_threads(1)
    places = {"yes": "cuda", "no": "cpu", "optional": "auto"}
    if use_gpu not in places:
        raise UserError(f"--use-gpu={use_gpu}: expected yes, no or optional.")
    if frame_subsampling_factor < 1:
        raise UserError(f"--frame-subsampling-factor={frame_subsampling_factor}: expected at least 1.")
    forward = Nnet3Forward(_raw(nnet), choose_device(places[use_gpu]), subsampling=frame_subsampling_factor)
    vectors = RandomAccess(ivectors, read_value) if ivectors else None
    with TableWriter(output, write_value) as writer:
        for utt, x in read_table(feats, read_value):
            others = {}
            if vectors is not None:
                vector = vectors.get(utt)
                if vector is None:
                    raise UserError(f"{ivectors} has no i-vector of {utt}; extract them for this data.")
                others["ivector"] = vector.reshape(1, -1)
            try:
                scores = forward(x, **others)
            except ValueError as error:
                raise UserError(f"{feats}, {utt}: {error}; make the features with the config of the training data.") from error
            writer.write(utt, np.exp(scores) if apply_exp else scores)
    say(f"{writer.count} utterances forwarded")
    return 0 if writer.count else 1
