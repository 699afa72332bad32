"""Clean-up of real speech with damaged transcripts, by Kaldi's AN4 system: what is kept was said, and the damaged are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hmm.training.test_mono import an4  # type: ignore[import-not-found]  # beside these tests

from pykaldist.cli import main
from pykaldist.io.datadir import DataDir, write_table
from pykaldist.io.tables import read_map

KINDS = ("right", "other word", "not said", "not written")


@pytest.fixture(scope="module")
def work(shared: Path, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 utterances of two speakers, decoded; `text.true` is what they say, `kinds` how the transcripts in `data` were damaged."""
    base = tmp_path_factory.mktemp("cleanup")
    data = an4(shared, base, 22)
    (base / "text.true").write_bytes((data.path / "text").read_bytes())
    text, kinds = {}, {}
    for number, (utt, words) in enumerate(data.text.items()):
        kinds[utt] = KINDS[number % 4] if len(words) >= 4 else "right"
        middle = len(words) // 2
        end = {"right": words[middle:], "other word": ["RUBOUT", *words[middle + 1:]],
               "not said": ["RUBOUT", "ENTER", "HELP", *words[middle:]], "not written": words[middle + 1:]}
        text[utt] = " ".join([*words[:middle], *end[kinds[utt]]])
    write_table(data.path / "text", text)
    write_table(base / "kinds", kinds)
    kaldi = golden / "an4_kaldi"
    for job in ("1", "2"):
        assert main(["decode-biased", "--job", job, "--nj", "2", "--beam", "15", "--lattice-beam", "6", "--transform-dir",
                     str(kaldi / "tri3_ali"), str(data.path), str(kaldi / "lang"), str(kaldi / "tri3_ali"), str(base)]) == 0
    return base


def place(part: list[str], whole: list[str], begin: int) -> int:
    """Where `part` ends in `whole` from `begin` on; -1 where it is not there."""
    return next((i + len(part) for i in range(begin, len(whole) - len(part) + 1) if whole[i:i + len(part)] == part), -1)


def test_what_is_kept_was_said(golden: Path, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment-edits", "--min-segment-length", "0.3", "--min-new-segment-length", "0.5", str(work / "data"),
                 str(golden / "an4_kaldi/lang"), str(work), str(work / "cleaned")]) == 0
    assert "segments of 22 of 22 utterances" in capsys.readouterr().out
    cleaned, data = DataDir(work / "cleaned"), DataDir(work / "data")
    cleaned.validate(feats=True)
    true, kinds = {utt: words.split() for utt, words in read_map(work / "text.true").items()}, read_map(work / "kinds")
    assert set(kinds.values()) == set(KINDS)
    reached: dict[str, int] = {}
    for new, words in cleaned.text.items():
        utt = new.rpartition("-")[0]
        reached[utt] = place([word for word in words if word != "<UNK>"], true[utt], reached.get(utt, 0))
        assert reached[utt] > 0, (new, words, true[utt])
        begin, end = (float(x) for x in read_map(work / "segments")[new].split()[1:])
        np.testing.assert_array_equal(cleaned.feats[new], data.feats[utt][round(begin * 100):round(end * 100)])
    assert set(reached) == set(true)
    for utt, kind in kinds.items():
        if kind == "right":
            assert cleaned.text[f"{utt}-1"] == true[utt]
    stats = {line.split()[0]: float(line.split()[1]) for line in (work / "word_stats.txt").read_text().splitlines()}
    assert stats["ENTER"] > 0.5 and (work / "ctm_edits.segmented").read_text().count(" segment-1\n") > 40


def test_the_damaged_are_listed_first(work: Path) -> None:
    assert main(["bad-utts", str(work / "data"), str(work)]) == 0
    kinds = read_map(work / "kinds")
    rows = [line.split("\t") for line in (work / "all_info.sorted.txt").read_text().splitlines()]
    wrong = {utt: int(errors) for utt, errors, *_ in rows}
    assert {utt for utt, errors in wrong.items() if errors} == {utt for utt, kind in kinds.items() if kind != "right"}
    assert list(wrong.values()) == sorted(wrong.values(), reverse=True)
    expected = {"right": 0, "other word": 1, "not said": 3, "not written": 1}
    assert all(abs(wrong[utt] - expected[kind]) <= 1 for utt, kind in kinds.items())
    assert [row[4] for row in rows] == [read_map(work / "data/text")[row[0]] for row in rows]
    true = read_map(work / "text.true")
    assert np.mean([row[3] == true[row[0]] for row in rows]) > 0.8
    assert "SUM" in (work / "analysis/per_spk_details.txt").read_text()
