"""Programs on texts, with the numbers and forms of the library's functions, which have references of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pykaldist.cli import main

REF, HYP = "a x y z\nb p q\nc w\nd\n", "b p\na x v y z\nd w\n"


@pytest.fixture
def texts(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "ref").write_text(REF)
    (tmp_path / "hyp").write_text(HYP)
    return f"ark:{tmp_path}/ref", f"ark,p:{tmp_path}/hyp"


@pytest.mark.parametrize(("mode", "lines"), [
    ("present", "%WER 60.00 [ 3 / 5, 2 ins, 1 del, 0 sub ] [PARTIAL]\n%SER 100.00 [ 3 / 3 ]\nScored 3 sentences, 1 not present in hyp.\n"),
    ("all", "%WER 66.67 [ 4 / 6, 2 ins, 2 del, 0 sub ] [PARTIAL]\n%SER 100.00 [ 4 / 4 ]\nScored 4 sentences, 1 not present in hyp.\n"),
])
def test_compute_wer(texts, capsys, mode, lines):
    assert main(["compute-wer", "--text", f"--mode={mode}", *texts]) == 0
    assert capsys.readouterr().out == lines


def test_references_without_hypotheses(texts, capsys):
    assert main(["compute-wer", "--text", *texts]) == 1
    assert "utterance c has a reference and no hypothesis; --mode=present" in capsys.readouterr().err
    assert main(["compute-wer-bootci", *texts]) == 1 and "utterance c has" in capsys.readouterr().err
    assert main(["compute-wer", "--mode=some", *texts]) == 1
    assert "--mode is strict, all or present, found 'some'" in capsys.readouterr().err


def test_compute_wer_bootci(texts, capsys):
    assert main(["compute-wer-bootci", "--mode=present", "--replications=200", *texts, texts[0]]) == 0
    out = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Set1: %WER [\d.]+ 95% Conf Interval \[ -?[\d.]+, [\d.]+ \]", out[0])
    assert out[1] == "Set2: %WER 0.00 95% Conf Interval [ 0.00, 0.00 ]" and out[2].startswith("Probability of Set2 improving Set1: ")


def test_two_scored_decodings_are_compared(root: Path, tmp_path: Path) -> None:
    """score_kaldi_compare.sh takes of each decoding the transcripts of its best rate."""
    rates = {"one": ("7_0.5", "a b x d"), "two": ("12_0.0", "a b c d")}
    for name, (point, said) in rates.items():
        weight, penalty = point.split("_")
        scored = tmp_path / name / "scoring_kaldi"
        (scored / f"penalty_{penalty}").mkdir(parents=True)
        (scored / "test_filt.txt").write_text("u1 a b c d\nu2 a b c d\n")
        (scored / f"penalty_{penalty}" / f"{weight}.txt").write_text(f"u1 {said}\nu2 {said}\n")
        (scored / "best_wer").write_text(f"%WER 1.00 [ 1 / 8, 0 ins, 0 del, 1 sub ] exp/{name}/wer_{point}\n")
    command = [root / "steps/scoring/score_kaldi_compare.sh", "--replications", "100", tmp_path / "one/scoring_kaldi"]
    (tmp_path / "path.sh").write_text(f". {root}/path.sh\n")
    environment = {**os.environ, "PYKALDIST_PYTHON": sys.executable}
    done = subprocess.run([*command, tmp_path / "two/scoring_kaldi", tmp_path / "both"], cwd=tmp_path, env=environment, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "both/wer_bootci_comparison").read_text().splitlines()
    assert lines[0].startswith("Set1: %WER 25.00") and lines[1].startswith("Set2: %WER 0.00") and done.stdout.strip().endswith(lines[2])
    (tmp_path / "two/scoring_kaldi/penalty_0.0/12.txt").unlink()
    refused = subprocess.run([*command, tmp_path / "two/scoring_kaldi", tmp_path / "both"], cwd=tmp_path, env=environment, text=True,
                             capture_output=True)
    assert refused.returncode == 1 and "penalty_0.0/12.txt does not exist" in refused.stderr


def test_align_text(texts, tmp_path, capsys):
    assert main(["align-text", "--special-symbol='***'", *texts, f"ark,t:{tmp_path}/out"]) == 0
    assert (tmp_path / "out").read_text().splitlines() == ["a x x ; '***' v ; y y ; z z", "b p p ; q '***'", "d '***' w"]
    assert main(["align-text", "--special-symbol=q", *texts, f"ark,t:{tmp_path}/out"]) == 1
    assert "utterance b has the word q" in capsys.readouterr().err
