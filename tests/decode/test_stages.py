"""The scripts mkgraph.sh, decode.sh, score_kaldi.sh and format_lm.sh, as a recipe runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from pykaldist.decode.lattice import read_lattices, write_lattices
from pykaldist.decode.paths import best_path, nbest
from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst

from .conftest import make_recipe, run


@pytest.fixture(scope="module")
def recipe(root: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden monophone model and three test utterances of each of two speakers."""
    files = ("final.mdl", "tree", "cmvn_opts")
    return make_recipe(tmp_path_factory.mktemp("s5"), root, shared, shared / "golden/an4_kaldi/mono", "mono", files, 3)


def test_a_data_directory_is_decoded_and_scored(recipe: Path) -> None:
    decode_dir = recipe / "exp/mono/decode"
    decode_dir.mkdir(parents=True)
    (decode_dir / "lat.9.gz").write_text("left over from an earlier run with more jobs")
    options = ("--nj", "2", "--beam", "11", "--iter", "final", "--num-threads", "4")
    result = run(recipe, "steps/decode.sh", *options, "exp/mono/graph", "data/test", "exp/mono/decode")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "decode.sh: lattices of 6 utterances in exp/mono/decode"
    lattices = [utt for job in (1, 2) for utt, _ in read_lattices(decode_dir / f"lat.{job}.gz")]
    assert lattices == DataDir(recipe / "data/test").utterances()
    assert not (decode_dir / "lat.9.gz").exists()
    best = (decode_dir / "best_wer").read_text().split()
    assert best[0] == "%WER" and float(best[1]) < 25  # Kaldi: 12.94 over all speakers
    log = (decode_dir / "log/decode.1.log").read_text()
    assert "--beam 11" in log and "--device auto" in log and "Log-like per frame for utterance" in log and "real-time factor" in log


def test_a_second_language_model_and_a_second_decoding(recipe: Path, golden: Path) -> None:
    """decode_biglm.sh gives each sentence the costs of the second model; decode_combine.sh keeps what both directories have."""
    grammar, other = golden / "an4_kaldi/lang/G.fst", recipe / "other"
    other.mkdir()
    for name in ("words.txt", "oov.txt", "L_disambig.fst", "phones.txt"):
        (other / name).symlink_to(golden / "an4_kaldi/lang" / name)
    fst = Fst.read(grammar)
    dearer = Fst(fst.start, fst.final, fst.offset, fst.ilabel, fst.olabel, fst.weight + np.float32(0.5) * (fst.olabel != 0), fst.nextstate)
    dearer.write(other / "G.fst")  # half a unit more for each word
    options = ("--nj", "1", "--beam", "11", "--lattice-beam", "6")
    made = run(recipe, "steps/decode_biglm.sh", *options, "exp/mono/graph", str(grammar), "other/G.fst", "data/test", "exp/mono/biglm")
    assert made.returncode == 0, made.stderr
    assert (recipe / "exp/mono/biglm/best_wer").is_file()
    options = ("--nj", "1", "--beam", "11", "--lattice-beam", "8")
    plain = run(recipe, "steps/decode_si.sh", *options, "exp/mono/graph", "data/test", "exp/mono/si")
    assert plain.returncode == 0, plain.stderr
    first, second = (dict(read_lattices(recipe / "exp/mono" / name / "lat.1.gz")) for name in ("si", "biglm"))
    for utt, lattice in second.items():
        before = {tuple(path.words): path for path in nbest(first[utt], 2000, 1 / 12)}
        after = [path for path in nbest(lattice, 20, 1 / 12) if tuple(path.words) in before]
        assert after
        for path in after:
            old = before[tuple(path.words)]
            assert path.graph - old.graph == pytest.approx(0.5 * len(path.words), abs=2e-3) and path.acoustic == pytest.approx(old.acoustic)
    folders = ("data/test", "exp/mono/graph", "exp/mono/si", "exp/mono/biglm", "exp/both")
    both = run(recipe, "steps/decode_combine.sh", "--weight1", "0.25", *folders)
    assert both.returncode == 0, both.stderr
    for utt, lattice in read_lattices(recipe / "exp/both/lat.1.gz"):
        best = best_path(lattice, 1 / 12)
        old = next(path for path in nbest(first[utt], 2000, 1 / 12) if path.words == best.words)
        assert best.graph - old.graph == pytest.approx(0.75 * 0.5 * len(best.words), abs=2e-3)
    whole, items = (recipe / "exp/both/lat.1.gz").read_bytes(), list(second.items())
    for job, part in ((1, items[:1]), (2, items[1:])):  # the same lattices, divided among jobs in another way
        write_lattices(recipe / f"exp/mono/biglm/lat.{job}.gz", iter(part))
    (recipe / "exp/mono/biglm/num_jobs").write_text("2\n")
    again = run(recipe, "steps/decode_combine.sh", "--weight1", "0.25", *folders)
    assert again.returncode == 0, again.stderr
    assert (recipe / "exp/both/lat.1.gz").read_bytes() == whole


def test_a_model_that_does_not_fit_the_features_ends_in_one_sentence(recipe: Path) -> None:
    (recipe / "exp/mono/delta_opts").write_text("--delta-order=0\n")
    result = run(recipe, "steps/decode.sh", "--nj", "1", "exp/mono/graph", "data/test", "exp/mono/decode_bad")
    (recipe / "exp/mono/delta_opts").unlink()
    assert result.returncode == 1
    utt = next(iter(DataDir(recipe / "data/test").utterances()))
    assert f"data/test, {utt}: the model exp/mono/final.mdl expects features of dimension 39, found 13; make them as" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list((recipe / "exp/mono/decode_bad").glob("lat.*"))


@pytest.mark.parametrize("script", ["utils/mkgraph.sh", "utils/mkgraph_lookahead.sh", "steps/nnet3/decode_lookahead.sh",
                                    "utils/format_lm.sh", "steps/score_kaldi.sh", "steps/decode.sh", "utils/best_wer.sh"])
def test_every_script_explains_itself(recipe: Path, script: str) -> None:
    asked, wrong = run(recipe, script, "--help"), run(recipe, script, "one")
    assert asked.returncode == 0 and wrong.returncode == 1
    assert asked.stdout.startswith("Usage: ") and "e.g.:" in asked.stdout and wrong.stderr == asked.stdout


@pytest.mark.slow
def test_a_graph_in_two_halves_is_decoded_by_its_script_and_by_kaldis_name_for_it(recipe: Path, golden: Path) -> None:
    """Without HCLG.fst, and, by steps/decode.sh --lookahead, in a directory that has it, too: the words are the same."""
    lang = str(golden / "an4_kaldi/lang")
    made = run(recipe, "utils/mkgraph_lookahead.sh", "--compose-graph", "--remove-oov", lang, "exp/mono", "exp/mono/lgraph")
    assert made.returncode == 0 and (recipe / "exp/mono/lgraph/HCLG.fst").is_file(), made.stderr
    options, found = ("--nj", "1", "--beam", "30", "--lattice-beam", "2"), []
    for number, lookahead in enumerate(("false", "true", "false")):
        if number == 2:
            (recipe / "exp/mono/lgraph/HCLG.fst").unlink()
        folder = f"exp/mono/halves{number}"
        done = run(recipe, "steps/decode.sh", *options, "--lookahead", lookahead, "exp/mono/lgraph", "data/test", folder)
        assert done.returncode == 0, done.stderr
        found.append({utt: best_path(lattice, 0.083).words for utt, lattice in read_lattices(recipe / folder / "lat.1.gz")})
    assert found[0] == found[1] == found[2] and len(found[0]) == 6


def test_what_is_missing_is_named_by_the_scripts(recipe: Path) -> None:
    for command, missing in ((["utils/mkgraph.sh", "nolang", "exp/mono", "g"], "nolang/L_disambig.fst"),
                             (["steps/decode.sh", "nograph", "data/test", "exp/mono/d"], "nograph/HCLG.fst"),
                             (["utils/mkgraph_lookahead.sh", "nolang", "exp/mono", "g"], "nolang/L_disambig.fst"),
                             (["steps/decode.sh", "--lookahead", "true", "exp/mono/graph", "data/test", "exp/mono/d"],
                              "exp/mono/graph/HCLr.fst"),
                             (["steps/decode.sh", "--iter", "4", "exp/mono/graph", "data/test", "exp/mono/d"], "exp/mono/4.mdl"),
                             (["steps/score_kaldi.sh", "data/test", "exp/mono/graph", "exp/mono/none"], "exp/mono/none/lat.1.gz"),
                             (["utils/format_lm.sh", "nolang", "lm", "lexicon", "out"], "nolang/L_disambig.fst")):
        result = run(recipe, *command)
        assert result.returncode == 1 and f"ERROR: {missing} does not exist" in result.stderr


def test_latgen_faster_mapped_decodes_an_archive(recipe: Path, golden: Path) -> None:
    folder = golden / "an4_kaldi"
    command = ["utils/pykaldist", "latgen-faster-mapped", "--acoustic-scale=0.1", "--beam=13", "--lattice-beam=8",
               "--max-active=7000", "--word-symbol-table", str(folder / "graph_tri3/words.txt"),
               str(folder / "tri3_ali/final.mdl"), str(folder / "graph_tri3/HCLG.fst"), str(folder / "dnn/loglikes4.txt.gz"), "lat.1.gz"]
    result = run(recipe, *command)
    assert result.returncode == 0, result.stderr
    hyps = {line.split()[0]: line.split() for line in (folder / "decode_dnn/hyp_acwt0.1.txt").read_text().splitlines()}
    printed = {line.split()[0]: line.split() for line in result.stderr.splitlines() if line.split()[0] in hyps}
    assert "Done 4 utterances" in result.stderr and len(printed) == 2 and all(printed[utt] == hyps[utt] for utt in printed)


def test_recordings_of_ones_own_are_transcribed(recipe: Path, tmp_path: Path) -> None:
    """Each by itself, and one of a higher sampling rate as what it was made of; a lower rate and what is no audio end in one sentence."""
    data = DataDir(recipe / "data/test")
    utt = data.utterances()[0]
    samples, rate = read_audio(data.wav_scp[utt])
    soundfile.write(tmp_path / "high.wav", resample_poly(samples, 3, 1) / 32768, 3 * rate)
    soundfile.write(tmp_path / "low.wav", samples[::2] / 32768, rate // 2)
    (tmp_path / "text.wav").write_text("no audio")
    command = ["utils/pykaldist", "transcribe", "--feats-config", "mfcc.conf", "--graph", "exp/mono/graph", "exp/mono"]
    made = run(recipe, *command, data.wav_scp[utt], str(tmp_path / "high.wav"))
    assert made.returncode == 0, made.stderr
    first, second = made.stdout.splitlines()
    assert first.split()[0] == data.wav_scp[utt] and len(first.split()) > 1
    assert second.split() == [str(tmp_path / "high.wav"), *first.split()[1:]]
    for name, words in (("low.wav", "expected 16000 Hz or more, found 8000 Hz"), ("text.wav", "text.wav"), ("none.wav", "does not exist")):
        refused = run(recipe, *command, str(tmp_path / name))
        assert refused.returncode == 1 and words in refused.stderr and "Traceback" not in refused.stderr and not refused.stdout
