"""The stages as a user runs them: prepare_lang.sh, the training and alignment of GMMs; what they say, and how they fail."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pykaldist.hmm.gmm.model_files import read_tree
from pykaldist.io.datadir import DataDir

from ..conftest import write_dict


def bash(root: Path, script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f"cd '{cwd}'; . '{root}/path.sh'; PATH='{root}/steps':$PATH; {script}"],
                          capture_output=True, text=True, check=False)


@pytest.fixture
def work(tmp_path: Path, toy_data: DataDir) -> Path:
    write_dict(tmp_path / "dict")
    return toy_data.path.parent


def test_from_lexicon_to_alignments(root: Path, work: Path, recording_python: tuple[Path, Callable[[], set[str]]],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    python, not_compiled = recording_python
    monkeypatch.setenv("PYKALDIST_PYTHON", str(python))
    text = work / "data/text"
    text.write_text(text.read_text().replace("utt00", "utt00 whatsit", 1))
    lang = bash(root, "prepare_lang.sh --num-sil-states 3 dict '<UNK>' tmp lang", work)
    assert lang.returncode == 0 and lang.stdout == "prepare_lang.sh: 5 words, 6 pronunciations, 22 phones in lang\n"
    mono = bash(root, "train_mono.sh --nj 2 --num-starts 1 --num-iters 10 --totgauss 40 data lang exp/mono", work)
    assert mono.returncode == 0, mono.stderr
    assert mono.stdout.startswith("train_mono.sh: 15 pdfs, ") and mono.stdout.endswith("; model in exp/mono\n")
    assert "1 words of the transcripts are not in the lexicon and count as OOV: whatsit (1)." in mono.stderr
    log = (work / "exp/mono/log/train.log").read_text()
    assert log.count("iteration ") == 10 and re.search(r"^USAGE: train-mono: \S+ h of speech in ", log, re.MULTILINE)
    ali = bash(root, "align_si.sh --nj 3 --use-graphs true --boost-silence 1.25 --scale-opts --acoustic-scale=0.2 "
               "data lang exp/mono exp/ali", work)
    assert ali.returncode == 0, ali.stderr
    assert "60 of 60 utterances aligned" in ali.stdout and ali.stdout.endswith("; alignments in exp/ali\n")
    assert {p.name for p in (work / "exp/ali").glob("ali.*")} == {"ali.1.gz", "ali.2.gz", "ali.3.gz"}
    tri = bash(root, "train_deltas.sh --nj 2 --num-iters 6 --max-iter-inc 4 --realign-iters 3 --context-opts --context-width=4 "
               "30 50 data lang exp/ali exp/tri1", work)
    assert tri.returncode == 0, tri.stderr
    assert " pdfs, " in tri.stdout and tri.stdout.endswith("; model in exp/tri1\n")
    assert (work / "exp/tri1/log/train.log").read_text().count("iteration ") == 5 and read_tree(work / "exp/tri1/tree").width == 4
    short = "--nj 2 --num-iters 4 --max-iter-inc 3 --realign-iters 3"
    lda = bash(root, f"train_lda_mllt.sh {short} --mllt-iters 2 --dim 9 --splice-opts --left-context=1 30 50 data lang exp/ali exp/lda",
               work)
    assert lda.returncode == 0, lda.stderr
    assert lda.stdout.endswith("; model in exp/lda\n") and (work / "exp/lda/splice_opts").read_text() == "--left-context=1\n"
    sat = bash(root, f"train_sat.sh {short} --fmllr-iters 2 --fmllr-update-type diag 30 50 data lang exp/lda exp/sat", work)
    assert sat.returncode == 0, sat.stderr
    assert sat.stdout.endswith(", 6 speakers; model in exp/sat\n") and "first transforms" in (work / "exp/sat/log/train.log").read_text()
    ali = bash(root, "align_fmllr.sh --nj 2 --silence-weight 0.1 data lang exp/sat exp/sat_ali", work)
    assert ali.returncode == 0, ali.stderr
    assert "60 of 60 utterances aligned" in ali.stdout
    assert {p.name for p in (work / "exp/sat_ali").glob("trans.*")} == {"trans.1", "trans.2"}
    assert not_compiled() == set()  # all kernels were ready for the types that they were called with


def test_failures_are_one_sentence(root: Path, work: Path) -> None:
    (work / "dict/lexicon.txt").write_text("<UNK> SPN\na X\n")
    lang = bash(root, "prepare_lang.sh dict '<UNK>' tmp lang", work)
    assert lang.returncode == 1 and lang.stdout == ""
    assert lang.stderr == ("pykaldist prepare-lang: ERROR: dict/lexicon.txt, line 2: a has the phone X, which is neither in "
                           "silence_phones.txt nor in nonsilence_phones.txt.\n")
    mono = bash(root, "train_mono.sh data lang exp/mono", work)
    assert mono.returncode == 1 and mono.stderr == ("train_mono.sh: ERROR: lang/L.fst does not exist; make it first: "
                                                    "utils/prepare_lang.sh data/local/dict '<UNK>' data/local/lang lang\n")
    write_dict(work / "dict")
    bash(root, "prepare_lang.sh dict '<UNK>' tmp lang", work)
    (work / "data/feats.scp").write_text("".join((work / "data/feats.scp").read_text().splitlines(True)[1:]))
    mono = bash(root, "train_mono.sh --nj 2 data lang exp/mono", work)
    assert mono.returncode == 1 and "feats.scp lacks 1 utterances of utt2spk, such as utt00" in mono.stderr
    assert "log is in exp/mono/log/train.log" in mono.stderr and not (work / "exp/mono/final.mdl").exists()
    for option, message in (("--stage 3", "--stage 3: exp/mono has no training to go on with"), ("--device tpu", "--device tpu is not")):
        mono = bash(root, f"fix_data_dir.sh data; train_mono.sh {option} --nj 2 data lang exp/mono", work)
        assert mono.returncode == 1 and message in mono.stderr
