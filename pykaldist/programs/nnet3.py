"""Programs on networks of nnet3: what is in them, copies, models made of them, features through them."""

from __future__ import annotations

import numpy as np

from pykaldist.errors import FEATURES, IVECTORS, UserError
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.archive import read_value
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.table_streams import RandomAccess, TableWriter, read_table, write_value
from pykaldist.io.xfilenames import open_rxfilename, open_wxfilename
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.programs.command import say
from pykaldist.programs.models import kaldi_reader, read_transition_model
from pykaldist.programs.number_lists import real_numbers


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


def _read_text(rxfilename: str) -> str:
    with open_rxfilename(rxfilename) as stream:
        return stream.read().decode("utf-8")


def _changed(nnet: Nnet3, *, nnet_config: str, learning_rate: float, scale: float, edits_config: str, edits: str,
             prepare_for_test: bool) -> Nnet3:
    """The network with what the options of nnet3-copy ask for, in Kaldi's order."""
    from pykaldist.nnet.nnet3.edits import edit, scaled, set_learning_rate
    from pykaldist.nnet.nnet3.prepare import prepare_for_test as prepare

    if nnet_config:
        nnet = _made(nnet_config, 0, nnet)
    if learning_rate >= 0:
        set_learning_rate(nnet.components.values(), learning_rate)
    if scale != 1:
        nnet = scaled(nnet, scale)
    if edits_config:
        nnet = edit(nnet, _read_text(edits_config), edits_config)
    if edits:
        nnet = edit(nnet, edits)
    return prepare(nnet) if prepare_for_test else nnet


def _made(config: str, seed: int, existing: Nnet3 | None) -> Nnet3:
    """The network of a config, added to an existing one where it is given; matrices are read from where the program runs."""
    import torch

    from pykaldist.nnet.nnet3.initialise import initialised

    generator = torch.Generator().manual_seed(seed % 2**63)
    return initialised(_read_text(config).splitlines(), generator, source=config, existing=existing)


def _plan(nnet: Nnet3) -> Plan:
    """The plan from which a network's context is read, recurrent ones' too."""
    from pykaldist.nnet.nnet3.edits import without_recurrence

    return Plan(without_recurrence(nnet))


def _print_info(nnet: Nnet3) -> None:
    plan = _plan(nnet)
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


def nnet3_init(first: str, second: str, third: str = "", *, binary: bool = True, srand: int = 0) -> None:
    """Make a raw network of its config lines, with random parameters, or add what a config says to an existing network.

    Usage: nnet3-init [options] [<existing-raw-nnet>] <config> <raw-nnet>
    e.g.: nnet3-init --srand=1 exp/chain/tdnn/configs/final.config exp/chain/tdnn/0.raw

    Options:
      --binary: write binary (default: true)
      --srand: seed of the random parameters (default: 0)
    """
    existing, config, target = (_raw(first), second, third) if third else (None, first, second)
    _write(_made(config, srand, existing), target, binary)
    say(f"raw network written to {target}")


def nnet3_copy(source: str, target: str, *, binary: bool = True, learning_rate: float = -1.0, nnet_config: str = "",
               edits_config: str = "", edits: str = "", scale: float = 1.0, prepare_for_test: bool = False) -> None:
    """Copy a raw network, with changes where asked.

    Usage: nnet3-copy [options] <raw-nnet> <raw-nnet>
    e.g.: nnet3-copy --binary=false final.raw final.txt
    e.g.: nnet3-copy --edits='rename-node old-name=output-xent new-name=output; remove-orphans' 0.raw 1.raw

    Options:
      --binary: write binary (default: true)
      --learning-rate: the new learning rate, times each component's factor (default: -1: as it is)
      --nnet-config: config of components and nodes to add, or to put in the place of those of their names
      --edits-config: file of edits, made after that
      --edits: edits, with semicolons between them: convert-to-fixed-affine, remove-orphan-nodes, remove-orphan-components,
               remove-orphans, set-learning-rate, set-learning-rate-factor, rename-node, remove-output-nodes, set-dropout-proportion
      --scale: scale of the parameters (default: 1)
      --prepare-for-test: batch normalisation and dropout in test mode, affine components behind each other made one (default: false)
    """
    nnet = _changed(_raw(source), nnet_config=nnet_config, learning_rate=learning_rate, scale=scale, edits_config=edits_config,
                    edits=edits, prepare_for_test=prepare_for_test)
    _write(nnet, target, binary)


def nnet3_am_copy(source: str, target: str, *, binary: bool = True, raw: bool = False, set_raw_nnet: str = "",
                  learning_rate: float = -1.0, nnet_config: str = "", edits_config: str = "", edits: str = "", scale: float = 1.0,
                  prepare_for_test: bool = False) -> None:
    """Copy a model with an nnet3 network, or its network alone, with changes where asked.

    Usage: nnet3-am-copy [options] <model> <model|raw-nnet>
    e.g.: nnet3-am-copy --raw=true final.mdl final.raw

    Options:
      --binary: write binary (default: true)
      --raw: write the network alone (default: false)
      --set-raw-nnet: raw network that takes the place of the model's
      --learning-rate: the new learning rate, times each component's factor (default: -1: as it is)
      --nnet-config: config of components and nodes to add, or to put in the place of those of their names
      --edits-config: file of edits, made after that
      --edits: edits, with semicolons between them (nnet3-copy --help lists them)
      --scale: scale of the parameters (default: 1)
      --prepare-for-test: batch normalisation and dropout in test mode, affine components behind each other made one (default: false)
    """
    model = Nnet3Model.parse(kaldi_reader(source))
    nnet = _changed(_raw(set_raw_nnet) if set_raw_nnet else model.nnet, nnet_config=nnet_config, learning_rate=learning_rate, scale=scale,
                    edits_config=edits_config, edits=edits, prepare_for_test=prepare_for_test)
    if raw:
        _write(nnet, target, binary)
        return
    _check_outputs(model.transition_model.num_pdfs, nnet, source, set_raw_nnet or "the network")
    plan = _plan(nnet)
    _write(Nnet3Model(model.transition_model, nnet, plan.left_context, plan.right_context, model.priors), target, binary)


def nnet3_average(first: str, *others: str, binary: bool = True, weights: str = "", num_threads: int = -1) -> None:
    """Average raw networks: their parameters, and the statistics of batch normalisation and of nonlinearities.

    Usage: nnet3-average [options] <raw-nnet1> <raw-nnet2> ... <raw-nnet>
    e.g.: nnet3-average exp/chain/tdnn/1.1.raw exp/chain/tdnn/1.2.raw exp/chain/tdnn/2.raw

    Options:
      --binary: write binary (default: true)
      --weights: weights with colons between them, one a network, which are made to sum to one (default: all the same)
      --num-threads: has no effect: networks are read one behind the other
    """
    from pykaldist.nnet.nnet3.edits import weighted_sum

    if not others:
        raise UserError("expected networks to average, and the file to write, found one name.")
    *sources, target = [first, *others]
    shares = real_numbers("--weights", weights) if weights else [1.0] * len(sources)
    if len(shares) != len(sources) or not sum(shares) > 0:
        raise UserError(f"--weights={weights}: expected {len(sources)} weights with a sum above 0, found {len(shares)}.")
    _write(weighted_sum([_raw(source) for source in sources], [share / sum(shares) for share in shares]), target, binary)


def nnet3_am_init(first: str, second: str, third: str, fourth: str = "", *, binary: bool = True) -> None:
    """Make a model of a transition model (or a tree and a topology) and a raw network.

    Usage: nnet3-am-init [options] <transition-model> <raw-nnet> <model>
    Usage: nnet3-am-init [options] <tree> <topology> <raw-nnet> <model>
    e.g.: nnet3-am-init 0.trans_mdl final.raw final.mdl
    e.g.: nnet3-am-init exp/chain/tree/tree data/lang_chain/topo 0.raw 0.mdl

    Options:
      --binary: write binary (default: true)
    """
    if fourth:
        transitions, source, target = _transitions_of(first, second), third, fourth
    else:
        transitions, source, target = read_transition_model(first), second, third
    network = _raw(source)
    _check_outputs(transitions.num_pdfs, network, first, source)
    plan = _plan(network)
    _write(Nnet3Model(transitions, network, plan.left_context, plan.right_context), target, binary)


def _transitions_of(tree: str, topology: str) -> TransitionModel:
    """The transition model of a tree and a topology, with the topology's probabilities."""
    from pykaldist.hmm.lang.topology import Topology
    from pykaldist.hmm.tree.tree import ContextDependency

    return TransitionModel.from_tree(ContextDependency.read(kaldi_reader(tree)), Topology.read(kaldi_reader(topology)))


def _check_outputs(num_pdfs: int, nnet: Nnet3, transitions: str, source: str) -> None:
    if "output" not in nnet.nodes or nnet.dim("output") != num_pdfs:
        found = nnet.dim("output") if "output" in nnet.nodes else "no"
        raise UserError(f"{transitions} has {num_pdfs} pdfs, the network {source} has {found} outputs; give the tree's own.")


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
      --frames-per-chunk: frames that a recurrent network begins anew with; others see an utterance as a whole (default: 50)
      --extra-left-context: frames that a recurrent network goes through before a chunk, beyond its context (default: 0)
      --extra-right-context: the same behind a chunk (default: 0)
      --extra-left-context-initial: the same before the first chunk; -1: as elsewhere (default: -1)
      --extra-right-context-final: the same behind the last chunk; -1: as elsewhere (default: -1)
      --ivectors: table with the i-vector of each utterance, for networks that take one
      --use-gpu: yes, no or optional (default: no)
    """
    import torch

    from pykaldist.decode.chunks import ChunkOptions
    from pykaldist.decode.ivectors import ChunkedForward
    from pykaldist.devices import take_device
    from pykaldist.nnet.nnet3.run import Nnet3Forward

    torch.set_num_threads(1)
    places = {"yes": "cuda", "no": "cpu", "optional": "auto"}
    if use_gpu not in places:
        raise UserError(f"--use-gpu={use_gpu}: expected yes, no or optional.")
    if frame_subsampling_factor < 1:
        raise UserError(f"--frame-subsampling-factor={frame_subsampling_factor}: expected at least 1.")
    forward = Nnet3Forward(_raw(nnet), take_device(places[use_gpu]), subsampling=frame_subsampling_factor)
    chunks = ChunkOptions(frames_per_chunk, extra_left_context, extra_right_context, extra_left_context_initial, extra_right_context_final)
    chunked = ChunkedForward(forward, chunks) if forward.plan.loops else None
    vectors = RandomAccess(ivectors, read_value) if ivectors else None
    with TableWriter(output, write_value) as writer:
        for utt, x in read_table(feats, read_value):
            others = {}
            if vectors is not None:
                vector = vectors.get(utt)
                if vector is None:
                    raise UserError(f"{ivectors} has no i-vector of {utt}; extract them for this data ({IVECTORS}).")
                others["ivector"] = vector.reshape(1, -1)
            try:
                scores = forward(x, **others) if chunked is None else chunked(x, *(np.repeat(v, len(x), 0) for v in others.values()))
            except ValueError as error:
                raise UserError(f"{feats}, {utt}: {error}; make the features with the config of the training data ({FEATURES}).") from error
            writer.write(utt, np.exp(scores) if apply_exp else scores)
    say(f"{writer.count} utterances forwarded")
    return 0 if writer.count else 1
