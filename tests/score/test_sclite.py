"""Scoring by NIST's sclite: the counts beside compute-wer's on Kaldi's lattices, parts of a set, what is not scored, and every error."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from layouts.swbd import LABELS, RULES

from pykaldist.decode.lattice import read_lattices
from pykaldist.errors import UserError
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.datadir import DataDir, write_datadir, write_table
from pykaldist.io.lang import LangDir
from pykaldist.score.sclite import DEBIAN, WHOLE, ScliteOptions, find_hubscr, read_raw, read_reference, score_dir, scored_words
from pykaldist.score.sweep import sweep
from pykaldist.score.wer import compute_wer

needs_sctk = pytest.mark.skipif(not (shutil.which("hubscr.pl") or Path(DEBIAN, "hubscr.pl").exists()),
                                reason="NIST's scoring toolkit (Debian's package sctk) is not installed")


@pytest.fixture
def scene(golden: Path, tmp_path: Path) -> tuple[DataDir, LangDir, Path]:
    """AN4's test set as a telephone evaluation: each utterance a recording, of Switchboard or of CallHome by turns."""
    source, lang = golden / "an4_kaldi", LangDir(golden / "an4_kaldi/lang")
    heard = {utt for utt, _ in read_lattices(source / "decode_dnn/lat.gz")}
    text = {utt: words for utt, words in DataDir(source / "data/test").table("text").items() if utt in heard}
    files = {utt: f"{('sw', 'en')[i % 2]}_{4000 + i}" for i, utt in enumerate(sorted(text))}
    data = write_datadir(tmp_path / "eval2000", {f"{file}-A": "x.wav" for file in files.values()}, text,
                         {utt: f"{files[utt]}-A" for utt in text}, {utt: f"{files[utt]}-A 1.00 99.00" for utt in text})
    write_table(data.path / "reco2file_and_channel", {f"{file}-A": f"{file} A" for file in files.values()})
    (data.path / "stm").write_text("\n".join([*LABELS, *(
        f"{file} A {file}_A 1.00 99.00 <O,{file[:2]},F,{file[:2]}-F> {text[utt]}" for utt, file in files.items())]) + "\n")
    (data.path / "glm").write_text("\n".join(RULES) + "\n")
    decode = tmp_path / "dnn/decode"
    decode.mkdir(parents=True)
    (decode / "lat.1.gz").symlink_to(source / "decode_dnn/lat.gz")
    (decode.parent / "final.mdl").symlink_to(source / "tri3_ali/final.mdl")
    return DataDir(data.path), lang, decode


@needs_sctk
def test_counts_are_those_of_compute_wer(scene: tuple[DataDir, LangDir, Path], root: Path, tmp_path: Path) -> None:
    data, lang, decode = scene
    options = ScliteOptions(min_lmwt=9, max_lmwt=10, word_ins_penalty="0.0,1.0", nj=2, subsets=str(root / "egs/swbd/s5c/local/subsets.tsv"))
    best = score_dir(data, lang, decode, options)
    hyps = sweep(read_lattices(decode / "lat.1.gz"), lang.words, options.points())
    for (lmwt, wip), hyp in zip(options.points(), hyps, strict=True):
        expected, found = compute_wer(data.text, hyp), read_raw(decode / f"score_{lmwt}_{wip}/eval2000.ctm.filt.raw")
        assert (found.words, found.sentences) == (expected.words, expected.sentences) == (279, 43)
        assert abs(found.errors - expected.errors) <= 2  # sclite aligns by other costs of errors, and in time
        parts = [read_raw(decode / f"score_{lmwt}_{wip}/eval2000.ctm.{part}.filt.raw") for part in ("swbd", "callhm")]
        assert [sum(getattr(one, name) for one in parts) for name in ("words", "insertions", "deletions", "substitutions")] == \
            [found.words, found.insertions, found.deletions, found.substitutions]
    assert list(best) == [WHOLE, "swbd", "callhm"] and best[WHOLE][0].errors == min(
        read_raw(path).errors for path in decode.glob("score_*/eval2000.ctm.filt.raw"))
    assert (decode / "best_wer").read_text() == f"{best[WHOLE][0].wer_line()} {best[WHOLE][1]}\n"
    assert (decode / "swbd" / best["swbd"][1].name).read_text() == best["swbd"][0].wer_line() + "\n"
    script = [root / "steps/score_sclite.sh", "--min-lmwt", "9", "--max-lmwt", "9", "--word-ins-penalty", "0.0", data.path, lang.path,
              decode]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in decode.glob("score_*")] == ["score_9_0.0"] and not (decode / "swbd").exists()  # no old results beside new
    assert f"score_sclite.sh: {(decode / 'best_wer').read_text()}" in done.stdout


@needs_sctk
def test_what_is_alike_is_scored_once(scene: tuple[DataDir, LangDir, Path], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point has all of NIST's reports, as if each had been scored: those of a part with the words of another point are copied."""
    data, lang, decode = scene
    subsets = str(root / "egs/swbd/s5c/local/subsets.tsv")
    calls: list[Path] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, cwd, **rest: (calls.append(cwd / command[-1]), run(command, cwd=cwd, **rest))[1])
    score_dir(data, lang, decode, ScliteOptions(min_lmwt=8, max_lmwt=12, word_ins_penalty="0.0", nj=2, subsets=subsets))
    together = reports(decode)
    ctms = [path for path in together if re.search(r"ctm(\.\w+)?$", path) and ".filt" not in path]
    contents = {(Path(path).name, together[path]) for path in ctms}
    assert len(ctms) == 15 > len(calls) == len(contents) > 3
    for lmwt in range(8, 13):
        score_dir(data, lang, decode, ScliteOptions(min_lmwt=lmwt, max_lmwt=lmwt, word_ins_penalty="0.0", subsets=subsets))
        alone = reports(decode)
        assert len(alone) == 36 and alone == {path: text for path, text in together.items() if path.startswith(f"score_{lmwt}_")}


def reports(decode: Path) -> dict[str, str]:
    """Every file of the scorings, without the day and the time in it."""
    times = re.compile(r"\w+ +\w+ +\d+ +\d\d:\d\d:\d\d +\d{4}")
    return {str(path.relative_to(decode)): times.sub("", path.read_text(errors="replace")) for path in sorted(decode.glob("score_*/*"))}


@needs_sctk
def test_what_nist_cannot_score_is_said(scene: tuple[DataDir, LangDir, Path]) -> None:
    data, lang, decode = scene
    stm = data.path / "stm"
    stm.write_text("\n".join(line for line in stm.read_text().splitlines() if "LABEL" not in line) + "\n")
    with pytest.raises(UserError, match=r"NIST's scoring of .*eval2000.ctm ended with status 1 \(Error: Label id 'o' lookup failed"):
        score_dir(data, lang, decode, ScliteOptions(min_lmwt=9, max_lmwt=9, word_ins_penalty="0.0"))
    assert not (decode / "best_wer").exists()
    (data.path / "glm").unlink()
    with pytest.raises(UserError, match="glm does not exist; prepare the test set again"):
        score_dir(data, lang, decode, ScliteOptions())


def test_words_that_are_scored(root: Path) -> None:
    rules = Rules(root / "egs/swbd/s5c/local/not_scored.tsv")
    words = [("sw_1", "B", 5.0, 0.5, "so"), ("sw_1", "A", 3.0, 0.9, "i._b._m."), ("sw_1", "A", 1.0, 0.2, "uh"),
             ("sw_1", "A", 2.0, 0.2, "ab-"), ("sw_1", "A", 1.5, 0.2, "[laughter]"), ("sw_1", "A", 1.7, 0.2, "<unk>"),
             ("sw_1", "A", 0.5, 0.2, "uh-huh")]
    found = scored_words(words, rules, {"i._b._m.": ["i", "b", "m"]})
    assert [(side, round(start, 2), round(seconds, 2), word) for _, side, start, seconds, word in found] == [
        ("A", 0.5, 0.2, "uh-huh"), ("A", 3.0, 0.3, "i"), ("A", 3.3, 0.3, "b"), ("A", 3.6, 0.3, "m"), ("B", 5.0, 0.5, "so")]
    assert scored_words(words, None, {})[1][4] == "uh"


def test_parts_of_a_reference(tmp_path: Path) -> None:
    stm, subsets = tmp_path / "stm", tmp_path / "subsets.tsv"
    stm.write_text(";; LABEL\nsw4653 A x 1 2 <O,M,P0,P0-M> YEAH\nsw_1 B x 1 2 <O,M,P1,P1-M> YES\nsw4653 B x 1 2 <O,M,P0,P0-M>\n")
    subsets.write_text("eval2001\tswbd\t,P0,\neval2001\tswb2p3\t,P1,\neval2000\tx\t^nothing\n")
    found = read_reference(stm, "eval2001", subsets)
    assert found.comments == [";; LABEL"] and [len(lines) for lines in found.parts.values()] == [3, 2, 1]
    assert found.files("swbd") == {("sw4653", "a"), ("sw4653", "b")} and list(found.parts) == [WHOLE, "swbd", "swb2p3"]
    subsets.write_text("eval2001\tcell\t,P2,\n")
    with pytest.raises(UserError, match=r"line 1: no line of .*stm has ',P2,' in its file's name and labels, so cell would be empty"):
        read_reference(stm, "eval2001", subsets)
    subsets.write_text("eval2001\t$(rm)\t,P0,\n")
    with pytest.raises(UserError, match=r"expected a name of letters, digits and ._- for a part, found '\$\(rm\)'"):
        read_reference(stm, "eval2001", subsets)
    subsets.write_text("eval2001\tcell\t(\n")
    with pytest.raises(UserError, match="correct the pattern or the reference"):
        read_reference(stm, "eval2001", subsets)


def test_nists_toolkit_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("pykaldist.score.sclite.DEBIAN", str(tmp_path))
    with pytest.raises(UserError, match=r"is neither on PATH nor in .*; install it with apt-get install sctk"):
        find_hubscr()
    (tmp_path / "hubscr.pl").write_text("#!/bin/sh\n")
    (tmp_path / "hubscr.pl").chmod(0o755)
    assert find_hubscr() == tmp_path / "hubscr.pl"
    (tmp_path / "x.raw").write_text("nothing\n")
    with pytest.raises(UserError, match="has no line Sum"):
        read_raw(tmp_path / "x.raw")
