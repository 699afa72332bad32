"""Directories for online decoding, as steps/online/nnet3/prepare_online_decoding.sh makes them: a model, and what recognises audio with it.

Their `conf/online.conf` says where all else is, in Kaldi's options: the features' config, the extractor of i-vectors, silence phones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import MADE, UserError
from pykaldist.feats.extract import KINDS, FeatureOptions
from pykaldist.feats.pipeline import GLOBAL_STATS, ONLINE_CMVN, OnlineCmvn
from pykaldist.hmm.ivector.online import NORMALISED_INPUT, OnlineExtractor, OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.conf import read_conf
from pykaldist.io.tables import read_lines
from pykaldist.options import boolean

CMVN = ("cmvn-config", "global-cmvn-stats")  # of the network's features, where it takes online CMVN
EXTRACTOR_FILES = ("final.mat", "final.ie", "final.dubm", "global_cmvn.stats", "splice_opts", "online_cmvn.conf")
#: Options of the extraction beside paths, and the fields of ours that they are.
EXTRACTION = {"num-gselect": PosteriorOptions, "min-post": PosteriorOptions, "posterior-scale": PosteriorOptions,
              "max-remembered-frames": OnlineOptions, "max-count": OnlineOptions, "ivector-period": OnlineOptions}


@dataclass
class PrepareOptions:
    """What prepare_online_decoding.sh is told of features and i-vectors."""

    feature_type: str = "mfcc"
    config: Path = Path("conf/mfcc.conf")
    iter: str = "final"
    online_cmvn_config: Path = Path("conf/online_cmvn.conf")
    online: OnlineOptions | None = None
    posteriors: PosteriorOptions | None = None


def prepare_online_dir(lang: Path, extractor: Path | None, model_dir: Path, target: Path, options: PrepareOptions) -> None:
    """Make the directory `target`; raises UserError where a file is missing, or the model is one that is not decoded online here."""
    online_cmvn = (model_dir / ONLINE_CMVN).is_file()
    model, tree = model_dir / f"{options.iter}.mdl", model_dir / "tree"
    needed = [lang / "phones/silence.csl", model, tree, options.config]
    if extractor is not None:
        needed += [extractor / name for name in EXTRACTOR_FILES]
    if online_cmvn:
        needed += [model_dir / GLOBAL_STATS, options.online_cmvn_config]
    for path in needed:
        if not path.is_file():
            raise UserError(f"{path} does not exist; check the path; {MADE}.")
    read_conf(KINDS[options.feature_type], options.config)
    copies = {model: target / "final.mdl", tree: target / "tree", options.config: target / f"conf/{options.feature_type}.conf"}
    for path in (model_dir / "frame_subsampling_factor", model_dir / "cmvn_opts", lang / "phones.txt"):
        if path.is_file() and not (online_cmvn and path.name == "cmvn_opts"):
            copies[path] = target / path.name
    folder = target.resolve()
    lines = {"feature-type": options.feature_type, f"{options.feature_type}-config": folder / f"conf/{options.feature_type}.conf"}
    if extractor is not None:
        lines["ivector-extraction-config"] = folder / "conf/ivector_extractor.conf"
        copies |= {extractor / name: target / "ivector_extractor" / name for name in EXTRACTOR_FILES}
        copies[extractor / "online_cmvn.conf"] = target / "conf/online_cmvn.conf"
        copy_file(extractor / "online_cmvn.conf", target / "ivector_extractor/online_cmvn.conf")
        _write_extraction(extractor, target, options)
        if (extractor / NORMALISED_INPUT).is_file():
            copies[extractor / NORMALISED_INPUT] = target / "ivector_extractor" / NORMALISED_INPUT
    if online_cmvn:
        copies |= {model_dir / GLOBAL_STATS: target / GLOBAL_STATS, model_dir / ONLINE_CMVN: target / ONLINE_CMVN,
                   options.online_cmvn_config: target / "conf/online_cmvn.conf"}
        lines |= {"cmvn-config": folder / "conf/online_cmvn.conf", "global-cmvn-stats": folder / GLOBAL_STATS}
        write_text(target / "cmvn_opts", f"--config={folder}/conf/online_cmvn.conf\n")
    for source, copy in copies.items():
        copy_file(source, copy)
    silence = (lang / "phones/silence.csl").read_text(encoding="utf-8").strip()
    _write_conf(target / "conf/online.conf", {**lines, "endpoint.silence-phones": silence})


def _write_extraction(extractor: Path, target: Path, options: PrepareOptions) -> None:
    """Write conf/splice.conf and conf/ivector_extractor.conf."""
    words = (extractor / "splice_opts").read_text(encoding="utf-8").split()
    write_text(target / "conf/splice.conf", "".join(f"{word}\n" for word in words))
    conf, files = target.resolve() / "conf", target.resolve() / "ivector_extractor"
    normalised = {"online-cmvn-iextractor": "true"} if (extractor / NORMALISED_INPUT).is_file() else {}
    own = {name: getattr((options.online or OnlineOptions()) if cls is OnlineOptions else (options.posteriors or PosteriorOptions()),
                         name.replace("-", "_")) for name, cls in EXTRACTION.items()}
    _write_conf(target / "conf/ivector_extractor.conf", {
        "splice-config": conf / "splice.conf", "cmvn-config": conf / "online_cmvn.conf", "lda-matrix": files / "final.mat",
        "global-cmvn-stats": files / "global_cmvn.stats", "diag-ubm": files / "final.dubm", "ivector-extractor": files / "final.ie", **own,
        **normalised})


def _write_conf(path: Path, options: dict[str, object]) -> None:
    write_text(path, "".join(f"--{name}={value:g}\n" if isinstance(value, float) else f"--{name}={value}\n"
                             for name, value in options.items()))


@dataclass
class OnlineConf:
    """What `conf/online.conf` says."""

    features: FeatureOptions
    silence_phones: str
    ivectors: OnlineExtractor | None
    cmvn: OnlineCmvn | None = None


def read_online_conf(path: Path) -> OnlineConf:
    """Read a `conf/online.conf` and what it names; raises UserError for an option that is not known here."""
    values = _read_options(path, {"feature-type", "mfcc-config", "plp-config", "fbank-config", "ivector-extraction-config",
                                  "endpoint.silence-phones", *CMVN})
    kind = values.get("feature-type", "mfcc")
    if kind not in KINDS or f"{kind}-config" not in values:
        raise UserError(f"{path}: expected --feature-type mfcc, plp or fbank and a --{kind}-config.")
    extraction = values.get("ivector-extraction-config")
    found = [Path(values[name]) for name in CMVN if name in values]
    if len(found) == 1:
        raise UserError(f"{path}: expected both of --{' and --'.join(CMVN)}, or neither.")
    return OnlineConf(read_conf(KINDS[kind], values[f"{kind}-config"]), values.get("endpoint.silence-phones", ""),
                      _read_extraction(Path(extraction)) if extraction else None, OnlineCmvn.from_files(*found) if found else None)


def _read_extraction(path: Path) -> OnlineExtractor:
    """The extractor that a `conf/ivector_extractor.conf` says; its files are in the folder of the one that --ivector-extractor names."""
    from pykaldist.hmm.ivector.stages import read_extractor  # with SciPy, for which no help should wait

    files = {"splice-config", "cmvn-config", "lda-matrix", "global-cmvn-stats", "diag-ubm", "ivector-extractor"}
    values = _read_options(path, {*files, *EXTRACTION, "online-cmvn-iextractor"})
    if "ivector-extractor" not in values:
        raise UserError(f"{path} has no --ivector-extractor.")
    chosen: dict[type, dict[str, float]] = {OnlineOptions: {}, PosteriorOptions: {}}
    for name, cls in EXTRACTION.items():
        if name in values:
            field = name.replace("-", "_")
            try:
                chosen[cls][field] = type(getattr(cls(), field))(values[name])
            except ValueError as error:
                raise UserError(f"{path}: --{name} {values[name]}: expected a number.") from error
    found = read_extractor(Path(values["ivector-extractor"]).parent, OnlineOptions(**chosen[OnlineOptions]),  # type: ignore[arg-type]
                           PosteriorOptions(**chosen[PosteriorOptions]))  # type: ignore[arg-type]  # numbers of their fields' types
    if "online-cmvn-iextractor" in values:
        found.normalised_input = boolean(values["online-cmvn-iextractor"])
    return found


def _read_options(path: Path, known: set[str]) -> dict[str, str]:
    """The options of a file, `--name=value` on each line."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; make it with steps/online/nnet3/prepare_online_decoding.sh.")
    values: dict[str, str] = {}
    for line in read_lines(path):
        for word in line.split("#", 1)[0].split():
            name, _, value = word.removeprefix("--").partition("=")
            if name not in known:
                raise UserError(f"{path}: --{name} is not known here; known are {', '.join(f'--{one}' for one in sorted(known))}.")
            values[name] = value
    return values
