"""A chain model of Kaldi's on AN4, read, run and decoded here: its outputs, its lattices, its word error rates."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pykaldist.decode.acoustic import load_acoustic_model, read_subsampling
from pykaldist.decode.ctm import CtmOptions, write_ctms
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import best_path
from pykaldist.decode.run import DecodeSummary
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_model
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter, read_archive

from .conftest import decoded_on_both, link_scripts, succeed


def words_of(path: Path) -> dict[str, list[str]]:
    """The lines of a Kaldi text archive."""
    return {line.split()[0]: line.split()[1:] for line in path.read_text().splitlines()}


@pytest.fixture(scope="module")
def recipe(root: Path, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in exp/tdnn, its graph, and the test set's features, which are normalised already: data/test, and six of it in data/six."""
    folder, chain = tmp_path_factory.mktemp("s5"), golden / "chain_an4"
    link_scripts(folder, root)
    (folder / "exp/tdnn/graph").mkdir(parents=True)
    shutil.copyfile(chain / "final.mdl", folder / "exp/tdnn/final.mdl")
    (folder / "exp/tdnn/frame_subsampling_factor").write_text("3\n")
    shutil.copyfile(chain / "HCLG.fst", folder / "exp/tdnn/graph/HCLG.fst")
    shutil.copyfile(chain / "decode/words.txt", folder / "exp/tdnn/graph/words.txt")
    with MatrixWriter(folder / "feats.ark", folder / "feats.scp") as writer:
        for utt, feats in read_archive(chain / "test_feats.ark.gz"):
            writer.write(utt, feats)
    test = DataDir(golden / "an4_kaldi/data/test")
    for name, utts in (("test", test.utterances()), ("six", (chain / "decode/utts").read_text().split())):
        write_datadir(folder / "data" / name, {u: test.wav_scp[u] for u in utts}, {u: " ".join(test.text[u]) for u in utts},
                      {u: test.utt2spk[u] for u in utts})
        lines = dict(line.split(maxsplit=1) for line in (folder / "feats.scp").read_text().splitlines())
        (folder / "data" / name / "feats.scp").write_text("".join(f"{u} {lines[u]}\n" for u in sorted(utts)))
    return folder


def test_the_six_utterances_have_kaldis_outputs_words_and_alignments(recipe: Path, golden: Path) -> None:
    decoded = golden / "chain_an4/decode"
    data, model = DataDir(recipe / "data/six"), load_acoustic_model(recipe / "exp/tdnn")
    decoder = LatticeDecoder(Fst.read(recipe / "exp/tdnn/graph/HCLG.fst"), model.tid2pdf, DecoderOptions(15.0, 8.0, 7000, 200, 1.0))
    words, ids = words_of(decoded / "hyp_acwt1.int"), words_of(decoded / "ali_acwt1.txt")
    scores = {m[1]: float(m[2]) for m in re.finditer(r"utterance (\S+) is (\S+) over", (decoded / "log.decode").read_text())}
    expected = dict(read_archive(decoded / "loglikes.ark.gz"))
    assert len(expected) == 6
    for utt, outputs in expected.items():
        ours = model.loglikes(model.features(data, utt))
        np.testing.assert_allclose(ours, outputs, atol=1e-4)
        lattice = decoder.decode(ours)
        assert lattice is not None
        path = best_path(lattice, 1.0)
        assert [str(w) for w in path.words] == words[utt]
        assert [str(i) for i in path.transition_ids] == ids[utt]
        assert -(path.graph + path.acoustic) / len(ours) == pytest.approx(scores[utt], abs=1e-4)


def test_the_script_decodes_with_kaldis_options(recipe: Path, golden: Path) -> None:
    options = ("--acwt", "1.0", "--post-decode-acwt", "10.0", "--frames-per-chunk", "140", "--nj", "1", "--num-threads", "4", "--iter",
               "final", "--scoring-opts", "--min-lmwt 10 --max-lmwt 10 --word-ins-penalty 0.0")
    said = succeed(recipe, "steps/nnet3/decode.sh", *options, "exp/tdnn/graph", "data/six", "exp/tdnn/decode_six")
    assert said.splitlines()[-1] == "decode.sh: lattices of 6 utterances in exp/tdnn/decode_six"
    symbols = {number: word for word, number in (line.split() for line in (recipe / "exp/tdnn/graph/words.txt").read_text().splitlines())}
    texts, kaldis = words_of(golden / "chain_an4/decode/hyp_lmwt10.txt"), dict(read_lattices(golden / "chain_an4/decode/lat.gz"))
    ours = dict(read_lattices(recipe / "exp/tdnn/decode_six/lat.1.gz"))
    assert list(ours) == list(kaldis)
    for utt, lattice in ours.items():
        path, other = best_path(lattice, 0.1), best_path(kaldis[utt], 0.1)
        assert [symbols[str(w)] for w in path.words] == texts[utt]
        assert (path.graph, path.acoustic) == pytest.approx((other.graph, other.acoustic), abs=2e-2)  # the acoustic costs are ten times
    lang = LangDir(golden / "an4_kaldi/lang")
    ctm, = write_ctms(DataDir(recipe / "data/six"), lang, recipe / "exp/tdnn/decode_six", CtmOptions(10, 10))
    timed = [line.split() for line in ctm.read_text().splitlines()]
    ids = words_of(golden / "chain_an4/decode/ali_acwt1.txt")
    for utt, text in texts.items():
        rows = [row for row in timed if row[0] == utt]
        assert [row[4] for row in rows] == text
        spoken = [t for t, one in enumerate(ids[utt]) if one not in ("1", "2")]  # which are those of silence
        assert float(rows[0][2]) == pytest.approx(0.03 * spoken[0], abs=0.006)  # a frame of Kaldi's alignment is 30 ms
        assert float(rows[-1][2]) + float(rows[-1][3]) == pytest.approx(0.03 * (spoken[-1] + 1), abs=0.011)


@pytest.mark.gpu(devices=2)
def test_a_gpu_decodes_as_the_cpu(recipe: Path, monkeypatch: pytest.MonkeyPatch, cuda: Any) -> None:
    """Job 2 of two, on the second device."""
    monkeypatch.chdir(recipe / "exp/tdnn")
    on_cpu, on_gpu = decoded_on_both(cuda, f"--job 2 --nj 2 --acwt 1.0 --srcdir . graph {recipe}/data/six", job=2, acwt=1.0)
    assert len(on_gpu) == 3
    for utt, path in on_cpu.items():
        assert (list(on_gpu[utt].words), list(on_gpu[utt].transition_ids)) == (list(path.words), list(path.transition_ids))


def test_the_real_time_factor_is_of_the_speech() -> None:
    summary = DecodeSummary(frames=100, seconds=3.0, search_seconds=1.5, subsampling=3)  # three seconds of speech
    assert "100 frames/sec is 1.0000 (search 0.5000)" in str(summary)


@pytest.mark.slow
def test_every_word_error_rate_is_within_one_word_of_kaldis(recipe: Path, golden: Path) -> None:
    options = ("--acwt", "1.0", "--post-decode-acwt", "10.0", "--nj", "1", "--scoring-opts",
               "--min-lmwt 5 --max-lmwt 17 --word-ins-penalty 0.0,0.5,1.0")
    succeed(recipe, "steps/nnet3/decode.sh", *options, "exp/tdnn/graph", "data/test", "exp/tdnn/decode")
    table = (golden / "chain_an4/wer.txt").read_text().splitlines()
    assert len(table) == 39
    for line in table:
        lmwt, penalty, _, _, _, errors, _, words, *_ = line.split()
        found = re.search(r"\[ (\d+) / (\d+),", (recipe / f"exp/tdnn/decode/wer_{lmwt}_{penalty}").read_text())
        assert found and found[2] == words.rstrip(",") == "773"
        assert abs(int(found[1]) - int(errors)) <= 1, f"LMWT {lmwt}, penalty {penalty}: {found[1]} errors, Kaldi's {errors}"


def test_what_does_not_fit_is_named(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tdnn"
    shutil.copytree(recipe / "exp/tdnn", folder, ignore=shutil.ignore_patterns("decode*"))
    (folder / "frame_subsampling_factor").write_text("three\n")
    with pytest.raises(UserError, match="frame_subsampling_factor: expected a number of frames, found 'three'"):
        load_acoustic_model(folder)
    (folder / "frame_subsampling_factor").unlink()
    assert read_subsampling(folder) == 1
    with pytest.raises(UserError, match="is an nnet3 network, for which"):
        load_acoustic_model(folder, transform_dir=tmp_path)
    (folder / "online_cmvn").touch()
    with pytest.raises(UserError, match=r"global_cmvn.stats does not exist, which online CMVN needs"):
        load_acoustic_model(folder)
    with pytest.raises(UserError, match="is an nnet3 network, where a GMM is expected"):
        read_model(folder / "final.mdl")
