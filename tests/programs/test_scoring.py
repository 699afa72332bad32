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


PER_UTT = """UTT-A ref  word-A    ***   word-B  word-C  word-D  word-E
UTT-A hyp  word-A  word-A  word-B    ***   word-D  word-X
UTT-A op      C       I       C       D       C       S  \n""" + "UTT-A #csid 3 1 1 1\n"  # as Kaldi's scripts write it, to the space


def filtered(root: Path, folder: Path, line: str, text: str) -> subprocess.CompletedProcess[str]:
    """What a filter of utils/scoring makes of a text, called as a recipe's local/score.sh calls it."""
    return subprocess.run(["bash", "-c", f". '{root}/path.sh'; '{root}/utils/scoring/'{line}"], cwd=folder, input=text, capture_output=True,
                          text=True, check=False, env={**os.environ, "PYKALDIST_PYTHON": sys.executable})


def test_details_of_a_recipes_own_scoring(root: Path, tmp_path: Path) -> None:
    """The example of Kaldi's documentation, through the three filters."""
    (tmp_path / "utt2spk").write_text("UTT-A speaker\nUTT-B other\n")
    aligned = "UTT-A word-A word-A ; *** word-A ; word-B word-B ; word-C *** ; word-D word-D ; word-E word-X\n"
    made = filtered(root, tmp_path, 'wer_per_utt_details.pl --special-symbol "***"', aligned)
    assert (made.returncode, made.stdout, made.stderr) == (0, PER_UTT, "")
    made = filtered(root, tmp_path, "wer_per_spk_details.pl utt2spk", PER_UTT)
    assert [line.split() for line in made.stdout.splitlines()] == [
        ["SPEAKER", "id", "#SENT", "#WORD", "Corr", "Sub", "Ins", "Del", "Err", "S.Err"],
        *([name, *row] for name in ("speaker", "SUM") for row in (
            ["raw", "1", "5", "3", "1", "1", "1", "3", "1"], ["sys", "1", "5", "60.00", "20.00", "20.00", "20.00", "60.00", "100.00"]))]
    made = filtered(root, tmp_path, 'wer_ops_details.pl --special-symbol "***"', PER_UTT)
    assert [line.split() for line in made.stdout.splitlines()] == [
        ["correct", "word-A", "word-A", "1"], ["correct", "word-B", "word-B", "1"], ["correct", "word-D", "word-D", "1"],
        ["deletion", "word-C", "***", "1"], ["insertion", "***", "word-A", "1"], ["substitution", "word-E", "word-X", "1"]]


@pytest.mark.parametrize(("line", "text", "said"), [
    ("wer_per_utt_details.pl", "u a b , c d\n", "line 1: expected pairs of words with ; between, found a b , c d"),
    ("wer_per_utt_details.pl", "u a b ; c\n", "line 1: expected pairs of words with ; between, found a b ; c"),
    ("wer_per_spk_details.pl utt2spk", "v #csid 1 0 0 0\n", "line 1: expected an utterance of utt2spk, found v"),
    ("wer_per_spk_details.pl utt2spk", "u #csid 1 0\n", "line 1: expected #csid and four counts, found #csid 1 0"),
    ("wer_ops_details.pl", "u ref a\nu hyp a b\n", "utterance u: expected as many words in ref as in hyp, found 1 and 2"),
    ("wer_ops_details.pl", "u ref a\n", "only one of the lines ref and hyp of utterance u"),
    ("wer_ops_details.pl", "u ref a\nu ref a\n", "line 2: expected one line ref an utterance, found a second one of u"),
])
def test_details_of_what_is_no_alignment(root: Path, tmp_path: Path, line: str, text: str, said: str) -> None:
    (tmp_path / "utt2spk").write_text("u s\n")
    made = filtered(root, tmp_path, line, text)
    assert made.returncode == 1 and said in made.stderr and made.stderr.startswith(f"{line.split()[0]}: ERROR: "), made.stderr
