"""Lattices of transcripts and alignments with a chain model and with a GMM, against Kaldi's alignments and by what must hold."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pykaldist.cli import main
from pykaldist.decode import acoustic
from pykaldist.decode.lattice import Lattice, read_decode_dir, read_lattices
from pykaldist.decode.phone_align import phone_lattice, read_phone_lattices
from pykaldist.decode.transcript_lattices import TranscriptLatticeOptions, TranscriptLattices
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.archive import read_value
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.table_streams import read_table
from pykaldist.io.tables import MatrixWriter

RECOGNISED = ("mjwl-an392-mjwl-b", "mjwl-cen6-mjwl-b")  # of Kaldi's six, at scale 1 without an error and with the same silences


@pytest.fixture
def chain_work(golden: Path, tmp_path: Path) -> Path:
    """Kaldi's chain model of AN4, its language directory, and the six test utterances that Kaldi's alignments are of."""
    source, utts = golden / "chain_an4", (golden / "chain_an4/decode/utts").read_text().split()
    (tmp_path / "chain").mkdir()
    shutil.copy(source / "final.mdl", tmp_path / "chain")
    shutil.copy(source / "decode/tree", tmp_path / "chain")
    shutil.copy(golden / "an4_kaldi/lang/phones.txt", tmp_path / "chain")
    (tmp_path / "chain/frame_subsampling_factor").write_text("3\n")
    (tmp_path / "chain/cmvn_opts").write_text("--norm-means=false\n")
    shutil.copytree(golden / "an4_kaldi/lang", tmp_path / "lang")
    said = dict(line.split(maxsplit=1) for line in (golden / "an4_kaldi/data/test/text").read_text().splitlines())
    _data(tmp_path, {utt: said[utt] for utt in utts}, f"ark:gunzip -c {source}/test_feats.ark.gz|")
    return tmp_path


def _data(folder: Path, text: dict[str, str], feats: str) -> DataDir:
    data = write_datadir(folder / "data", dict.fromkeys(text, "none"), text, {utt: utt.split("-")[0] for utt in text})
    with MatrixWriter(folder / "feats.ark", data.path / "feats.scp") as writer:
        for utt, x in read_table(feats, read_value):
            if utt in text:
                writer.write(utt, x)
    return data


def stage(root: Path, script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f"cd '{cwd}'; . '{root}/path.sh'; '{root}'/steps/nnet3/{script}"], capture_output=True, text=True,
                          check=False)


def phones_and_words(lattice: Lattice, model: TransitionModel) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Of every path of a lattice, its phones and its words."""
    found, stack = [], [(0, (), ())]
    while stack:
        state, tids, words = stack.pop()
        if lattice.final[state] < np.inf:
            ids = np.array([*tids, *lattice.ids(lattice.num_arcs + state).tolist()])
            found.append((tuple(phone_segments(ids, model)[0].tolist()), words))
        for a in range(lattice.offset[state], lattice.offset[state + 1]):
            word = (int(lattice.word[a]),) if lattice.word[a] else ()
            stack.append((int(lattice.target[a]), (*tids, *lattice.ids(a).tolist()), words + word))
    return found


def test_a_chain_model_aligns_as_kaldi(root: Path, golden: Path, chain_work: Path) -> None:
    run = stage(root, "align.sh --nj 1 --use-gpu false --scale-opts '--transition-scale=1.0 --acoustic-scale=1.0 --self-loop-scale=1.0' "
                "data lang chain ali", chain_work)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "align.sh: alignments of 6 of 6 transcripts in ali\n"
    ali = AlignmentDir(chain_work / "ali")
    assert (chain_work / "ali/frame_subsampling_factor").read_text() == "3\n" and len(ali.labels) == 6
    for line in (golden / "chain_an4/decode/ali_acwt1.txt").read_text().splitlines():
        utt, *tids = line.split()
        assert len(ali.labels[utt]) == len(tids)
        assert utt not in RECOGNISED or ali.labels[utt].tolist() == list(map(int, tids))

    run = stage(root, "align_lats.sh --nj 1 --scale-opts '--transition-scale=1.0 --self-loop-scale=1.0' --acoustic-scale 1.0 "
                "--generate-ali-from-lats true data lang chain lats", chain_work)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "align_lats.sh: lattices of 6 of 6 transcripts in lats\n"
    best = AlignmentDir(chain_work / "lats").labels
    assert {utt: tids.tolist() for utt, tids in best.items()} == {utt: tids.tolist() for utt, tids in ali.labels.items()}
    text, lang = DataDir(chain_work / "data").text, LangDir(chain_work / "lang")
    model = read_transition_model(chain_work / "chain/final.mdl")
    several = 0
    for utt, lattice in read_decode_dir(chain_work / "lats"):
        paths = phones_and_words(lattice, model)
        assert {words for _, words in paths} == {tuple(lang.word_ids(text[utt])[0])}
        assert len({phones for phones, _ in paths}) == len(paths)  # each once
        several += len(paths) > 1
    assert several >= 4  # with silences or without, at least


def test_phone_lattices_have_the_same_phones(chain_work: Path) -> None:
    options = TranscriptLatticeOptions(1.0, 1.0, 1.0)
    maker = TranscriptLattices(LangDir(chain_work / "lang"), chain_work / "chain", options)
    data, model = DataDir(chain_work / "data"), maker.transitions
    lattice = maker.lattice(data, RECOGNISED[0])
    assert lattice is not None
    found = phone_lattice(lattice, model)
    fst, stack, phones = found.acceptor, [(0, ())], set()
    while stack:
        state, sequence = stack.pop()
        if fst.final[state] < np.inf:
            phones.add(sequence)
            assert found.times[state] == lattice.num_frames
        stack += [(int(fst.nextstate[a]), (*sequence, int(fst.ilabel[a]))) for a in range(fst.offset[state], fst.offset[state + 1])]
    assert phones == {phones for phones, _ in phones_and_words(lattice, model)}


@pytest.mark.gpu
def test_a_gpu_aligns_as_the_cpu(chain_work: Path, cuda: Any) -> None:
    data, lang, options = DataDir(chain_work / "data"), LangDir(chain_work / "lang"), TranscriptLatticeOptions(1.0, 1.0, 1.0)
    found = []
    for device in ("cpu", "cuda"):
        launches = cuda.launches if cuda else 0
        maker = TranscriptLattices(lang, chain_work / "chain", options, device=device)
        found.append([maker.alignment(data, utt) for utt in data.utterances()])
        assert cuda is None or (cuda.launches > launches) == (device == "cuda")
    assert len(found[0]) == 6
    for on_cpu, on_gpu in zip(*found, strict=True):
        np.testing.assert_array_equal(on_gpu, on_cpu)


def test_jobs_take_devices_in_turn(chain_work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, scorer = [], acoustic.Nnet3Scorer
    monkeypatch.setattr("pykaldist.devices.num_visible", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(acoustic, "Nnet3Scorer", lambda *given: taken.append(given[2]) or scorer(*given[:2], "cpu", *given[3:]))
    for job in "123":
        assert main(["transcript-lattices", "--alignments", "alone", "--device", "cuda", "--job", job, "--nj", "6",
                     *map(str, (chain_work / "data", chain_work / "lang", chain_work / "chain", tmp_path / "ali"))]) == 0
    assert taken == ["cuda:0", "cuda:1", "cuda:0"] and len(list((tmp_path / "ali").glob("ali.*.gz"))) == 3


def test_lattices_of_another_model(golden: Path, chain_work: Path) -> None:
    (chain_work / "lats").mkdir()
    shutil.copy(golden / "chain_an4/decode/lat.gz", chain_work / "lats/lat.1.gz")
    shutil.copy(golden / "an4_kaldi/mono/final.mdl", chain_work / "lats/final.mdl")
    with pytest.raises(UserError, match=r"where the model has .*; use the model that made it"):
        list(read_phone_lattices(chain_work / "lats"))
    shutil.copy(chain_work / "chain/final.mdl", chain_work / "lats/final.mdl")
    lattices = dict(read_phone_lattices(chain_work / "lats"))
    assert len(lattices) == 6 and lattices.keys() == {utt for utt, _ in read_lattices(chain_work / "lats/lat.1.gz")}


def test_a_gmm_aligns_as_kaldi(golden: Path, tmp_path: Path) -> None:
    """On Kaldi's adapted features; where the beam of Kaldi's alignment, 10, found the best path, it is this one."""
    kaldi = golden / "an4_kaldi"
    ali = AlignmentDir(kaldi / "tri3_ali")
    said = dict(line.split(maxsplit=1) for line in (kaldi / "data/train/text").read_text().splitlines())
    text = {utt: said[utt] for utt in list(ali.labels)[:12]}
    data = _data(tmp_path, text, f"ark:{kaldi}/fmllr/train.ark")
    (tmp_path / "gmm").mkdir()
    for name in ("final.mdl", "tree", "phones.txt"):
        shutil.copy(kaldi / "tri3_ali" / name, tmp_path / "gmm")
    (tmp_path / "gmm/cmvn_opts").write_text("--norm-means=false\n")
    (tmp_path / "gmm/delta_opts").write_text("--delta-order=0\n")
    maker = TranscriptLattices(LangDir(kaldi / "lang"), tmp_path / "gmm", TranscriptLatticeOptions())
    same = frames = 0
    for utt in text:
        found = maker.alignment(data, utt)
        assert found is not None
        same, frames = same + int((found == ali.labels[utt]).sum()), frames + len(found)
    assert same > 0.99 * frames


def test_what_is_refused(root: Path, chain_work: Path) -> None:
    for option, words in (("--graphs-scp g.scp", "graphs are made of the transcripts here"), ("--use-gpu maybe", "takes true or false")):
        run = stage(root, f"align.sh {option} data lang chain ali", chain_work)
        assert run.returncode == 1 and words in run.stderr
    (chain_work / "data/text").write_text("".join(f"{line.split()[0]} {'RUBOUT ' * 60}\n" for line in
                                                  (chain_work / "data/text").read_text().splitlines()))
    run = stage(root, "align.sh --nj 1 --use-gpu false data lang chain ali", chain_work)
    assert run.returncode == 1 and "only 0 of 6 transcripts have a path" in run.stderr
    (chain_work / "chain/phones.txt").write_text("HUSH 1\n")
    with pytest.raises(UserError, match="disagree about"):
        TranscriptLattices(LangDir(chain_work / "lang"), chain_work / "chain", TranscriptLatticeOptions())
