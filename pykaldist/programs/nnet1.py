"""Programs on networks of nnet1: what is in them, copies, concatenation, new ones of a prototype."""

from __future__ import annotations

import os

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.archive import read_value
from pykaldist.io.table_streams import read_object
from pykaldist.io.xfilenames import is_pipe, open_rxfilename, open_wxfilename
from pykaldist.nnet.nnet1 import Nnet1, Nnet1Component
from pykaldist.programs.command import say
from pykaldist.programs.models import kaldi_reader


def read_nnet(rxfilename: str) -> Nnet1:
    """Read an nnet1 network; one of a final.pt is converted."""
    if not is_pipe(rxfilename) and os.path.isfile(rxfilename):
        from pykaldist.io.magic import is_container

        if is_container(rxfilename):
            from pykaldist.nnet.load import load_nnet1

            return load_nnet1(rxfilename)[0]
    return Nnet1.parse(kaldi_reader(rxfilename), rxfilename)


def write_nnet(nnet: Nnet1, wxfilename: str, binary: bool = True) -> None:
    """Write an nnet1 network."""
    with open_wxfilename(wxfilename) as stream:
        nnet.write_to(stream, binary)


def nnet_info(model: str, *, feat_dim: int = 0, num_pdfs: int = 0) -> None:
    """Print a network's layers: dimensions, parameters, the moments of what it holds.

    A final.pt, or the name of a kind or of a published network, gives receptive field and flops a frame, too.

    Usage: nnet-info [options] <nnet>
    e.g.: nnet-info exp/dnn/final.nnet | grep num-components

    Options:
      --feat-dim: of a network given by its name: features a frame (40; 120 for a CNN)
      --num-pdfs: likewise: outputs (1000)
    """
    from pykaldist.io.magic import is_container

    if is_pipe(model) or (os.path.isfile(model) and not is_container(model)):
        if feat_dim or num_pdfs:
            raise UserError(f"--feat-dim and --num-pdfs are for the name of a network; {model} is none.")
        nnet = read_nnet(model)
        print(f"num-components {len(nnet.components)}\ninput-dim {nnet.input_dim}\noutput-dim {nnet.output_dim}\n"
              f"number-of-parameters {sum(c.num_params for c in nnet.components)}")
        for i, component in enumerate(nnet.components, 1):
            print(f"component {i} : <{component.marker}>, input-dim {component.input_dim}, output-dim {component.output_dim}")
            for name, array in component.arrays.items():
                print(_moments(name, array))
        return
    from pykaldist.nnet.describe import describe, describe_named
    from pykaldist.nnet.kinds import KINDS, PRESETS
    from pykaldist.nnet.load import load_own

    if model in KINDS or model in PRESETS:
        print(describe_named(model, feat_dim, num_pdfs))
        return
    if feat_dim or num_pdfs:
        raise UserError(f"--feat-dim and --num-pdfs are for the name of a network; {model} is none ({', '.join((*KINDS, *PRESETS))}).")
    network = load_own(model)
    assert network is not None  # its first bytes say so
    print(describe(network.options, network.model, network.transform.splice))
    names, views = iter(network.model.names()), network.model.views(network.model.params)
    for view in (view for own in views for view in own):
        print(_moments(next(names), view.cpu().numpy()))


def _moments(name: str, array: np.ndarray) -> str:
    values = array.astype("float64")
    return (f"  {name} {' x '.join(map(str, array.shape))} (min {values.min():.6g}, max {values.max():.6g}, mean {values.mean():.6g}, "
            f"stddev {values.std():.6g})")


def nnet_copy(source: str, target: str, *, binary: bool = True, remove_first_components: int = 0, remove_last_components: int = 0,
              remove_first_layers: int = 0, remove_last_layers: int = 0, dropout_rate: float = -1.0) -> None:
    """Copy a network, or a part of it.

    Usage: nnet-copy [options] <nnet> <nnet>
    e.g.: nnet-copy --remove-last-components=2 final.nnet hidden.nnet

    Options:
      --binary: write binary (default: true)
      --remove-first-components: leave out so many components at the beginning (default: 0)
      --remove-last-components: leave out so many components at the end (default: 0)
      --remove-first-layers: the older name of --remove-first-components
      --remove-last-layers: the older name of --remove-last-components
      --dropout-rate: the new rate of all <Dropout> components (default: -1: as they are)
    """
    components = read_nnet(source).components
    first, last = remove_first_components or remove_first_layers, remove_last_components or remove_last_layers
    if min(first, last) < 0 or first + last >= len(components):
        raise UserError(f"{source} has {len(components)} components, of which {first} and {last} cannot be left out.")
    components = components[first : len(components) - last]
    for component in components:
        if component.marker == "Dropout" and dropout_rate >= 0:
            component.options["DropoutRate"] = dropout_rate
    write_nnet(Nnet1(components), target, binary)


def nnet_concat(*files: str, binary: bool = True) -> None:
    """Put networks behind each other: the outputs of one are the inputs of the next.

    Usage: nnet-concat [options] <nnet> <nnet> ... <nnet>
    e.g.: nnet-concat final.feature_transform "nnet-copy --remove-last-components=4 final.nnet - |" bn.feature_transform

    Options:
      --binary: write binary (default: true)
    """
    if len(files) < 2:
        raise UserError("expected networks, and a file to write.")
    *sources, target = files
    components: list[Nnet1Component] = []
    for source in sources:
        more = read_nnet(source).components
        if components and components[-1].output_dim != more[0].input_dim:
            raise UserError(f"{source} takes {more[0].input_dim} inputs, the network before it has {components[-1].output_dim} outputs.")
        components += more
    write_nnet(Nnet1(components), target, binary)


def nnet_initialize(prototype: str, target: str, *, binary: bool = True, seed: int = 777) -> None:
    """Make a network of a prototype, which has a line a component.

    Usage: nnet-initialize [options] <prototype> <nnet>
    e.g.: nnet-initialize --seed=1 nnet.proto nnet.init

    Options:
      --binary: write binary (default: true)
      --seed: of the random numbers (default: 777)
    """
    from pykaldist.nnet.prototype import from_prototype

    with open_rxfilename(prototype) as stream:
        text = stream.read().decode("utf-8")
    write_nnet(from_prototype(text, prototype, np.random.default_rng(seed)), target, binary)


def cmvn_to_nnet(stats: str, target: str, *, binary: bool = False, std_dev: float = 1.0, var_floor: float = 1e-10,
                 learn_rate_coef: float = 0.0) -> None:
    """Make <AddShift> and <Rescale> of CMVN statistics.

    Usage: cmvn-to-nnet [options] <stats> <nnet>
    e.g.: compute-cmvn-stats scp:feats.scp - | cmvn-to-nnet - cmvn.nnet

    Options:
      --binary: write binary (default: false)
      --std-dev: standard deviation of the output (default: 1)
      --var-floor: least variance (default: 1e-10)
      --learn-rate-coef: of both components (default: 0)
    """
    sums = read_object(stats, read_value).astype(np.float64)
    if sums.ndim != 2 or sums.shape[0] != 2 or not sums[0, -1] > 0:
        raise UserError(f"{stats} holds no CMVN statistics; expected a matrix of two rows (compute-cmvn-stats).")
    dim = sums.shape[1] - 1
    mean = sums[0, :-1] / sums[0, -1]
    variance = np.maximum(sums[1, :-1] / sums[0, -1] - mean * mean, var_floor)
    options: dict[str, float | int | str] = {"LearnRateCoef": learn_rate_coef}
    write_nnet(Nnet1([Nnet1Component("AddShift", dim, dim, dict(options), {"shift": (-mean).astype(np.float32)}),
                      Nnet1Component("Rescale", dim, dim, dict(options), {"scale": (std_dev / np.sqrt(variance)).astype(np.float32)})]),
               target, binary)


def transf_to_nnet(matrix: str, target: str, *, binary: bool = False) -> None:
    """Make an <AffineTransform> of a linear or affine transform, such as LDA's.

    Usage: transf-to-nnet [options] <matrix> <nnet>
    e.g.: transf-to-nnet final.mat lda.nnet

    Options:
      --binary: write binary (default: false)
    """
    transform = read_object(matrix, read_value).astype(np.float32)
    rows, columns = transform.shape
    component = Nnet1Component("AffineTransform", rows, columns, {"LearnRateCoef": 1.0, "BiasLearnRateCoef": 1.0, "MaxNorm": 0.0},
                               {"linearity": transform, "bias": np.zeros(rows, np.float32)})
    write_nnet(Nnet1([component]), target, binary)
    say(f"{matrix}: {rows} x {columns}")


def read_rbm(rxfilename: str) -> Nnet1Component:
    """Read an RBM; raises UserError where a network has other components, or hidden units that are not Bernoulli's."""
    components = read_nnet(rxfilename).components
    if [c.marker for c in components] != ["Rbm"] or components[0].options["hid_type"] != "bern":
        raise UserError(f"{rxfilename} is {' '.join(f'<{c.marker}>' for c in components)}; expected one <Rbm> whose hidden units are bern.")
    return components[0]


def rbm_convert_to_nnet(rbm: str, target: str, *, binary: bool = True) -> None:
    """Make <AffineTransform> and <Sigmoid> of an RBM: the way up from its visible units to its hidden ones.

    Usage: rbm-convert-to-nnet [options] <rbm> <nnet>
    e.g.: nnet-concat 1.dbn "rbm-convert-to-nnet 2.rbm - |" 2.dbn

    Options:
      --binary: write binary (default: true)
    """
    own = read_rbm(rbm)
    rates: dict[str, float | int | str] = {"LearnRateCoef": 1.0, "BiasLearnRateCoef": 1.0, "MaxNorm": 0.0}
    write_nnet(Nnet1([Nnet1Component("AffineTransform", own.output_dim, own.input_dim, rates,
                                     {"linearity": own.arrays["vis_hid"], "bias": own.arrays["hid_bias"]}),
                      Nnet1Component("Sigmoid", own.output_dim, own.output_dim)]), target, binary)
