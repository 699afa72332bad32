"""Networks that take i-vectors: chunks beside whole utterances, and a chain model of Kaldi's to which an i-vector was added."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from recurrent_lines import INPUTS, recurrent, slow_outputs

from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.decode.chunks import ChunkOptions, Nnet3Options
from pykaldist.decode.ivectors import ChunkedForward, OnlineIvectors
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.tables import MatrixReader, MatrixWriter, read_archive
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import parse_node
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.run import Nnet3Forward

from .conftest import link_scripts, run, succeed

DIM = 3


def with_ivectors(path: Path) -> Nnet3Model:
    """The model in a file, its outputs moved by a linear map of an i-vector."""
    model = Nnet3Model.read(path)
    pdfs = model.transition_model.num_pdfs
    weights = np.random.default_rng(0).normal(0, 1, (pdfs, DIM)).astype(np.float32)
    model.nnet.components["moved"] = Nnet3Component("moved", "FixedAffineComponent",
                                                    {"LinearParams": weights, "BiasParams": np.zeros(pdfs, np.float32)})
    output = model.nnet.nodes["output"]
    added = [parse_node(line) for line in (
        f"input-node name=ivector dim={DIM}", "component-node name=moved component=moved input=ReplaceIndex(ivector, t, 0)",
        f"output-node name=output input=Sum({output.input}, moved)")]
    model.nnet.nodes = {**{node.name: node for node in added[:2]}, **model.nnet.nodes, "output": added[2]}
    return model


@pytest.fixture(scope="module")
def recipe(root: Path, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two utterances, the model with and without i-vectors in exp/iv and exp/plain, and i-vectors of zeros in exp/zeros."""
    folder, chain = tmp_path_factory.mktemp("s5"), golden / "chain_an4"
    link_scripts(folder, root)
    (folder / "exp/graph").mkdir(parents=True)
    shutil.copyfile(chain / "HCLG.fst", folder / "exp/graph/HCLG.fst")
    shutil.copyfile(chain / "decode/words.txt", folder / "exp/graph/words.txt")
    for name in ("iv", "plain"):
        (folder / "exp" / name).mkdir()
        (folder / "exp" / name / "frame_subsampling_factor").write_text("3\n")
        shutil.copyfile(chain / "decode/tree", folder / "exp" / name / "tree")
    shutil.copyfile(chain / "final.mdl", folder / "exp/plain/final.mdl")
    with_ivectors(chain / "final.mdl").write(folder / "exp/iv/final.mdl")
    shutil.copytree(golden / "an4_kaldi/lang", folder / "data/lang")
    test, utts = DataDir(golden / "an4_kaldi/data/test"), (chain / "decode/utts").read_text().split()[:2]
    write_datadir(folder / "data/two", {u: test.wav_scp[u] for u in utts}, {u: " ".join(test.text[u]) for u in utts},
                  {u: test.utt2spk[u] for u in utts})
    feats = {utt: x for utt, x in read_archive(chain / "test_feats.ark.gz") if utt in utts}
    with MatrixWriter(folder / "feats.ark", folder / "data/two/feats.scp") as writer:
        for utt in sorted(utts):
            writer.write(utt, feats[utt])
    write_ivectors(folder / "exp/zeros", {utt: np.zeros((-(-len(feats[utt]) // 10), DIM), np.float32) for utt in utts})
    return folder


def write_ivectors(folder: Path, ivectors: dict[str, np.ndarray], period: str = "10\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ivector_period").write_text(period)
    with MatrixWriter(folder / "ivector_online.1.ark", folder / "ivector_online.scp") as writer:
        for utt, matrix in sorted(ivectors.items()):
            writer.write(utt, matrix)
    return folder


@pytest.mark.parametrize(("frames_per_chunk", "chunk"), [(50, 51), (20, 21), (1000, 1002)])
def test_a_chunk_has_the_ivector_of_its_middle(recipe: Path, frames_per_chunk: int, chunk: int) -> None:
    forward = Nnet3Forward(Nnet3Model.read(recipe / "exp/iv/final.mdl").nnet, subsampling=3)
    rng = np.random.default_rng(1)
    feats = rng.normal(0, 1, (121, forward.inputs["input"])).astype(np.float32)
    ivectors = rng.normal(0, 1, (121, DIM)).astype(np.float32)
    found = ChunkedForward(forward, ChunkOptions(frames_per_chunk))(feats, ivectors)
    assert len(found) == 41
    for first in range(0, 121, chunk):
        last = range(first, min(first + chunk, 121), 3)[-1]
        middle = first + (last - first) // 2
        whole = forward(feats, ivector=ivectors[middle:middle + 1])
        np.testing.assert_allclose(found[first // 3:last // 3 + 1], whole[first // 3:last // 3 + 1], atol=2e-5)


def test_a_recurrent_network_begins_anew_with_each_chunk() -> None:
    nnet, chunks = recurrent("both ways"), ChunkOptions(20, 7, 4, extra_left_context_initial=0, extra_right_context_final=2)
    forward = Nnet3Forward(nnet, subsampling=3)
    feats = np.random.default_rng(1).normal(size=(50, INPUTS)).astype(np.float32)
    found = ChunkedForward(forward, chunks)(feats)
    assert len(found) == 17
    for first, last, before, behind in ((0, 18, 0, 4), (21, 39, 7, 4), (42, 48, 7, 2)):
        expected = slow_outputs(nnet, feats, first - before - forward.plan.left_context, last + behind + forward.plan.right_context,
                                [*range(first, last + 1, 3)])
        np.testing.assert_allclose(found[first // 3:last // 3 + 1], expected, atol=1e-5)


def test_zeros_change_nothing(recipe: Path) -> None:
    data, options = DataDir(recipe / "data/two"), Nnet3Options(recipe / "exp/zeros")
    plain, model = load_acoustic_model(recipe / "exp/plain"), load_acoustic_model(recipe / "exp/iv", nnet3=options)
    for utt in data.utterances():
        x = model.features(data, utt)
        assert x.shape[1] == plain.features(data, utt).shape[1] + DIM
        np.testing.assert_allclose(model.loglikes(x), plain.loglikes(plain.features(data, utt)), atol=2e-5)


def test_the_script_decodes_with_ivectors(recipe: Path) -> None:
    options = ("--nj", "1", "--acwt", "1.0", "--post-decode-acwt", "10.0", "--online-ivector-dir", "exp/zeros", "--frames-per-chunk", "140",
               "--scoring-opts", "--min-lmwt 10 --max-lmwt 10")
    assert "lattices of 2 utterances" in succeed(recipe, "steps/nnet3/decode.sh", *options, "exp/graph", "data/two", "exp/iv/decode")
    assert (recipe / "exp/iv/decode/lat.1.gz").is_file()
    for arguments, said in (((), "takes i-vectors; extract them"), (("--ivector-scale", "0.5", *options), "i-vectors are not scaled here")):
        done = run(recipe, "steps/nnet3/decode.sh", *arguments, "exp/graph", "data/two", "exp/iv/decode_not")
        assert done.returncode == 1 and said in done.stderr


def test_the_scripts_align_with_ivectors(recipe: Path) -> None:
    """Beside the network without i-vectors: zeros change nothing, others do."""
    of_frames = {utt: -(-len(x) // 10) for utt, x in MatrixReader(recipe / "data/two/feats.scp").items()}
    rng = np.random.default_rng(2)
    write_ivectors(recipe / "exp/random", {utt: rng.normal(0, 3, (rows, DIM)).astype(np.float32) for utt, rows in of_frames.items()})
    scales = ("--nj", "1", "--use-gpu", "false", "--scale-opts", "--transition-scale=1.0 --self-loop-scale=1.0 --acoustic-scale=1.0")
    for name, model, options in (("ali", "plain", ()), ("ali_zeros", "iv", ("--online-ivector-dir", "exp/zeros")),
                                 ("ali_random", "iv", ("--online-ivector-dir", "exp/random", "--frames-per-chunk", "30"))):
        succeed(recipe, "steps/nnet3/align.sh", *scales, *options, "data/two", "data/lang", f"exp/{model}", f"exp/{name}")
    plain, zeros, random = ({utt: tids.tolist() for utt, tids in AlignmentDir(recipe / "exp" / name).labels.items()}
                            for name in ("ali", "ali_zeros", "ali_random"))
    assert len(plain) == 2 and zeros == plain and random != plain
    options = ("--acoustic-scale", "1.0", "--generate-ali-from-lats", "true", "--online-ivector-dir", "exp/zeros")
    succeed(recipe, "steps/nnet3/align_lats.sh", *scales[:4], "--scale-opts", "--transition-scale=1.0 --self-loop-scale=1.0", *options,
            "data/two", "data/lang", "exp/iv", "exp/lats")
    assert {utt: tids.tolist() for utt, tids in AlignmentDir(recipe / "exp/lats").labels.items()} == plain
    done = run(recipe, "steps/nnet3/align.sh", *scales, "data/two", "data/lang", "exp/iv", "exp/ali_not")
    said = done.stderr + (recipe / "exp/ali_not/log/align_alignments.1.log").read_text()
    assert done.returncode == 1 and "takes i-vectors; extract them" in said


def test_what_does_not_fit_is_named(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ivector_online.scp does not exist; run steps/online/nnet2/extract_ivectors_online.sh"):
        load_acoustic_model(recipe / "exp/iv", nnet3=Nnet3Options(tmp_path))
    with pytest.raises(UserError, match=r"takes no i-vectors; leave --online-ivector-dir out"):
        load_acoustic_model(recipe / "exp/plain", nnet3=Nnet3Options(recipe / "exp/zeros"))
    with pytest.raises(UserError, match="--frames-per-chunk must be at least 1"):
        ChunkOptions(0)
    with pytest.raises(UserError, match="ivector_period: expected a number of frames, found 'ten'"):
        OnlineIvectors(write_ivectors(tmp_path / "ten", {}, "ten\n"), DIM)
    folder = write_ivectors(tmp_path / "iv", {"a": np.zeros((30, DIM)), "b": np.zeros((30, DIM + 1))})
    ivectors = OnlineIvectors(folder, DIM)
    for frames in (280, 300, 350):
        assert ivectors.of_frames("a", frames).shape == (frames, DIM)
    for utt, frames, said in (("a", 351, "found 30 i-vectors for 351 frames, expected 36, one every 10 frames"),
                              ("a", 100, "found 30 i-vectors for 100 frames, expected 10"), ("c", 300, "there are no i-vectors"),
                              ("b", 300, r"expected i-vectors of dimension 3, found \(30, 4\)")):
        with pytest.raises(UserError, match=said):
            ivectors.of_frames(utt, frames)
    (folder / "final.ie.id").write_text("abc\n")
    ivectors.check_extractor(recipe / "exp/iv")
    (tmp_path / "final.ie.id").write_text("def\n")
    with pytest.raises(UserError, match=r"has i-vectors of another extractor \(abc\) than those that .* was trained with \(def\)"):
        ivectors.check_extractor(tmp_path)
