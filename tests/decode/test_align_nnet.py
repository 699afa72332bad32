"""Alignment with a network, by the verb and by its script: in other arithmetics, and on a GPU, where the network decodes as well.

The network is trained on the tiny corpus that `pykaldist compile` takes through every stage.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import _rehearsal, main
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.nnet import arithmetic
from pykaldist.nnet.network import Network

from .conftest import decoded_on_both, link_scripts, succeed

STAGES = ("prepare-lang dict <UNK> lang_tmp lang", "make-cmvn data cmvn",
          "train-mono --totgauss 30 --num-starts 1 --num-iters 3 --realign-iters 1 --max-iter-inc 2 data lang mono",
          "align-si data lang mono mono_ali", "pack --cv-percent 20 data mono_ali store",
          "train --device cpu --num-epochs 3 --hid-layers 2 --hid-dim 32 --splice 1 --minibatch-size 32 store dnn")
OF_NNET1 = ("final.nnet", "final.feature_transform", "ali_train_pdf.counts", "final.mdl", "tree", "cmvn_opts", "phones.txt")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The tiny corpus as a recipe's directory: a small network in dnn, what nnet1 has of it in nnet1, and a script that notes jobs."""
    folder = tmp_path_factory.mktemp("tiny")
    link_scripts(folder, root)
    with _rehearsal.corpus(folder):
        for stage in STAGES:
            assert main(stage.split()) == 0, stage
    (folder / "nnet1").mkdir()
    for name in OF_NNET1:
        if (folder / "dnn" / name).is_file():
            shutil.copyfile(folder / "dnn" / name, folder / "nnet1" / name)
    (folder / "note").write_text("#!/usr/bin/env bash\necho \"$*\" >> noted\ntouch denlats/failed.1\n")
    (folder / "note").chmod(0o755)
    return folder


@pytest.fixture
def tiny(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the working directory, without what other tests have made."""
    for name in ("ali", "graph", "denlats"):
        shutil.rmtree(made / name, ignore_errors=True)
    monkeypatch.chdir(made)
    (made / "noted").unlink(missing_ok=True)
    return made


def aligned(tiny: Path, *options: str, src: str = "dnn") -> dict[str, np.ndarray]:
    """The transition-ids of each utterance, aligned by the verb."""
    assert main(["align-nnet", "--device", "cpu", *options, "data", "lang", src, "ali"]) == 0
    return dict(AlignmentDir(tiny / "ali").labels)


@pytest.mark.parametrize(("dtype", "flag"), [("bf16", "avx512_bf16"), ("int8", "avx512_vnni")])
def test_other_arithmetics_align_nearly_all_frames_as_float32_does(tiny, tmp_path, monkeypatch, dtype, flag):
    (tmp_path / "cpuinfo").write_text(f"flags : {flag}\n")
    monkeypatch.setattr(arithmetic, "CPUINFO", tmp_path / "cpuinfo")
    used, loglikes = set(), Network.loglikes
    monkeypatch.setattr(Network, "loglikes", lambda network, feats: used.add(network.forwarding.dtype) or loglikes(network, feats))
    expected = aligned(tiny)
    assert used == {"float32"}
    used.clear()
    found = aligned(tiny, "--dtype", dtype, "--nj", "2")
    assert used == {dtype} and list(found) == list(expected) and len(found) == 12
    assert np.mean(np.concatenate([found[utt] == tids for utt, tids in expected.items()])) >= 0.98


@pytest.mark.parametrize("script", ["steps/nnet/align.sh data lang dnn ali", "steps/nnet/make_denlats.sh data lang dnn denlats"])
def test_the_scripts_hand_on_how_utterances_go_through_the_network(tiny, script):
    name, *arguments = script.split()
    (tiny / "denlats").mkdir()
    succeed(tiny, name, "--nj", "1", "--cmd", "./note", "--forward-opts", "--dtype bf16 --forward chunks", *arguments)
    succeed(tiny, name, "--nj", "1", "--cmd", "./note", *arguments)
    given, plain = (tiny / "noted").read_text().splitlines()
    verb = "align-nnet" if "align" in script else "decode"
    assert f" pykaldist {verb} " in given and " --dtype bf16 --forward chunks " in given
    assert f" pykaldist {verb} " in plain and "--dtype" not in plain


@pytest.mark.gpu(devices=2)
@pytest.mark.parametrize("src", ["dnn", "nnet1"])
def test_a_gpu_aligns_as_the_cpu(tiny, cuda, src):
    """On the second device, by threads, each of which has the first as its current one at its start."""
    expected = aligned(tiny, src=src)
    launches = cuda.launches if cuda else 0
    found = aligned(tiny, "--device", "cuda:1", "--nj", "2", src=src)
    assert cuda is None or cuda.launches > launches
    assert list(found) == list(expected) and len(found) == 12
    for utt, tids in expected.items():
        np.testing.assert_array_equal(found[utt], tids)


@pytest.mark.gpu
@pytest.mark.parametrize("src", ["dnn", "nnet1"])
def test_a_gpu_decodes_as_the_cpu(tiny, cuda, src):
    for stage in ("train-lm --order 2 data/text lang/words.txt lm.arpa.gz", "format-lm lang lm.arpa.gz dict/lexicon.txt lang_test",
                  f"mkgraph lang_test {src} graph"):
        assert main(stage.split()) == 0, stage
    on_cpu, on_gpu = decoded_on_both(cuda, f"--beam 8 --lattice-beam 2 --srcdir {src} graph data")
    assert len(on_gpu) == 12 and any(len(path.words) > 2 for path in on_gpu.values())
    for utt, path in on_cpu.items():
        assert list(on_gpu[utt].words) == list(path.words)
        np.testing.assert_array_equal(on_gpu[utt].transition_ids, path.transition_ids)
