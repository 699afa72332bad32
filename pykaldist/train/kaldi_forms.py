"""Kaldi's command lines of nnet1's steps/nnet/train.sh and pretrain_dbn.sh, in the words of this project.

Kaldi's scripts take data directories, and say how features are made, how the network looks and how it is trained; some options hold the
options of other programs. Here a store is packed first, then trained on. A `Form` has the options of both verbs. What is no option of
Kaldi's is handed on to the trainer, so that who computes, and what workers exchange (--ngpu, --strategy), can be said in both forms.
Defaults are Kaldi's. What the trainer has no meaning for raises UserError.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.prototype import read_splice
from pykaldist.options import boolean

ARGUMENTS = {"train": ("<data-tr>", "<data-cv>", "<lang>", "<ali-tr>", "<ali-cv>", "<exp>"), "pretrain_dbn": ("<data>", "<exp>")}
# About copies of the features, which the store is, and checks that are made anyway.
NEEDLESS = ("copy_feats", "copy_feats_tmproot", "copy_feats_compress", "skip_cuda_check", "verbose", "ivector_append_tool")
ACTIVATIONS = {"<Sigmoid>": "sigmoid", "<Tanh>": "tanh", "<ParametricRelu>": "relu"}
SMALLER_INPUT_WEIGHTS = math.sqrt(1 / 12)  # make_nnet_proto.py's: the standard deviation of values that are uniform between 0 and 1
BOTTLENECK_RATE = 0.1  # make_nnet_proto.py's learning rate of the maps before and behind a bottleneck


@dataclass
class Form:
    """A command line in the project's words.

    pack: options of `pykaldist pack`; job: those of `pykaldist train` or `pretrain-dbn`; arguments: what is no option; lang_check: compare
    phones of lang and alignments; labelled: targets are the alignment's; notes: what is not just as in Kaldi.
    """

    arguments: list[Path]
    pack: dict[str, str] = field(default_factory=dict)
    job: dict[str, str] = field(default_factory=dict)
    lang_check: bool = True
    labelled: bool = True
    notes: list[str] = field(default_factory=list)


class Words:
    """Options by their names, with `_` for `-`. Each is taken once; `rest` are those that nobody took. `where` names what they are of."""

    def __init__(self, where: str, options: dict[str, str]) -> None:
        self.where, self.rest = where, dict(options)

    def take(self, name: str, default: str = "") -> str:
        return self.rest.pop(name, default)

    def number(self, name: str, default: str) -> int:
        """Take a whole number that is not negative."""
        text = self.take(name, default)
        if not text.isdecimal():
            raise UserError(f"--{name.replace('_', '-')} {text}: expected a whole number.")
        return int(text)

    def flag(self, name: str) -> bool:
        """Take an option without a value."""
        return self.take(name, "false") in ("", "true")

    def refuse(self, name: str, why: str, harmless: Sequence[str] = ("",)) -> None:
        """Take an option that has no meaning here; raises UserError where it has another value than a harmless one."""
        value = self.take(name)
        if value not in harmless:
            raise UserError(f"--{name.replace('_', '-')} {value}: {why}")

    def done(self) -> None:
        """Raise UserError where an option is left."""
        for name, value in self.rest.items():
            raise UserError(f"{self.where}: --{name.replace('_', '-')} {value}".rstrip() + " has no meaning for the trainer here; leave it "
                            "out.")


def split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split a script's words into options, `--name value` or `--name=value`, and arguments; the last of equal options counts."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("--") and len(rest[0]) > 2:
        name, equals, value = rest.pop(0)[2:].partition("=")
        if not equals:
            if not rest:
                raise UserError(f"option --{name} needs a value.")
            value = rest.pop(0)
        options[name.replace("-", "_")] = value
    return options, rest


def embedded(where: str, text: str, flags: Sequence[str] = ()) -> Words:
    """The options in the value of an option such as --proto-opts: `--name=value`, `--name value`, or `--name` alone for `flags`."""
    options: dict[str, str] = {}
    try:
        rest = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{where} {text}: {error}; close what is quoted.") from error
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{where}: expected an option, found {word!r}.")
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        options[name] = value if equals else "true" if name in flags or not rest or rest[0].startswith("--") else rest.pop(0)
    return Words(where, options)


def read_form(stage: str, words: Sequence[str]) -> Form:
    """Read the command line of a stage, `train` or `pretrain_dbn`, in Kaldi's form."""
    options, arguments = split(words)
    if len(arguments) != len(ARGUMENTS[stage]):
        raise UserError(f"expected {' '.join(ARGUMENTS[stage])}, found {len(arguments)} arguments.")
    form, given = Form([Path(a) for a in arguments]), Words(stage, options)
    for name in NEEDLESS:
        given.take(name)
    given.refuse("ivector", "i-vectors are not appended to features here; leave it out.")
    given.refuse("config", "give its options on the command line.")
    _features(given, form)
    if stage == "train":
        _train(given, form)
    else:
        _pretrain(given, form)
    form.job.update({name: value for name, value in given.rest.items()})
    return form


def _features(given: Words, form: Form) -> None:
    """How features are made: CMVN and deltas into the store, splicing and normalisation in the network."""
    given.refuse("online_cmvn_opts", "CMVN of what was heard so far is not made here; use --cmvn-opts.")
    given.refuse("feat_type", "features are spliced and normalised alone (plain); leave it out.", ("", "plain"))
    given.refuse("feats_std", "features are normalised to a standard deviation of 1; leave it out.", ("", "1", "1.0"))
    for name in ("traps_dct_basis", "transf", "splice_after_transf"):
        given.refuse(name, "it belongs to other types of features than plain ones; leave it out.")
    transform = given.take("feature_transform")
    cmvn, deltas = given.take("cmvn_opts"), given.take("delta_opts")
    if not transform and (dbn := given.rest.get("dbn")):
        transform = str((Path(dbn) if Path(dbn).is_dir() else Path(dbn).parent) / "final.feature_transform")
    if transform:
        beside = Path(transform).parent  # pretraining left there how it made its features
        cmvn = content_of(beside / "cmvn_opts", cmvn, "--norm-means=true")
        deltas = content_of(beside / "delta_opts", deltas, "--delta-order=2")
        form.job["feature_transform"] = transform
        given.take("splice")
        given.take("feature_transform_proto")
    form.pack["cmvn_opts"] = cmvn or "--norm-means=false"
    form.pack["delta_opts"] = deltas or "--delta-order=0"


def content_of(path: Path, missing: str, empty: str) -> str:
    """The options in a file, `missing` where there is no such file, and `empty` where there is nothing in it."""
    return path.read_text(encoding="utf-8").strip() or empty if path.is_file() else missing


def _splice(given: Words, form: Form, recurrent: bool) -> None:
    """The frames that make an input, where no transform says which."""
    if "feature_transform" in form.job:
        return
    proto, context = given.take("feature_transform_proto"), given.take("splice", "5")
    if not proto:
        form.job["splice"] = context
        return
    offsets = read_splice(proto)
    middle, around = offsets[len(offsets) // 2], len(offsets) // 2
    if offsets != list(range(middle - around, middle + around + 1)) or (middle and not recurrent) or middle < 0:
        raise UserError(f"--feature-transform-proto {proto}: the network takes as many frames on each side, found the frames "
                        f"{', '.join(map(str, offsets))}; use --splice.")
    form.job["splice"] = str(around)
    if middle:
        form.job["target_delay"] = str(middle)


def _train(given: Words, form: Form) -> None:
    kind = given.take("network_type", "dnn")
    tool = shlex.split(given.take("train_tool", "nnet-train-frmshuff"))
    tool_options = embedded("--train-tool", shlex.join(tool[1:])).rest | \
        embedded("--train-tool-opts", given.take("train_tool_opts")).rest
    _targets(given, form)
    _network(given, form, kind)
    _splice(given, form, kind in ("lstm", "blstm"))
    _tool(Path(tool[0]).name, Words("--train-tool-opts", tool_options), form, kind in ("lstm", "blstm"))
    if rate := given.take("learn_rate"):
        form.job["learn_rate"] = rate
    _scheduler(embedded("--scheduler-opts", given.take("scheduler_opts")), form)
    given.refuse("split_feats", "an epoch is all of the data; leave it out.")
    seed = given.take("seed", "777")
    form.job["seed"] = seed
    form.job.setdefault("randomizer_seed", given.take("randomizer_seed") or seed)
    form.lang_check = not truth(given.take("skip_phoneset_check", "false"), "skip-phoneset-check")


def truth(text: str, name: str) -> bool:
    """Read a boolean; raises UserError, naming the option, for other text."""
    try:
        return boolean(text)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"--{name}: {error}.") from error


def _targets(given: Words, form: Form) -> None:
    labels, outputs = given.take("labels"), given.take("num_tgt")
    if labels:
        form.labelled = False
        form.pack["posteriors"] = labels
        if outputs:
            form.pack["num_pdfs"] = outputs
    elif outputs:
        raise UserError(f"--num-tgt {outputs} is for --labels; the alignment's model says how many pdfs there are.")
    if weights := given.take("frame_weights"):
        form.pack["frame_weights"] = weights
    given.refuse("utt_weights", "a weight of an utterance is one of each of its frames here; use --frame-weights.")


def _network(given: Words, form: Form, kind: str) -> None:
    job, proto = form.job, given.take("nnet_proto")
    init = given.take("nnet_init")
    if proto or init:
        job["nnet_proto" if proto else "nnet_init"] = proto or init
        for name in ("hid_layers", "hid_dim", "bn_dim", "proto_opts", "cnn_proto_opts"):
            given.take(name)
        given.refuse("dbn", "--nnet-proto and --nnet-init are whole networks; leave one of them out.")
    elif kind == "dnn":
        _dnn(given, form)
    elif kind == "cnn1d":
        _cnn(given, form)
    elif kind in ("lstm", "blstm"):
        _recurrent(given, form, kind)
    else:
        raise UserError(f"--network-type {kind}: choose dnn, cnn1d, lstm or blstm.")


def _dnn(given: Words, form: Form) -> None:
    if preset := given.rest.get("nnet"):
        form.notes.append(f"--nnet {preset} says what the network is; Kaldi's default shape is not used")
        return
    job, layers, width = form.job, given.number("hid_layers", "4"), given.take("hid_dim", "1024")
    proto = embedded("--proto-opts", given.take("proto_opts"),
                     ("no_softmax", "no_glorot_scaled_stddev", "no_smaller_input_weights", "no_bottleneck_trick", "with_dropout"))
    bottleneck = given.number("bn_dim", "0") or proto.number("bottleneck_dim", "0")
    dbn = given.take("dbn")
    below = _widths(dbn) if dbn else []
    if below:
        if layers and set(below) != {int(width)}:
            raise UserError(f"--hid-dim {width}: the DBN has layers of {', '.join(map(str, below))} units, and all hidden layers are "
                            "as wide here; give the same.")
        width, job["dbn"] = str(below[0]), dbn
        if bottleneck:
            raise UserError(f"--bn-dim {bottleneck}: a network that starts from a DBN has no bottleneck here; leave out one of them.")
    hidden = len(below) + layers + bool(bottleneck)
    job |= {"hid_layers": str(hidden), "hid_dim": width}
    _activation(proto, form)
    trick = not proto.flag("no_bottleneck_trick")
    if bottleneck:
        job["bottleneck_dim"] = str(bottleneck)
        if trick:
            job["learn_rate_coefs"] = ",".join(["1"] * (hidden - 1) + [f"{BOTTLENECK_RATE:g}"] * 2 + ["1"])
    smaller = not proto.flag("no_smaller_input_weights")
    if not below:
        _initial(proto, form, smaller and hidden > 0)
    elif set(proto.rest) & {"hid_bias_mean", "hid_bias_range", "param_stddev_factor"}:
        raise UserError("--proto-opts and --dbn: the further weights of a network that starts from a DBN are drawn as make_nnet_proto.py "
                        "draws them by default; leave these options out.")
    if proto.flag("no_softmax") and job.get("objective") != "mse":
        job["objective"] = "mse"
    proto.done()


def _activation(proto: Words, form: Form) -> None:
    marker = proto.take("activation_type", "<Sigmoid>")
    if marker not in ACTIVATIONS:
        raise UserError(f"--proto-opts: --activation-type {marker}: choose among {', '.join(ACTIVATIONS)}.")
    form.job["activation"] = ACTIVATIONS[marker]
    if marker == "<ParametricRelu>":
        form.notes.append("<ParametricRelu> is trained with slopes of 1 and 0, which stay; Kaldi's begins with 1 and 0.25")
    if proto.flag("with_dropout"):
        found = re.search(r"<DropoutRate>[_ ]([\d.]+)", proto.take("dropout_opts"))
        form.job["dropout"] = found[1] if found else "0.5"
    if norm := proto.take("max_norm"):
        form.job["max_norm"] = norm


def _initial(proto: Words, form: Form, smaller: bool) -> None:
    """How the weights of a DNN are drawn: as make_nnet_proto.py has them."""
    job = form.job
    job["init"] = "nnet1"
    for name in ("hid_bias_mean", "hid_bias_range", "param_stddev_factor"):
        if value := proto.take(name):
            job[name] = value
    if proto.flag("no_glorot_scaled_stddev"):
        job["glorot_scaled"] = "false"
    if smaller:
        job["input_stddev_factor"] = f"{SMALLER_INPUT_WEIGHTS:.9g}"


def _cnn(given: Words, form: Form) -> None:
    given.refuse("dbn", "a CNN does not start from a DBN here; leave it out.")
    given.refuse("bn_dim", "a CNN has no bottleneck here; leave it out.")
    options = embedded("--cnn-proto-opts", given.take("cnn_proto_opts"))
    options.refuse("pitch_dim", "pitch has no place among the bands of a CNN here; make the features without it.", ("", "0"))
    options.refuse("patch_step1", "patches go band by band here; leave it out.", ("", "1"))
    options.refuse("pool_type", "bands are pooled by their maximum; leave it out.", ("", "Max"))
    pool, step = options.number("pool_size", "3"), options.number("pool_step", "3")
    if pool != step:
        raise UserError(f"--cnn-proto-opts: --pool-size {pool} --pool-step {step}: pools stand next to each other here; give the same.")
    layers = [(options.number("patch_dim1", "8"), options.number("num_filters1", "128")),
              (options.number("patch_dim2", "4"), options.number("num_filters2", "256"))]
    _activation(options, form)
    options.done()
    orders = re.findall(r"--delta-order=(\d+)", form.pack["delta_opts"])
    order = int(orders[-1]) if orders else 2
    first, second = (f"0x{bands}x{filters}" for bands, filters in layers)
    form.job |= {"nnet": "cnn", "conv": f"{first}/{pool},{second}", "channels": str(order + 1),
                 "hid_layers": given.take("hid_layers", "4"), "hid_dim": given.take("hid_dim", "1024")}
    _proto_alone(given)


def _recurrent(given: Words, form: Form, kind: str) -> None:
    for name in ("hid_layers", "hid_dim"):
        given.refuse(name, f"the shape of --network-type {kind} is in --proto-opts (--num-layers, --cell-dim, --proj-dim).")
    for name in ("dbn", "bn_dim"):
        given.refuse(name, f"--network-type {kind} has none; leave it out.")
    options, both = embedded("--proto-opts", given.take("proto_opts")), 2 if kind == "blstm" else 1
    cells, projection = options.number("cell_dim", "320"), options.number("proj_dim", "200" if kind == "blstm" else "400")
    last = options.number("proj_dim_last", "320") if kind == "blstm" else projection
    if last != projection:
        form.notes.append(f"the projection of the last layer is {projection} a direction, as the others' (Kaldi: {last})")
    form.job |= {"nnet": kind, "hid_layers": str(options.number("num_layers", "2")), "hid_dim": str(both * cells),
                 "projection_dim": str(both * projection), "peepholes": "true"}
    for name in ("cell_clip", "diff_clip"):
        if value := options.take(name):
            form.job[name] = value
    options.done()


def _proto_alone(given: Words) -> None:
    given.refuse("proto_opts", "it is for --network-type dnn, lstm and blstm; leave it out.")


def _tool(tool: str, options: Words, form: Form, recurrent: bool) -> None:
    """The options of nnet1's training programs."""
    tools = {"nnet-train-frmshuff": not recurrent, "nnet-train-multistream": recurrent, "nnet-train-multistream-perutt": recurrent}
    if not tools.get(tool, False):
        raise UserError(f"--train-tool {tool}: networks {'of' if recurrent else 'without'} recurrent layers are trained as "
                        f"{' or '.join(name for name, fits in tools.items() if fits)} does; name it.")
    job = form.job
    if recurrent:
        job["sequences"] = "whole" if tool.endswith("perutt") else "streams"
        job["num_streams"] = options.take("num_streams", "4")
        if chunk := options.take("batch_size"):
            if job["sequences"] == "whole":
                raise UserError(f"--train-tool-opts: --batch-size {chunk}: {tool} takes whole utterances; leave it out.")
            job["chunk"] = chunk
        options.take("max_frames")
    elif size := options.take("minibatch_size"):
        job["minibatch_size"] = size
    objective = options.take("objective_function", "xent")
    if objective not in ("xent", "mse"):
        raise UserError(f"--train-tool: --objective-function={objective}: the objectives are xent and mse here.")
    if objective == "mse":
        job["objective"] = "mse"
    if seed := options.take("randomizer_seed"):
        job["randomizer_seed"] = seed
    for name in ("randomizer_size", "verbose", "report_period", "print_args"):  # all frames of a split are dealt out anew each epoch
        options.take(name)
    for name in ("momentum", "l1_penalty", "l2_penalty"):
        if value := options.take(name):
            job[name] = value
    if gpu := options.take("use_gpu"):
        job["device"] = {"yes": "cuda", "no": "cpu"}.get(gpu, "auto")
    options.done()


def _scheduler(options: Words, form: Form) -> None:
    """The options of nnet1's scheduler, which is newbob."""
    names = {"max_iters": "num_epochs"}
    for name in ("learn_rate", "momentum", "l1_penalty", "l2_penalty", "max_iters", "min_iters", "keep_lr_iters", "start_halving_impr",
                 "end_halving_impr", "halving_factor"):
        if value := options.take(name):
            form.job[names.get(name, name)] = value
    options.take("verbose")
    options.done()


def _pretrain(given: Words, form: Form) -> None:
    form.labelled = form.lang_check = False
    _splice(given, form, False)
    job = form.job
    job |= {"hid_layers": given.take("nn_depth", "6"), "hid_dim": given.take("hid_dim", "2048"),
            "param_stddev": given.take("param_stddev", "0.1"), "param_stddev_first": given.take("param_stddev_first", "0.1"),
            "input_vis_type": given.take("input_vis_type", "gauss")}
    extra = embedded("--rbm-extra-opts", given.take("rbm_extra_opts"))
    for name in ("minibatch_size", "momentum", "momentum_max", "momentum_steps", "momentum_step_period", "randomizer_seed"):
        if value := extra.take(name):
            job[name] = value
            if name == "minibatch_size":
                job["gauss_minibatch_size"] = value
    for name in ("randomizer_size", "verbose"):
        extra.take(name)
    extra.done()


def _widths(dbn: str) -> list[int]:
    from pykaldist.nnet.dbn import Dbn  # loads PyTorch, for which a usage text does not wait

    return Dbn.load(dbn).hid_dims


def shape_of(path: Path, splice: int) -> dict[str, str]:
    """The options of the network in an nnet1 file, whose inputs are so many frames, as `pykaldist train` takes them."""
    from pykaldist.nnet.convert import options_of  # loads PyTorch, as above
    from pykaldist.nnet.kinds import kind_of

    options, _ = options_of(Nnet1.read(path), splice)
    found, default = dataclasses.asdict(options), dataclasses.asdict(type(options)())
    return {"nnet": kind_of(options), **{name: str(value).lower() if isinstance(value, bool) else str(value)
                                         for name, value in found.items() if value != default[name]}}
