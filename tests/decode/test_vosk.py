"""Vosk model directories: what is in them, what is refused, and Vosk's own words from one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kaldialign
import numpy as np
import pytest

from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.hclg import GraphOptions
from pykaldist.decode.lookahead_graph import make_lookahead_graph
from pykaldist.decode.paths import best_path
from pykaldist.decode.unnormalised import mean_of, with_mean_subtracted
from pykaldist.decode.vosk import VoskOptions, export_vosk
from pykaldist.errors import UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.ubm import write_ubm
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.io.audio import read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.lang import SymbolTable
from pykaldist.io.lookahead_fst import read_lookahead, write_lookahead
from pykaldist.io.tables import MatrixWriter, read_archive
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.run import Nnet3Forward

from .conftest import succeed
from .test_ivectors import DIM, with_ivectors

GRAPH_SCALE = 0.9  # by which Vosk multiplies the costs of the graph in its lattices


@pytest.fixture
def system(golden: Path, tmp_path: Path) -> Path:
    """Kaldi's model that carries its shift inside, with its graph, as exp/tdnn."""
    folder, chain, lang = tmp_path / "exp/tdnn", golden / "chain_an4", golden / "an4_kaldi/lang"
    (folder / "graph/phones").mkdir(parents=True)
    shutil.copyfile(chain / "final_global_mean.mdl", folder / "final.mdl")
    (folder / "frame_subsampling_factor").write_text("3\n")
    shutil.copyfile(chain / "HCLG.fst", folder / "graph/HCLG.fst")
    shutil.copyfile(chain / "decode/words.txt", folder / "graph/words.txt")
    for name in ("silence.csl", "word_boundary.int"):
        shutil.copyfile(lang / "phones" / name, folder / "graph/phones" / name)
    shutil.copyfile(chain / "mfcc_hires.conf", tmp_path / "mfcc.conf")
    return folder


def export(system: Path, target: Path, extractor: Path | None = None, mean_data: Path | None = None) -> None:
    export_vosk(system, system / "graph", target, extractor, mean_data, VoskOptions(str(system.parent.parent / "mfcc.conf")))


def data_with_mean(folder: Path, mean: np.ndarray) -> Path:
    """A data directory of two speakers, whose frames together have this mean."""
    data = write_datadir(folder, {"a-1": "a.wav", "b-1": "b.wav"}, None, {"a-1": "a", "b-1": "b"})
    with MatrixWriter(folder / "cmvn.ark", folder / "cmvn.scp") as writer:
        for speaker, frames, own in (("a", 300.0, mean + 2), ("b", 100.0, mean - 6)):
            writer.write(speaker, np.stack([np.append(own * frames, frames), np.append(own * own * frames, 0)]))
    return data.path


def test_the_directory_is_the_one_that_vosk_decoded(system: Path, golden: Path, tmp_path: Path) -> None:
    export(system, tmp_path / "vosk")
    files = {str(path.relative_to(tmp_path / "vosk")) for path in (tmp_path / "vosk").rglob("*") if path.is_file()}
    assert files == {"am/final.mdl", "conf/mfcc.conf", "conf/model.conf", "graph/HCLG.fst", "graph/words.txt",
                     "graph/phones/word_boundary.int"}
    kaldis = golden / "chain_an4/vosk_model_conf"
    assert (tmp_path / "vosk/conf/model.conf").read_text().split() == (kaldis / "model.conf").read_text().split()
    written = (tmp_path / "vosk/conf/mfcc.conf").read_text()
    assert "--dither=0\n" in written
    assert read_conf(MfccOptions, tmp_path / "vosk/conf/mfcc.conf") == read_conf(MfccOptions, kaldis / "mfcc.conf")
    assert (tmp_path / "vosk/am/final.mdl").read_bytes() == (golden / "chain_an4/final_global_mean.mdl").read_bytes()


def test_a_mean_in_front_of_the_network_is_subtracted_as_kaldi_did(golden: Path) -> None:
    kaldis = Nnet3Model.read(golden / "chain_an4/final_global_mean.mdl").nnet
    ours = with_mean_subtracted(Nnet3Model.read(golden / "chain_an4/final.mdl").nnet, -kaldis.components["gmean"].array("Bias"))
    feats = np.random.default_rng(1).normal(size=(50, 40)).astype(np.float32) * 20
    np.testing.assert_allclose(Nnet3Forward(ours)(feats), Nnet3Forward(kaldis)(feats), atol=1e-5)


def test_the_mean_of_the_training_data_goes_into_the_model(system: Path, golden: Path, tmp_path: Path) -> None:
    shutil.copyfile(golden / "chain_an4/final.mdl", system / "final.mdl")
    (system / "cmvn_opts").write_text("--norm-means=true\n")
    mean = np.linspace(-80, 10, 40)
    data = data_with_mean(tmp_path / "train", mean)
    np.testing.assert_allclose(mean_of(DataDir(data)), mean, atol=1e-4)
    export(system, tmp_path / "vosk", mean_data=data)
    model = Nnet3Model.read(tmp_path / "vosk/am/final.mdl")
    feats = np.random.default_rng(1).normal(size=(50, 40)).astype(np.float32) * 20
    before = Nnet3Forward(Nnet3Model.read(system / "final.mdl").nnet)(feats - mean.astype(np.float32))
    np.testing.assert_allclose(Nnet3Forward(model.nnet)(feats), before, atol=1e-4)
    assert (model.left_context, model.right_context) == (12, 12)


def test_what_vosk_could_not_use_is_refused(system: Path, tmp_path: Path) -> None:
    target = tmp_path / "vosk"
    with pytest.raises(UserError, match=r"takes no i-vectors; leave out --extractor"):
        export(system, target, extractor=tmp_path)
    with pytest.raises(UserError, match=r"takes features as they are, without CMVN; leave out --mean-of"):
        export(system, target, mean_data=tmp_path)
    cannot = "none of which is made of audio as it comes"
    for opts, said in (("--norm-means=true", "name the network's training data with --mean-of"),
                       ("--norm-means=true --norm-vars=true", cannot), ("--sliding=true", cannot)):
        (system / "cmvn_opts").write_text(opts + "\n")
        with pytest.raises(UserError, match=said):
            export(system, target)
    (system / "cmvn_opts").write_text("--norm-means=true\n")
    with pytest.raises(UserError, match=r"has means of dimension 13, the network of \S+ takes 40"):
        export(system, target, mean_data=data_with_mean(tmp_path / "train", np.zeros(13)))
    (system / "cmvn_opts").unlink()
    model = Nnet3Model.read(system / "final.mdl")
    model.nnet.components["batchnorm0"].values["Count"] = 0.0
    model.write(system / "untrained.mdl")
    trained = (system / "final.mdl").rename(system / "trained.mdl")
    (system / "untrained.mdl").rename(system / "final.mdl")
    with pytest.raises(UserError, match="batchnorm0 has no statistics yet"):
        export(system, target)
    trained.rename(system / "final.mdl")
    (tmp_path / "mfcc.conf").write_text("--num-ceps=13\n")
    with pytest.raises(UserError, match=r"makes 13 MFCCs, the network of \S+ takes 40 dimensions"):
        export(system, target)
    assert not target.exists()


def test_a_graph_of_another_model_is_refused(system: Path, tmp_path: Path) -> None:
    fst = Fst.read(system / "graph/HCLG.fst")
    fst.ilabel[fst.ilabel.argmax()] += 1000
    fst.write(system / "graph/HCLG.fst")
    with pytest.raises(UserError, match=r"has transition-ids up to \d+ where the model has \d+"):
        export(system, tmp_path / "vosk")
    (system / "graph/HCLG.fst").unlink()
    with pytest.raises(UserError, match=r"HCLG.fst does not exist; make the graph"):
        export(system, tmp_path / "vosk")


def test_an_earlier_export_is_replaced_and_nothing_else(system: Path, tmp_path: Path) -> None:
    target = tmp_path / "vosk"
    (target / "ivector").mkdir(parents=True)
    (target / "ivector/final.ie").touch()  # of a network that took i-vectors
    export(system, target)
    assert not (target / "ivector").exists()
    (target / "README").touch()
    with pytest.raises(UserError, match="has README, which is no part of a Vosk model"):
        export(system, target)
    assert (target / "am/final.mdl").is_file()


def write_extractor(folder: Path, golden: Path, dim: int) -> Path:
    """The directory of an untrained extractor of i-vectors of the test set's MFCCs."""
    rng = np.random.default_rng(0)
    feats = np.concatenate([x for _, x in read_archive(golden / "chain_an4/test_feats.ark.gz")][:10])
    stats = cmvn_stats([feats])
    folder.mkdir()
    inv_vars = np.ones((16, 20))
    ubm = AmDiagGmm(np.array([0, 16]), np.full(16, 1 / 16), rng.normal(size=(16, 20)), inv_vars)
    write_ubm(folder / "final.dubm", ubm)
    IvectorExtractor.initial(ubm, dim, rng).write(folder / "final.ie")
    for name, matrix in (("final.mat", rng.normal(size=(20, 7 * 40)) / 300), ("global_cmvn.stats", stats)):
        with (folder / name).open("wb") as stream:
            KaldiWriter(stream).matrix(matrix.astype(np.float32) if name == "final.mat" else matrix)
    (folder / "splice_opts").write_text("--left-context=3 --right-context=3\n")
    (folder / "online_cmvn.conf").write_text("--norm-means=true\n")
    return folder


def with_unused_ivectors(system: Path) -> None:
    """Give the network an input for i-vectors, which changes nothing."""
    model = with_ivectors(system / "final.mdl")
    model.nnet.components["moved"].array("LinearParams")[:] = 0
    model.write(system / "final.mdl")


def test_the_extractor_goes_with_a_network_that_takes_i_vectors(system: Path, golden: Path, tmp_path: Path) -> None:
    with_unused_ivectors(system)
    with pytest.raises(UserError, match="takes i-vectors; name the directory of their extractor with --extractor"):
        export(system, tmp_path / "vosk")
    with pytest.raises(UserError, match=r"makes i-vectors of dimension 5, the network of \S+ takes 3"):
        export(system, tmp_path / "vosk", extractor=write_extractor(tmp_path / "other", golden, 5))
    extractor = write_extractor(tmp_path / "extractor", golden, DIM)
    export(system, tmp_path / "vosk", extractor=extractor)
    for name in ("final.dubm", "final.ie", "final.mat", "global_cmvn.stats", "online_cmvn.conf"):
        assert (tmp_path / "vosk/ivector" / name).read_bytes() == (extractor / name).read_bytes()
    assert (tmp_path / "vosk/ivector/splice.conf").read_text() == "--left-context=3\n--right-context=3\n"
    (extractor / "final.mat").unlink()
    with pytest.raises(UserError, match=r"extractor/final.mat does not exist"):
        export(system, tmp_path / "vosk", extractor=extractor)


def with_two_halves(system: Path, golden: Path) -> None:
    """Give the system's directory the graph in two halves, and no whole one."""
    shutil.copyfile(golden / "chain_an4/decode/tree", system / "tree")
    shutil.rmtree(system / "graph")
    make_lookahead_graph(golden / "an4_kaldi/lang", system, system / "graph", GraphOptions(self_loop_scale=1.0))


def test_a_graph_in_two_halves_is_exported_as_it_is(system: Path, golden: Path, tmp_path: Path) -> None:
    with_two_halves(system, golden)
    export(system, tmp_path / "vosk")
    for name in ("HCLr.fst", "Gr.fst", "disambig_tid.int", "words.txt"):
        assert (tmp_path / "vosk/graph" / name).read_bytes() == (system / "graph" / name).read_bytes()
    assert not (tmp_path / "vosk/graph/HCLG.fst").exists()
    fst, labels = read_lookahead(system / "graph/HCLr.fst")
    fst.ilabel[fst.ilabel.argmax()] += 1000
    write_lookahead(system / "graph/HCLr.fst", fst, labels)
    (system / "graph/inputs.json").unlink()
    with pytest.raises(UserError, match="transition-ids up to"):
        export(system, tmp_path / "vosk")


def vosk_python() -> str:
    """A Python that has the package vosk; the test is skipped where there is none."""
    if named := os.environ.get("PYKALDIST_VOSK_PYTHON"):
        return named
    if importlib.util.find_spec("vosk") is None:
        pytest.skip("the package vosk is not here; PYKALDIST_VOSK_PYTHON names a Python that has it (pip install vosk==0.3.45)")
    return sys.executable


def recognised(python: str, root: Path, model: Path, audio: Path) -> dict[str, list[str]]:
    """The words that Vosk finds in recordings."""
    command = [python, root / "tests/decode/recognise_with_vosk.py", model, audio]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


@pytest.mark.slow
def test_vosk_finds_the_words_that_are_found_here(system: Path, golden: Path, shared: Path, root: Path, tmp_path: Path) -> None:
    python = vosk_python()
    for name in ("steps", "utils"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "path.sh").write_text(f". {root}/path.sh\n")
    succeed(tmp_path, "steps/export_vosk.sh", "--mfcc-config", "mfcc.conf", "exp/tdnn", "vosk")
    test, audio = DataDir(golden / "an4_kaldi/data/test"), tmp_path / "audio"
    audio.mkdir()
    samples = {utt: read_audio(shared / test.wav_scp[utt])[0] for utt in test.utterances()}
    for utt, one in samples.items():
        one.astype(np.int16).tofile(audio / f"{utt}.raw")
    kaldis = dict(line.rstrip("\n").split(" ", 1) for line in (golden / "chain_an4/vosk_hyp.txt").read_text().splitlines())
    theirs = recognised(python, root, tmp_path / "vosk", audio)
    assert {utt: " ".join(words) for utt, words in theirs.items()} == kaldis

    model, words = load_acoustic_model(system), SymbolTable.read(system / "graph/words.txt")
    decoder = LatticeDecoder(Fst.read(system / "graph/HCLG.fst"), model.tid2pdf, DecoderOptions(15.0, 8.0, 7000, 200, 1.0))
    extractor = Extractor(read_conf(MfccOptions, tmp_path / "mfcc.conf"))
    ours = {}
    for utt, one in samples.items():
        lattice = decoder.decode(model.loglikes(extractor.extract([(utt, one)])[0]))
        assert lattice is not None
        ours[utt] = [words.symbol(word) for word in best_path(lattice, 1.0, GRAPH_SCALE).words]
    assert sum(ours[utt] == theirs[utt] for utt in ours) >= 0.98 * len(ours)
    errors = [sum(kaldialign.edit_distance(list(test.text[utt]), hyp[utt])["total"] for utt in ours) for hyp in (ours, theirs)]
    total = sum(len(words) for words in test.text.values())
    assert abs(errors[0] - errors[1]) <= 0.003 * total, (errors, total)

    with_two_halves(system, golden)
    export(system, tmp_path / "lookahead")
    composed = recognised(python, root, tmp_path / "lookahead", audio)
    assert sum(composed[utt] == theirs[utt] for utt in theirs) >= 0.98 * len(theirs)
    (system / "graph/inputs.json").unlink()  # the model changes next

    with_unused_ivectors(system)
    export(system, tmp_path / "ivectors", extractor=write_extractor(tmp_path / "extractor", golden, DIM))
    assert recognised(python, root, tmp_path / "ivectors", audio) == composed
