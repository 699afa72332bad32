"""Speaker adaptation in decoding: Kaldi's own system on AN4, its transforms and features beside ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.acoustic import GmmModel
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import best_path
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import SpeakerTransforms
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import read_archive
from pykaldist.score.wer import compute_wer

from .conftest import make_recipe, run, succeed


@pytest.fixture(scope="module")
def recipe(root: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's SAT system and all test utterances of two speakers, decoded by two jobs."""
    files = ("final.mdl", "final.alimdl", "tree", "cmvn_opts", "splice_opts", "final.mat")
    folder = make_recipe(tmp_path_factory.mktemp("s5"), root, shared, shared / "golden/an4_kaldi/tri3_ali", "tri3", files, None)
    (folder / "said").write_text(succeed(folder, "steps/decode_fmllr.sh", "--nj", "2", "exp/tri3/graph", "data/test", "exp/tri3/decode"))
    return folder


def test_transforms_and_features_are_kaldis(recipe: Path, golden: Path) -> None:
    """Kaldi's features had dither, so that its transforms differ a little; the features come out the same within that."""
    ours, theirs = SpeakerTransforms.read(recipe / "exp/tri3/decode"), SpeakerTransforms.read(golden / "an4_kaldi/tri3_decode")
    assert len(ours) == 2 and set(ours) <= set(theirs)
    for speaker, transform in ours.items():
        assert np.abs(transform - theirs[speaker]).mean() < 0.02
    data, expected = DataDir(recipe / "data/test"), dict(read_archive(golden / "an4_kaldi/fmllr/test.ark"))
    pipeline = FeaturePipeline.from_dir(recipe / "exp/tri3", recipe / "exp/tri3/decode")
    unadapted = FeaturePipeline.from_dir(recipe / "exp/tri3")
    found, plain, kaldis = (np.concatenate(matrices) for matrices in zip(*(
        (pipeline.apply(data, utt), unadapted.apply(data, utt), expected[utt]) for utt in data.utterances()), strict=True))
    error, distance = (np.sqrt(np.mean((x - kaldis) ** 2)) for x in (found, plain))
    assert error < 0.25 * distance and error < 0.35


def test_what_comes_out(recipe: Path) -> None:
    adapted, plain = (float((recipe / f"exp/tri3/{d}/best_wer").read_text().split()[1]) for d in ("decode", "decode.si"))
    assert adapted < plain < 25 and adapted < 10  # Kaldi: 5.82 over all speakers
    said = (recipe / "said").read_text().splitlines()[-1]
    assert said.startswith("decode_fmllr.sh: lattices of 26 utterances and fMLLR transforms in exp/tri3/decode; %WER ")
    assert not (recipe / "exp/tri3/decode.pass1").exists()


def test_lattices_that_are_there_are_used(recipe: Path) -> None:
    """With --si-dir nothing is decoded without adaptation again; jobs have to be as many."""
    command = ["steps/decode_fmllr.sh", "--si-dir", "exp/tri3/decode.si", "exp/tri3/graph", "data/test", "exp/tri3/offset"]
    refused = run(recipe, command[0], "--nj", "1", *command[1:])
    assert refused.returncode == 1 and "decode.si has lattices of 2 jobs, not 1; give --nj 2" in refused.stderr
    made = run(recipe, command[0], "--nj", "2", "--skip-scoring", "true", "--fmllr-update-type", "offset", *command[1:])
    assert made.returncode == 0 and not (recipe / "exp/tri3/offset.si").exists()
    transform = next(iter(SpeakerTransforms.read(recipe / "exp/tri3/offset").values()))
    np.testing.assert_array_equal(transform[:, :-1], np.eye(40))


def test_transforms_in_a_basis(recipe: Path) -> None:
    """The basis of these speakers' utterances; few of its matrices are nearer to fMLLR than none, many nearer still."""
    succeed(recipe, "steps/align_fmllr.sh", "--nj", "2", "data/test", "data/lang", "exp/tri3", "exp/tri3_ali")
    said = succeed(recipe, "steps/get_fmllr_basis.sh", "--nj", "2", "data/test", "data/lang", "exp/tri3_ali")
    assert "1640 matrices from 26 utterances, log-likelihood up to + " in said and "basis in exp/tri3_ali/fmllr.basis" in said
    missing = run(recipe, "steps/decode_basis_fmllr.sh", "--nj", "2", "exp/tri3/graph", "data/test", "exp/tri3/basis")
    assert missing.returncode == 1 and "exp/tri3/fmllr.basis does not exist" in missing.stderr
    (recipe / "exp/tri3/fmllr.basis").symlink_to(recipe / "exp/tri3_ali/fmllr.basis")
    whole = SpeakerTransforms.read(recipe / "exp/tri3/decode")
    distance = {}
    for name, options in (("one", ["--size-scale", "0.0005"]), ("many", [])):
        succeed(recipe, "steps/decode_basis_fmllr.sh", "--nj", "2", *options, "--si-dir", "exp/tri3/decode.si", "exp/tri3/graph",
                "data/test", f"exp/tri3/basis_{name}")
        found = SpeakerTransforms.read(recipe / f"exp/tri3/basis_{name}")
        distance[name] = np.mean([np.linalg.norm(found[speaker] - whole[speaker]) for speaker in whole])
    assert distance["many"] < distance["one"] < np.mean([np.linalg.norm(np.eye(40, 41) - matrix) for matrix in whole.values()])
    adapted, plain = (float((recipe / f"exp/tri3/{d}/best_wer").read_text().split()[1]) for d in ("basis_many", "decode.si"))
    assert adapted < plain
    said = succeed(recipe, "steps/align_basis_fmllr.sh", "--nj", "2", "data/test", "data/lang", "exp/tri3", "exp/tri3_basis_ali")
    assert "2 speakers; alignments in exp/tri3_basis_ali" in said and len(SpeakerTransforms.read(recipe / "exp/tri3_basis_ali")) == 2
    refused = run(recipe, "utils/pykaldist", "est-fmllr", "--size-scale", "0.1", "exp/tri3/graph", "data/test", "exp/tri3",
                  "exp/tri3/decode.si", "x")
    assert refused.returncode == 1 and "give it with --fmllr-basis" in refused.stderr


def test_rescored_lattices_have_the_models_costs(recipe: Path) -> None:
    system, model = recipe / "exp/tri3", GmmModel(recipe / "exp/tri3", recipe / "exp/tri3/final.alimdl", recipe / "exp/tri3/decode")
    succeed(recipe, "utils/pykaldist", "rescore-lattices", "--nj", "2", "--transform-dir", "exp/tri3/decode", "--acwt", "0.083333",
            "--model", "exp/tri3/final.alimdl", "data/test", "exp/tri3", "exp/tri3/decode", "exp/tri3/other")
    data, lattices = DataDir(recipe / "data/test"), dict(read_lattices(system / "other/lat.1.gz"))
    assert len(lattices) == 13
    for utt in list(lattices)[:3]:
        path = best_path(lattices[utt], 1 / 12)
        expected = model.loglikes(model.features(data, utt))[np.arange(len(path.transition_ids)), model.tid2pdf[path.transition_ids]]
        assert path.acoustic == pytest.approx(-expected.sum(dtype=np.float64), rel=1e-5)


def test_no_more_jobs_than_speakers(recipe: Path) -> None:
    """The script takes fewer jobs; the verb, which cannot know what the lattices' jobs were, refuses. A decoding that ended after its first
    lattices goes on to the same transforms and lattices, with threads too."""
    succeed(recipe, "cp", "-r", "exp/tri3/decode.si", "exp/tri3/again.si")
    command = ["steps/decode_fmllr.sh", "--nj", "5", "--skip-scoring", "true", "exp/tri3/graph", "data/test", "exp/tri3/again"]
    missing = run(recipe, command[0], "--stage", "3", *command[1:])
    assert missing.returncode == 1 and "again.pass1" in missing.stderr
    said = succeed(recipe, command[0], "--stage", "1", "--num-threads", "2", *command[1:])
    assert "data/test has 2 speakers, so there are 2 jobs, not 5" in said
    for name in ("trans.1", "trans.2", "lat.1.gz", "lat.2.gz"):
        assert (recipe / "exp/tri3/again" / name).read_bytes() == (recipe / "exp/tri3/decode" / name).read_bytes()
    refused = run(recipe, "utils/pykaldist", "est-fmllr", "--nj", "3", "exp/tri3/graph", "data/test", "exp/tri3", "exp/tri3/decode.si", "x")
    assert refused.returncode == 1 and "has 2 speakers, who cannot be divided among more jobs" in refused.stderr


def test_usage(recipe: Path) -> None:
    asked, wrong = run(recipe, "steps/decode_fmllr.sh", "--help"), run(recipe, "steps/decode_fmllr.sh", "one")
    assert asked.returncode == 0 and wrong.returncode == 1 and asked.stdout == wrong.stderr and "e.g.:" in asked.stdout
    missing = run(recipe, "steps/decode_fmllr.sh", "exp/tri3/graph", "data/test", "exp/none/decode")
    assert missing.returncode == 1 and "exp/none/final.mdl does not exist" in missing.stderr


def test_recordings_are_transcribed_as_the_test_set_is_decoded(recipe: Path, golden: Path) -> None:
    """All of one speaker, by the SAT system, and by Kaldi's network on the features that it adapts."""
    data, words = DataDir(recipe / "data/test"), SymbolTable.read(recipe / "exp/tri3/graph/words.txt")
    utts = next(iter(data.spk2utt.values()))
    decoded = {utt: [words.symbol(word) for word in best_path(lattice, 0.083333).words] for utt, lattice in
               read_lattices(recipe / "exp/tri3/decode/lat.1.gz") if utt in utts}
    assert set(decoded) == set(utts)
    (recipe / "exp/dnn").mkdir()
    for path in (*(golden / "an4_kaldi/dnn" / name for name in ("final.nnet", "final.feature_transform", "ali_train_pdf.counts")),
                 recipe / "exp/tri3/final.mdl"):
        (recipe / "exp/dnn" / path.name).symlink_to(path)
    (recipe / "exp/dnn/cmvn_opts").write_text("--norm-means=false\n")
    common = ("utils/pykaldist", "transcribe", "--feats-config", "mfcc.conf", "--graph", "exp/tri3/graph", "--one-speaker", "true")
    for more, system in (((), "tri3"), (("--adapt-model", "exp/tri3"), "dnn")):
        printed = succeed(recipe, *common, *more, f"exp/{system}", *(data.wav_scp[utt] for utt in utts)).splitlines()
        said = {utt: line.split()[1:] for utt, line in zip(utts, printed, strict=True)}
        assert [line.split()[0] for line in printed] == [data.wav_scp[utt] for utt in utts]
        if system == "tri3":  # O and OH sound alike: which is best may fall either way
            alike = [{utt: ["OH" if word == "O" else word for word in line] for utt, line in lines.items()} for lines in (decoded, said)]
            assert compute_wer(*alike).wer < 2
        assert compute_wer(data.text, said).wer < 20
    short = {utt: succeed(recipe, *common[:-2], "exp/tri3", data.wav_scp[utt]).split()[1:] for utt in utts[::5]}
    assert compute_wer(data.text, short).wer < 30  # a few seconds each: without transforms of their own, half the words were wrong
