"""Speaker adaptation in decoding: Kaldi's own system on AN4, its transforms and features beside ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import read_speaker_transforms
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.tables import read_archive


def run(recipe: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYKALDIST_PYTHON": sys.executable}
    return subprocess.run(command, cwd=recipe, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def recipe(root: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe's directory with Kaldi's SAT system and all test utterances of two speakers, decoded by two jobs."""
    folder, golden = tmp_path_factory.mktemp("s5"), shared / "golden/an4_kaldi"
    for name in ("steps", "utils"):
        (folder / name).symlink_to(root / name)
    (folder / "path.sh").write_text(f". {root}/path.sh\n")
    (folder / "exp/tri3").mkdir(parents=True)
    for name in ("final.mdl", "final.alimdl", "tree", "cmvn_opts", "splice_opts", "final.mat"):
        shutil.copyfile(golden / "tri3_ali" / name, folder / "exp/tri3" / name)
    test = DataDir(golden / "data/test")
    utts = [utt for utts in list(test.spk2utt.values())[:2] for utt in utts]
    write_datadir(folder / "data/test", {u: f"{shared}/{test.wav_scp[u]}" for u in utts}, {u: " ".join(test.text[u]) for u in utts},
                  {u: test.utt2spk[u] for u in utts})
    (folder / "mfcc.conf").write_text("--use-energy=false\n")
    for command in (["steps/make_mfcc.sh", "--nj", "1", "--mfcc-config", "mfcc.conf", "data/test"],
                    ["steps/compute_cmvn_stats.sh", "data/test"],
                    ["utils/mkgraph.sh", str(golden / "lang"), "exp/tri3", "exp/tri3/graph"],
                    ["steps/decode_fmllr.sh", "--nj", "2", "exp/tri3/graph", "data/test", "exp/tri3/decode"]):
        result = run(folder, *command)
        assert result.returncode == 0, result.stderr
    (folder / "said").write_text(result.stdout)
    return folder


def test_transforms_and_features_are_kaldis(recipe: Path, golden: Path) -> None:
    """Kaldi's features had dither, so that its transforms differ a little; the features come out the same within that."""
    ours, theirs = read_speaker_transforms(recipe / "exp/tri3/decode"), read_speaker_transforms(golden / "an4_kaldi/tri3_decode")
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
    assert not (recipe / "exp/tri3/decode.pass2").exists()


def test_lattices_that_are_there_are_used(recipe: Path) -> None:
    """With --si-dir nothing is decoded without adaptation again; jobs have to be as many."""
    command = ["steps/decode_fmllr.sh", "--si-dir", "exp/tri3/decode.si", "exp/tri3/graph", "data/test", "exp/tri3/again"]
    refused = run(recipe, command[0], "--nj", "1", *command[1:])
    assert refused.returncode == 1 and "decode.si has lattices of 2 jobs, not 1; give --nj 2" in refused.stderr
    made = run(recipe, command[0], "--nj", "2", "--skip-scoring", "true", "--fmllr-update-type", "offset", *command[1:])
    assert made.returncode == 0 and not (recipe / "exp/tri3/again.si").exists()
    transform = next(iter(read_speaker_transforms(recipe / "exp/tri3/again").values()))
    np.testing.assert_array_equal(transform[:, :-1], np.eye(40))


def test_no_more_jobs_than_speakers(recipe: Path) -> None:
    """The script takes fewer jobs; the verb, which cannot know what the lattices' jobs were, refuses."""
    made = run(recipe, "steps/decode_fmllr.sh", "--nj", "5", "--skip-scoring", "true", "--si-dir", "exp/tri3/decode.si", "exp/tri3/graph",
               "data/test", "exp/tri3/again")
    assert made.returncode == 0 and "data/test has 2 speakers, so there are 2 jobs, not 5" in made.stdout
    refused = run(recipe, "utils/pykaldist", "est-fmllr", "--nj", "3", "exp/tri3/graph", "data/test", "exp/tri3", "exp/tri3/decode.si", "x")
    assert refused.returncode == 1 and "has 2 speakers, who cannot be divided among more jobs" in refused.stderr


def test_usage(recipe: Path) -> None:
    asked, wrong = run(recipe, "steps/decode_fmllr.sh", "--help"), run(recipe, "steps/decode_fmllr.sh", "one")
    assert asked.returncode == 0 and wrong.returncode == 1 and asked.stdout == wrong.stderr and "e.g.:" in asked.stdout
    missing = run(recipe, "steps/decode_fmllr.sh", "exp/tri3/graph", "data/test", "exp/none/decode")
    assert missing.returncode == 1 and "exp/none/final.mdl does not exist" in missing.stderr
