"""ali-to-pdf, ali-to-phones, show-alignments, copy-int-vector, ali-to-post, analyze-counts: beside Kaldi's own output."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.cli import main


@pytest.fixture
def tri1(golden: Path) -> Path:
    return golden / "an4_kaldi/tri1"


@pytest.mark.parametrize(("verb", "expected"), [(["ali-to-pdf"], "pdf20.txt"), (["ali-to-phones", "--per-frame"], "phones20.txt")])
def test_golden(tri1: Path, tmp_path: Path, verb: list[str], expected: str) -> None:
    assert main([*verb, f"{tri1}/final.mdl", f"ark:{tri1}/ali20.txt", f"ark,t:{tmp_path}/out"]) == 0
    assert (tmp_path / "out").read_bytes() == (tri1 / expected).read_bytes()


def test_copies_are_equal(tri1: Path, tmp_path: Path) -> None:
    assert main(["copy-int-vector", f"ark:{tri1}/ali20.txt", f"ark:{tmp_path}/ali.gz"]) == 0
    assert main(["copy-int-vector", f"ark:{tmp_path}/ali.*", f"ark,t:{tmp_path}/ali.txt"]) == 0
    assert (tmp_path / "ali.txt").read_bytes() == (tri1 / "ali20.txt").read_bytes()


def test_sequences_lengths_and_ctm_agree(tri1: Path, tmp_path: Path) -> None:
    frames = {line.split()[0]: line.split()[1:] for line in (tri1 / "phones20.txt").read_text().splitlines()}
    arguments = [f"{tri1}/final.mdl", f"ark:{tri1}/ali20.txt"]
    for option, out in (([], "seq"), (["--write-lengths=true"], "len"), (["--ctm-output"], "ctm")):
        assert main(["ali-to-phones", *option, *arguments, f"ark,t:{tmp_path}/{out}"]) == 0
    sequences = {line.split()[0]: line.split()[1:] for line in (tmp_path / "seq").read_text().splitlines()}
    ctm = [line.split() for line in (tmp_path / "ctm").read_text().splitlines()]
    for line in (tmp_path / "len").read_text().splitlines():
        utt, rest = line.split(maxsplit=1)
        pairs = [pair.split() for pair in rest.split(";")]
        assert [phone for phone, _ in pairs] == sequences[utt] == [row[4] for row in ctm if row[0] == utt]
        assert [phone for phone, n in pairs for _ in range(int(n))] == frames[utt]
        assert [f"{int(n) / 100:.2f}" for _, n in pairs] == [row[3] for row in ctm if row[0] == utt]


def test_show_alignments(tri1: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show-alignments", f"{tri1.parent}/lang/phones.txt", f"{tri1}/final.mdl", f"ark:{tri1}/ali20.txt"]) == 0
    ids, names, empty = capsys.readouterr().out.splitlines()[:3]
    assert ids.startswith("fash-an251-fash-b  [ 3 1 12 10 ") and empty == "" and len(ids) == len(names)
    assert names.split() == ["fash-an251-fash-b", "SIL", "Y_B", "EH_I", "S_E", "SIL"]
    assert [names[i] for i, c in enumerate(ids) if c == "["] == ["S", "Y", "E", "S", "S"]


def test_golden_class_counts(golden: Path, tmp_path: Path) -> None:
    """Kaldi counted all utterances, and half a frame for every pdf."""
    ali = golden / "an4_kaldi/tri3_ali"
    assert main(["ali-to-pdf", f"{ali}/final.mdl", f"ark:{ali}/ali.*.gz", f"ark:{tmp_path}/pdf"]) == 0
    assert main(["analyze-counts", "--counts-dim", "712", f"ark:{tmp_path}/pdf", f"{tmp_path}/counts"]) == 0
    assert (tmp_path / "counts").read_bytes() == (golden / "an4_kaldi/dnn/ali_train_pdf.counts").read_bytes()
    assert main(["ali-to-post", f"ark:{tmp_path}/pdf", f"ark,t:{tmp_path}/post"]) == 0
    assert (tmp_path / "post").read_text().startswith("fash-an251-fash-b [ 0 1 ] [ 43 1 ] ")


def test_refusals_are_sentences(tri1: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"ark,t:{tmp_path}/out"
    for arguments, message in (
            (["ali-to-pdf", f"{tri1}/../mono/final.mdl", f"ark:{tri1}/ali20.txt", out], "alignment and model are of different systems"),
            (["ali-to-phones", "--per-frame", "--ctm-output", f"{tri1}/final.mdl", f"ark:{tri1}/ali20.txt", out], "exclude each other"),
            (["analyze-counts", "--counts-dim", "3", f"ark:{tri1}/pdf20.txt", f"{tmp_path}/out"], "expected 0 to 2"),
            (["copy-int-vector", "ark:exit 3|", out], "`exit 3`, which was read from, ended with status 3")):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
