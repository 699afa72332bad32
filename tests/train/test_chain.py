"""Chain training on six utterances of AN4: preparation from Kaldi's tree and alignments, every strategy, exact resume, final.mdl."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import PATIENCE_S, environment
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.decode.copied_alignments import copy_alignments
from pykaldist.errors import UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.io.tables import MatrixReader, MatrixWriter, read_archive, write_int_vectors
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers
from pykaldist.parallel.strategies import local
from pykaldist.parallel.strategies.base.registry import strategies
from pykaldist.train.chain_data import AlignedPhones
from pykaldist.train.chain_preparation import Preparation, PreparationOptions

WIDTHS = "90,60"
QUICK = ("local", "kaldi", "adpsgd")  # the strategies that each run of the tests tries
CLUSTER = {"name": "two", "description": "", "nodes": 2, "devices": 1, "compute": {"minibatch_seconds": 0.5, "spread": 0.3},
           "between": {"bandwidth": 1e6, "latency": 1e-3},
           "workload": {"network": "small", "parameters": 500, "minibatch_size": 8, "frames": 300}}
OWN = {"kaldi": ["--average-frames", "120", "--lr-scale", "linear"], "ma": ["--average-period", "2"], "bmuf": ["--average-period", "2"],
       "easgd": ["--average-period", "2"],
       "diloco": ["--fragments", "2", "--average-period", "2"]}


def folder_of_an4(golden: Path, folder: Path) -> Path:
    """A data directory of the six utterances, a tree directory, an alignment directory, and an experiment's configs, all of Kaldi."""
    chain, data, tree = golden / "chain", folder / "data", folder / "tree"
    for one in (data, tree, folder / "exp/configs", folder / "ali"):
        one.mkdir(parents=True)
    utts = (chain / "utts").read_text().split()
    feats = dict(read_archive(chain / "feats.ark"))
    with open(data / "feats.ark", "wb") as stream, open(data / "feats.scp", "w") as scp:
        for utt in utts:
            stream.write(f"{utt} ".encode())
            scp.write(f"{utt} {data}/feats.ark:{stream.tell()}\n")
            KaldiWriter(stream).matrix(feats[utt])
    (data / "utt2spk").write_text("".join(f"{utt} {utt}\n" for utt in utts))
    (data / "spk2utt").write_text("".join(f"{utt} {utt}\n" for utt in utts))
    (data / "wav.scp").write_text("".join(f"{utt} {utt}.wav\n" for utt in utts))
    shutil.copy(chain / "tree", tree / "tree")
    shutil.copy(chain / "0.trans_mdl", tree / "final.mdl")
    lines = (line.split() for line in (chain / "ali_subsampled.txt").read_text().splitlines())
    write_int_vectors(tree / "ali.1.gz", ((utt, np.array(tids, np.int32)) for utt, *tids in lines))
    (tree / "phones.txt").write_text("<eps> 0\n")
    for name in ("final.mdl", "ali.1.gz", "ali.2.gz"):
        shutil.copy(golden / "an4_kaldi/tri3_ali" / name, folder / "ali" / name)
    text = (chain / "net/final.config").read_text().replace("matrix=", f"matrix={chain / 'net'}/")
    below = "component name=batchnorm0 type=BatchNormComponent dim=40\ncomponent-node name=batchnorm0 component=batchnorm0 input=idct\n"
    text = text.replace("component name=lda", f"{below}component name=lda")  # below all that is trained, as AN4's recipe has it
    text = text.replace("Append(Offset(idct, -1), idct, Offset(idct, 1))",
                        "Append(Offset(batchnorm0, -1), batchnorm0, Offset(batchnorm0, 1))")
    (folder / "exp/configs/final.config").write_text(text)
    return folder


def prepare(folder: Path, exp: Path | None = None, **options: object) -> bool:
    return Preparation(folder / "data", folder / "tree", folder / "ali", exp or folder / "exp",
                       PreparationOptions(chunk_width=WIDTHS, cv_utts=1, **options), PhoneLmOptions(num_extra_lm_states=300)).run()


@pytest.fixture(scope="module")
def prepared(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_of_an4(golden, tmp_path_factory.mktemp("chain"))
    assert prepare(folder)
    return folder


def words(prepared: Path, *more: str) -> list[str]:
    return ["train", "--objective", "chain", "--optimizer", "nnet3", "--initial-model", str(prepared / "exp/0.raw"),
            "--leaky-hmm-coefficient", "0.1", "--xent-regularize", "0.1", "--num-chunk-per-minibatch", "2", "--schedule", "exponential",
            "--learn-rate", "0.01", "--final-learn-rate", "0.002", "--decay-within", "true", "--num-epochs", "2", "--combine-models", "2",
            "--dropout-schedule", "0,0.2@0.5,0", "--num-threads", "1", "--device", "cpu", *more, str(prepared / "exp/store")]


def outcome(exp: Path) -> tuple[list[np.ndarray], list[dict[str, object]]]:
    nnet = Nnet3Model.read(exp / "final.mdl").nnet
    arrays = [value for component in nnet.components.values() for value in component.values.values() if isinstance(value, np.ndarray)]
    lines = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return arrays, [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_preparation_makes_what_kaldi_has_and_is_not_made_twice(prepared):
    exp = prepared / "exp"
    for name in ("den.fst", "normalization.fst", "phone_lm.fst", "tree", "0.trans_mdl", "phones.txt", "cmvn_opts", "0.raw"):
        assert (exp / name).is_file(), name
    stores = {name: FrameStore(exp / "store" / name) for name in ("train", "dev")}
    assert len(stores["train"].utts) == 5 and len(stores["dev"].utts) == 1
    for name, store in stores.items():
        chunks = ChunkStore(exp / "store" / f"{name}_chunks", store)
        assert set(chunks.frames) <= {90, 60} and not chunks.manifest.skipped
        assert {int(one) for one in chunks.utt} == set(range(len(store.utts)))
    assert not prepare(prepared)


def test_noisy_copies_train_with_the_alignments_of_their_originals(golden: Path, tmp_path: Path) -> None:
    folder, rng = folder_of_an4(golden, tmp_path), np.random.default_rng(0)
    feats = dict(MatrixReader(folder / "data/feats.scp"))
    with MatrixWriter(folder / "data/all.ark", folder / "data/feats.scp") as writer:
        for utt, matrix in {**{f"aug-{utt}": matrix + rng.normal(size=matrix.shape) for utt, matrix in feats.items()}, **feats}.items():
            writer.write(utt, matrix.astype(np.float32))
    utts = sorted([*feats, *(f"aug-{utt}" for utt in feats)])
    for name in ("utt2spk", "spk2utt", "wav.scp"):
        (folder / "data" / name).write_text("".join(f"{utt} {utt}{'.wav' * (name == 'wav.scp')}\n" for utt in utts))
    (folder / "data/utt2uniq").write_text("".join(f"{utt} {utt.removeprefix('aug-')}\n" for utt in utts))
    copy_alignments(DataDir(folder / "data"), folder / "ali", folder / "ali_all", ["aug"])
    Preparation(folder / "data", folder / "tree", folder / "ali_all", folder / "exp", PreparationOptions(chunk_width=WIDTHS, cv_utts=2),
                PhoneLmOptions(num_extra_lm_states=300)).run()
    train, dev = (set(FrameStore(folder / "exp/store" / name).utts) for name in ("train", "dev"))
    assert len(dev) == 2 and dev < feats.keys()  # and copies of these are in neither
    assert train == {name for utt in feats.keys() - dev for name in (utt, f"aug-{utt}")}
    assert main([*words(folder, "--num-epochs", "1"), str(folder / "exp/trained")]) == 0


def test_a_copy_of_what_was_prepared_is_not_made_again(prepared, tmp_path):
    shutil.copytree(prepared / "exp", tmp_path / "exp")
    assert "configs/final.config" in json.loads((tmp_path / "exp/store/prepared.json").read_text())["inputs"]
    assert not prepare(prepared, tmp_path / "exp")
    with open(tmp_path / "exp/configs/final.config", "a") as stream:
        stream.write("# another\n")
    assert prepare(prepared, tmp_path / "exp")


def test_what_ivectors_are_of_is_kept(prepared, tmp_path):
    """A chunk has a row of its utterance's i-vectors; others in the same file are noticed, and another extractor's checksum is taken."""
    folder, ivectors = tmp_path / "chain", tmp_path / "ivectors"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns("store"))
    ivectors.mkdir()
    (ivectors / "ivector_period").write_text("10\n")
    frames = {utt: len(x) for utt, x in MatrixReader(folder / "data/feats.scp").items()}

    def extracted(first: float, extractor: str) -> None:
        with MatrixWriter(ivectors / "ivector_online.1.ark", ivectors / "ivector_online.scp") as writer:
            for number, (utt, count) in enumerate(frames.items()):
                writer.write(utt, np.full((-(-count // 10), 2), first + number, np.float32))
        (ivectors / "final.ie.id").write_text(extractor)

    for first, extractor in ((0.0, "one"), (10.0, "two")):
        extracted(first, extractor)
        assert prepare(folder, online_ivector_dir=str(ivectors)) and not prepare(folder, online_ivector_dir=str(ivectors))
        assert (folder / "exp/final.ie.id").read_text() == extractor
        store = FrameStore(folder / "exp/store/train")
        chunks = ChunkStore(folder / "exp/store/train_chunks", store)
        expected = [first + list(frames).index(store.utts[utt]) for utt in chunks.utt]
        assert (chunks.ivectors(np.arange(len(chunks.utt))) == np.array(expected)[:, None]).all()
    assert prepare(folder) and not (folder / "exp/final.ie.id").exists()


def test_utterances_without_ivectors_are_left_out(prepared, tmp_path, capsys):
    """One without any, and one whose features are a period longer than what was heard; of that, two periods are too much."""
    folder, ivectors = tmp_path / "chain", tmp_path / "ivectors"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns("store"))
    ivectors.mkdir()
    (ivectors / "ivector_period").write_text("10\n")
    without, longer, *_ = FrameStore(prepared / "exp/store/train").utts
    for less in (1, 2):
        with MatrixWriter(ivectors / "ivector_online.1.ark", ivectors / "ivector_online.scp") as writer:
            for utt, x in MatrixReader(folder / "data/feats.scp").items():
                rows = -(-len(x) // 10) - (less if utt == longer else 0)
                if utt != without:
                    writer.write(utt, np.arange(2 * rows, dtype=np.float32).reshape(rows, 2))
        if less == 1:
            assert prepare(folder, online_ivector_dir=str(ivectors))
        else:
            with pytest.raises(UserError, match=rf"{longer}: {rows_of(ivectors, longer)} i-vectors of dimension 2"):
                prepare(folder, online_ivector_dir=str(ivectors))
            return
        store = FrameStore(folder / "exp/store/train")
        chunks = ChunkStore(folder / "exp/store/train_chunks", store)
        assert chunks.manifest.skipped == {without: f"no i-vectors in {ivectors}"}
        assert longer in {store.utts[utt] for utt in chunks.utt} and f"such as {without}: no i-vectors" in capsys.readouterr().out
        assert pack(folder, ivectors) == chunks.manifest.skipped


def rows_of(ivectors: Path, utt: str) -> int:
    return len(MatrixReader(ivectors / "ivector_online.scp")[utt])


def pack(folder: Path, ivectors: Path) -> dict[str, str]:
    """Pack the frames, with their i-vectors, of all utterances; those that are left out, and why."""
    store = folder / "frames"
    assert main(["pack", "--cmvn-opts=--norm-means=false", "--delta-opts=--delta-order=0", "--cv-percent", "20", "--online-ivector-dir",
                 str(ivectors), str(folder / "data"), str(folder / "ali"), str(store)]) == 0
    return {utt: why for part in ("train", "dev") for utt, why in FrameStore(store / part).manifest.skipped.items()}


def test_features_with_online_cmvn(prepared, tmp_path):
    """Training sees what decoding will see, and another config is noticed."""
    folder, conf = tmp_path / "chain", tmp_path / "online.conf"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns("store"))
    with MatrixWriter(folder / "data/cmvn.ark", folder / "data/cmvn.scp") as writer:
        for utt, x in MatrixReader(folder / "data/feats.scp").items():
            writer.write(utt, cmvn_stats([x]))
    for text in ("", "--norm-vars=true\n"):
        conf.write_text(text)
        how = {"cmvn_opts": f"--config={conf}", "online_cmvn": True}
        assert prepare(folder, **how) and not prepare(folder, **how)
        data, store = DataDir(folder / "data"), FrameStore(folder / "exp/store/train")
        decoding = FeaturePipeline.from_dir(folder / "exp", nnet3=True)
        assert decoding.online is not None
        for utt, begin, end in zip(store.utts, store.offsets[:-1], store.offsets[1:], strict=True):
            np.testing.assert_allclose(store.feats[begin:end], decoding.apply(data, utt), atol=1e-4)
    assert prepare(folder) and not (folder / "exp/online_cmvn").exists()


def test_utterances_that_do_not_fit_are_listed(prepared, golden, tmp_path):
    folder = folder_of_an4(golden, tmp_path)
    lines = (folder / "data/utt2spk").read_text().split()[::2]
    (folder / "ali/ali.2.gz").unlink()
    write_int_vectors(folder / "ali/ali.1.gz", ((utt, np.repeat(np.int32(2), 20)) for utt in lines[:2]))
    with pytest.raises(UserError, match=r"gives a chunk: .*(frames of features, 7 output frames of|no alignment)"):
        prepare(folder)


def test_utterances_too_short_are_left_out_of_the_others(prepared, tmp_path, monkeypatch, capsys):
    """One whose phones do not fit into a third of its frames, one shorter than the shortest chunk, and one without an alignment."""
    folder = tmp_path / "chain"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns("store"))
    feats = {utt: x for utt, x in MatrixReader(prepared / "data/feats.scp").items()}
    crowded, short, unknown, *others = FrameStore(prepared / "exp/store/train").utts
    with MatrixWriter(folder / "data/feats.ark", folder / "data/feats.scp") as writer:
        for utt, x in feats.items():
            writer.write(utt, x[:40] if utt == short else x)
    frames, aligned = len(feats[crowded]), AlignedPhones.of
    own = {crowded: ([1] * frames, [1] * frames), short: ([1], [40]), unknown: None}
    monkeypatch.setattr(AlignedPhones, "of", lambda phones, utt: own[utt] if utt in own else aligned(phones, utt))
    assert prepare(folder)
    store = FrameStore(folder / "exp/store/train")
    chunks = ChunkStore(folder / "exp/store/train_chunks", store)
    assert chunks.manifest.skipped == {
        crowded: f"{frames} phones do not fit into {-(-frames // 3)} output frames", short: "40 frames, fewer than the shortest chunk's 60",
        unknown: f"no alignment in {folder}/ali"}
    assert {store.utts[utt] for utt in chunks.utt} == set(others)
    assert f"WARNING: 3 utterances or chunks of train are left out, such as {crowded}: " in capsys.readouterr().out


def test_ivectors_of_another_period_are_refused(prepared, tmp_path):
    folder, ivectors = tmp_path / "chain", tmp_path / "ivectors"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns("store"))
    ivectors.mkdir()
    with MatrixWriter(ivectors / "ivector_online.1.ark", ivectors / "ivector_online.scp") as writer:
        for utt, x in MatrixReader(folder / "data/feats.scp").items():
            writer.write(utt, np.zeros((-(-len(x) // 10), 2), np.float32))
    (ivectors / "ivector_period").write_text("5\n")
    with pytest.raises(UserError, match=r"online\.scp, \S+: \d+ i-vectors of dimension 2, expected \d+ of 2, one every 5 of \d+ frames"):
        prepare(folder, online_ivector_dir=str(ivectors))
    (ivectors / "ivector_period").write_text("0\n")
    with pytest.raises(UserError, match=r"ivector_period: expected the frames from one i-vector to the next, found '0'"):
        prepare(folder, online_ivector_dir=str(ivectors))


def test_the_phone_language_model_by_itself_is_that_of_training(prepared, root, tmp_path):
    def script(*words: str) -> subprocess.CompletedProcess[str]:
        line = f"cd '{tmp_path}'; . '{root}/path.sh'; '{root}/steps/nnet3/chain/make_phone_lm.sh' {' '.join(words)}"
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S)

    for target, file in (("lm", "lm/phone_lm.fst"), ("own/other.fst", "own/other.fst")):
        run = script("--num-extra-lm-states", "300", str(prepared / "tree"), target)
        assert run.returncode == 0, run.stderr
        assert re.fullmatch(rf"make_phone_lm\.sh: \d+ states, \d+ arcs; phone language model in {file}\n", run.stdout)
        assert (tmp_path / file).read_bytes() == (prepared / "exp/phone_lm.fst").read_bytes()
    assert "e.g.: steps/nnet3/chain/make_phone_lm.sh" in script().stderr
    run = script(str(prepared / "data"), "none")
    assert run.returncode == 1 and "data/final.mdl does not exist" in run.stderr and not (tmp_path / "none").exists()


def test_a_tree_of_another_lang_than_the_alignments_is_refused(prepared, tmp_path):
    folder = tmp_path / "chain"
    shutil.copytree(prepared, folder)
    (folder / "tree/phones.txt").write_text("<eps> 0\nSIL 1\n#0 2\n")
    (folder / "ali/phones.txt").write_text("<eps> 0\nSIL 1\n#1 2\n")
    assert prepare(folder)  # disambiguation symbols may differ
    (folder / "ali/phones.txt").write_text("<eps> 0\nAH 1\nSIL 2\n")
    with pytest.raises(UserError, match=r"tree/phones\.txt and .*ali/phones\.txt disagree about AH, whose numbers are none and 1; make the "
                       r"tree .*build_tree\.sh"):
        prepare(folder)


def test_the_matrix_of_the_first_layer_is_made_where_configs_ask_for_it(golden, tmp_path):
    folder = folder_of_an4(golden, tmp_path)
    configs = folder / "exp/configs"
    (configs / "init.config").write_text("input-node name=input dim=40\noutput-node name=output input=Append(Offset(input, -1), input)\n")
    assert prepare(folder) and not prepare(folder)
    matrix = KaldiReader.open(configs / "lda.mat").matrix()
    assert matrix.shape == (80, 81) and np.linalg.svd(matrix[:, :80])[1].max() <= 5.001
    feats = np.concatenate([np.concatenate([x[:1], x[:-1]])[::3] for x in parts(folder)]), np.concatenate([x[::3] for x in parts(folder)])
    assert np.abs((np.concatenate(feats, axis=1) @ matrix[:, :80].T + matrix[:, 80]).mean(axis=0)).max() < 0.15  # chunks leave some out


def parts(folder: Path) -> list[np.ndarray]:
    store = FrameStore(folder / "exp/store/train")
    return [np.array(store.feats[a:b]) for a, b in zip(store.offsets[:-1], store.offsets[1:], strict=True)]


@pytest.mark.parametrize("strategy", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
                                      for name in [*strategies(), "kaldi"]])
def test_every_strategy_trains_and_resumes_bit_for_bit(prepared, tmp_path, monkeypatch, strategy):
    """In one process: asynchronous strategies on a simulated cluster."""
    cluster = tmp_path / "two.json"
    cluster.write_text(json.dumps(CLUSTER))
    asynchronous = strategy in ("asgd", "adpsgd", "hadpsgd")
    monkeypatch.setattr(local, "SAFE_POINT_PERIOD", 1)  # an epoch has four minibatches
    job = ["--ngpu", "2", "--strategy", strategy, "--lr-scale", "none", *OWN.get(strategy, []),
           *(["--cluster", str(cluster)] if asynchronous else ["--fabric", "virtual"])]
    assert main([*words(prepared, *job), str(tmp_path / "whole")]) == 0
    moments = random.Random(strategy).sample(range(1, 5), 2)
    stop_at(monkeypatch, lambda count: count in moments)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    stops = 0
    while True:
        try:
            assert main([*words(prepared, *job, "--checkpoint-minutes", "0"), str(tmp_path / "again")]) == 0
            break
        except Interrupted:
            stops += 1
    (whole, history), (again, other) = outcome(tmp_path / "whole"), outcome(tmp_path / "again")
    assert stops == 2 and history == other
    assert all(np.array_equal(a, b) for a, b in zip(whole, again, strict=True))
    assert history[-1]["train_loss"] < history[0]["train_loss"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", strategies())
def test_every_strategy_trains_over_mpi(prepared, tmp_path, strategy):
    """Four workers on two processes: in step to the bit as virtual ones."""
    asynchronous = strategy in ("asgd", "adpsgd", "hadpsgd")
    job = ["--ngpu", "4", "--strategy", strategy, "--lr-scale", "none", *OWN.get(strategy, []),
           *([] if asynchronous else ["--deterministic", "true"])]

    def trained(name: str, *how: str) -> tuple[list[np.ndarray], list[dict[str, object]]]:
        command = [sys.executable, "-m", "pykaldist", *words(prepared, *job, *how), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S)
        said = [line for line in done.stderr.splitlines() if not line.startswith("compiling kernels")]
        assert (done.returncode, said) == (0, [])
        return outcome(tmp_path / name)

    found, history = trained("mpi", "--nproc", "2", "--fabric", "mpi")
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    if not asynchronous:
        virtual, same = trained("virtual", "--fabric", "virtual")
        assert all(np.array_equal(a, b) for a, b in zip(found, virtual, strict=True)) and history == same


def test_the_result_is_a_model_for_decoding(prepared, tmp_path):
    exp = tmp_path / "exp"
    assert main([*words(prepared), str(exp)]) == 0
    model = Nnet3Model.read(exp / "final.mdl")
    norms = [component for component in model.nnet.components.values() if component.type == "BatchNormComponent"]
    assert len(norms) > 5 and all(component.number("Count") > 0 for component in norms)
    scorer = load_acoustic_model(exp)
    assert scorer.tid2pdf.max() == 111
    store = FrameStore(prepared / "exp/store/dev")
    outputs = Nnet3Forward(model.nnet, subsampling=3)(np.array(store.feats))
    assert outputs.shape == (-(-len(store) // 3), 112) and np.isfinite(outputs).all()
    assert (exp / "frame_subsampling_factor").read_text() == "3\n" and (exp / "cmvn_opts").read_text().startswith("--norm-means=false")
    for name in ("tree", "den.fst", "phones.txt", "config.json"):
        assert (exp / name).is_file()
    line = json.loads((exp / "history.jsonl").read_text().splitlines()[-1])
    assert list(line)[:8] == ["epoch", "updates", "frames", "learn_rate", "train_loss", "train_xent", "cv_loss", "cv_xent"]


def test_an_lstm_is_trained_with_frames_around_its_chunks(golden, tmp_path):
    folder, layer = folder_of_an4(golden, tmp_path), "cell-dim=8 recurrent-projection-dim=4 non-recurrent-projection-dim=4 delay=-3"
    lines = ["input dim=40 name=input", "relu-batchnorm-layer name=t dim=12 input=Append(-1,0,1)",
             f"fast-lstmp-layer name=l {layer} dropout-proportion=0.0", f"fast-lstmp-layer name=back {layer.replace('-3', '3')}",
             "output-layer name=output dim=112 include-log-softmax=false", "output-layer name=output-xent input=back dim=112"]
    (folder / "exp/configs/final.config").write_text("\n".join(config_lines(read_layers(lines))["final"]))
    assert prepare(folder)
    job = ["--chunk-left-context", "20", "--chunk-right-context", "9", "--chunk-left-context-initial", "2",
           "--deriv-truncate-margin", "8", "--ngpu", "2", "--strategy", "ma",
           "--fabric", "virtual", "--num-epochs", "4"]
    assert main([*words(folder, *job), str(tmp_path / "whole")]) == 0
    history = [json.loads(line) for line in (tmp_path / "whole/history.jsonl").read_text().splitlines()]
    assert history[-1]["train_loss"] < history[0]["train_loss"] and history[-1]["cv_loss"] < history[0]["cv_loss"]
    nnet = Nnet3Model.read(tmp_path / "whole/final.mdl").nnet
    assert nnet.components["l.lstm_nonlin"].number("Count") > 0
    outputs = Nnet3Forward(nnet, subsampling=3, around=(20, 9))(np.array(FrameStore(folder / "exp/store/dev").feats))
    assert np.isfinite(outputs).all()


def test_a_network_by_its_name(prepared, tmp_path):
    exp = tmp_path / "exp"
    own = words(prepared, "--nnet", "tdnnf", "--hid-layers", "3", "--hid-dim", "24", "--bottleneck-dim", "6", "--num-epochs", "1")
    start = own.index("--initial-model")
    own = [*own[:start], *own[start + 2:]]
    assert main([*own, str(exp)]) == 0
    nnet = Nnet3Model.read(exp / "final.mdl").nnet
    assert nnet.dim("output") == nnet.dim("output-xent") == 112 and nnet.components["tdnn1.affine"].output_dim == 24
    assert "tdnnf2.affine" in nnet.components and "tdnnf4.affine" not in nnet.components
    before = (exp / "0.raw").read_bytes()
    assert main([*own, str(exp)]) == 0 and (exp / "0.raw").read_bytes() == before  # it is finished


@pytest.mark.parametrize(("more", "sentence"), [
    (["--nnet", "tdnnf"], "either is the network"),
    (["--splice", "3"], "--splice is not used by --objective chain"), (["--hid-dim", "3"], "--hid-dim is not used by --objective chain"),
    (["--partition-level", "frame"], "--partition-level frame"), (["--stack-workers", "true"], "cannot be stacked"),
    (["--optimizer", "sgd"], "add --optimizer nnet3"), (["--dropout-schedule", "0.1"], "--dropout-schedule 0.1"),
    (["--ngpu", "40", "--strategy", "ma"], "too few|no chunk")])
def test_options_that_have_no_meaning_are_refused(prepared, tmp_path, capsys, more, sentence):
    assert main([*words(prepared)[:-1], *more, words(prepared)[-1], str(tmp_path / "exp")]) != 0
    assert re.search(sentence, capsys.readouterr().err)


def test_training_starts_from_a_model_of_kaldis(prepared, golden, tmp_path):
    """With hardly any rate of learning its parameters stay as they are, but for matrices that are held near to orthogonal ones."""
    kaldis = golden / "chain/net/final.mdl"
    job = words(prepared, "--learn-rate", "1e-12", "--final-learn-rate", "1e-12", "--num-epochs", "1", "--combine-models", "1")
    job[job.index("--initial-model") + 1] = str(kaldis)
    assert main([*job, str(tmp_path / "exp")]) == 0
    before, after = Nnet3Model.read(kaldis).nnet, Nnet3Model.read(tmp_path / "exp/final.mdl").nnet
    assert list(after.components) == list(before.components)
    arrays = [(name, part) for name, one in before.components.items() for part in one.values
              if part in ("LinearParams", "BiasParams") and not name.endswith(".linear")]
    assert len(arrays) > 10
    for name, part in arrays:
        np.testing.assert_allclose(after.components[name].array(part), before.components[name].array(part), atol=1e-6, err_msg=name)


def test_networks_of_other_data_are_refused(prepared, golden, tmp_path, capsys):
    raw = tmp_path / "other.raw"
    raw.write_bytes((golden / "chain_an4/final.mdl").read_bytes())
    assert main([*words(prepared)[:-1], "--initial-model", str(raw), words(prepared)[-1], str(tmp_path / "exp")]) != 0
    assert "has 248 outputs, the tree 112 pdfs" in capsys.readouterr().err
