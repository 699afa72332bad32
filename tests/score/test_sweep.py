from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.run import decode_all
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import read_archive
from pykaldist.score.bootstrap import read_counts
from pykaldist.score.score_dir import ScoreOptions, _characters, score_dir
from pykaldist.score.sweep import SweepOptions, beyond, sweep
from pykaldist.score.wer import compute_wer


@pytest.fixture(scope="module")
def scored(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The golden log-likelihoods decoded and scored: (decode directory, file of the best point)."""
    folder = golden / "an4_kaldi"
    decoder = LatticeDecoder(Fst.read(folder / "graph_tri3/HCLG.fst"), read_transition_model(folder / "tri3_ali/final.mdl").tid2pdf,
                             DecoderOptions(acwt=0.1))
    loglikes = dict(read_archive(folder / "dnn/loglikes.ark"))
    words = SymbolTable.read(folder / "graph_tri3/words.txt")
    decode_dir = tmp_path_factory.mktemp("decode")
    items = list(loglikes.items())
    decode_all(decoder, items[:20], decode_dir / "lat.1.gz", words)
    decode_all(decoder, items[20:], decode_dir / "lat.2.gz", words)
    test = DataDir(folder / "data/test")
    data = write_datadir(decode_dir / "data", {u: test.wav_scp[u] for u in loglikes}, {u: " ".join(test.text[u]) for u in loglikes},
                         {u: test.utt2spk[u] for u in loglikes})
    shutil.copy(folder / "graph_tri3/words.txt", decode_dir / "data/words.txt")
    return decode_dir, score_dir(data, words, decode_dir, ScoreOptions(4, 15))[1]


def test_every_point_is_within_a_word_of_kaldis(scored: tuple[Path, Path], golden: Path) -> None:
    lines = (golden / "an4_kaldi/decode_dnn/sweep.txt").read_text().splitlines()
    assert len(lines) == 9
    for line in lines:
        fields = line.split()
        lmwt, wip = (f.split("=")[1] for f in fields[:2])
        ours = (scored[0] / f"wer_{lmwt}_{wip}").read_text().split()
        assert ours[4:6] == ["/", "279,"] and abs(int(ours[3]) - int(fields[5])) <= 1


def test_kaldis_own_lattices_score_as_kaldi_says(golden: Path) -> None:
    folder = golden / "an4_kaldi"
    lattices = list(read_lattices(folder / "decode_dnn/lat.gz"))
    text = DataDir(folder / "data/test").text
    refs, points = {utt: text[utt] for utt, _ in lattices}, SweepOptions(4, 20).points()
    hyps = sweep(lattices, SymbolTable.read(folder / "graph_tri3/words.txt"), points)
    lines = {point: compute_wer(refs, hyp).wer_line() for point, hyp in zip(points, hyps, strict=True)}
    for line in (folder / "decode_dnn/sweep.txt").read_text().splitlines():
        lmwt, wip, wer = line.split(maxsplit=2)
        assert lines[int(lmwt.split("=")[1]), wip.split("=")[1]] == wer


def test_the_best_point_and_its_details(scored: tuple[Path, Path]) -> None:
    decode_dir, best_file = scored
    rates = {path: float(path.read_text().split()[1]) for path in decode_dir.glob("wer_*_*")}
    assert len(rates) == 36 and rates[best_file] == min(rates.values())
    line = best_file.read_text().splitlines()[0]
    assert (decode_dir / "best_wer").read_text() == f"{line} {best_file}\n"
    details = decode_dir / "scoring_kaldi/wer_details"
    lmwt, wip = ((details / name).read_text().strip() for name in ("lmwt", "wip"))
    assert best_file.name == f"wer_{lmwt}_{wip}"
    counts = np.array([line.split()[2:] for line in (details / "per_utt").read_text().splitlines() if "#csid" in line], int).sum(axis=0)
    total = (details / "per_spk").read_text().splitlines()[-2].split()
    assert total[:2] == ["SUM", "raw"] and [int(n) for n in total[4:8]] == counts.tolist()
    assert counts[1:].sum() == int(line.split()[3])
    ops = [row.split() for row in (details / "ops").read_text().splitlines()]
    kinds = ("correct", "substitution", "insertion", "deletion")
    assert [sum(int(row[3]) for row in ops if row[0] == kind) for kind in kinds] == counts.tolist()
    assert ops == sorted(ops, key=lambda row: (row[0], -int(row[3]), row[1], row[2]))
    interval = re.fullmatch(r"Set1: %WER ([\d.]+) 95% Conf Interval \[ ([\d.]+), ([\d.]+) \]\n", (details / "wer_bootci").read_text())
    assert interval and float(interval[2]) < rates[best_file] < float(interval[3]) and abs(float(interval[1]) - rates[best_file]) < 0.2
    hyps = (decode_dir / f"scoring_kaldi/penalty_{wip}/{lmwt}.txt").read_text().splitlines()
    assert len(hyps) == 43


def test_a_development_set_chooses_the_point(scored: tuple[Path, Path], tmp_path: Path) -> None:
    decode_dir, dev = tmp_path / "decode", tmp_path / "decode_dev/scoring_kaldi/wer_details"
    shutil.copytree(scored[0], decode_dir)
    lattices = scored[0] / "data"  # the data directory of the fixture
    words = SymbolTable.read(lattices / "words.txt")
    with pytest.raises(UserError, match="decode_dev has not been scored"):
        score_dir(DataDir(lattices), words, decode_dir, ScoreOptions(4, 15), dev.parent.parent)
    dev.mkdir(parents=True)
    (dev / "lmwt").write_text("14\n")
    (dev / "wip").write_text("1.0\n")
    stats, file = score_dir(DataDir(lattices), words, decode_dir, ScoreOptions(4, 15), dev.parent.parent)
    assert file == decode_dir / "wer_14_1.0" and stats.wer_line() == file.read_text().splitlines()[0]
    assert (decode_dir / "dev_chosen_wer").read_text() == f"{stats.wer_line()} {file}\n"
    best = (scored[0] / "best_wer").read_text()
    assert (decode_dir / "best_wer").read_text() == best.replace(str(scored[0]), str(decode_dir)) and "wer_14_1.0" not in best
    details = decode_dir / "scoring_kaldi/wer_details"
    assert (details / "lmwt").read_text() == "14\n" and read_counts(details / "per_utt").errors.sum() == stats.errors
    with pytest.raises(UserError, match=r"was scored best at LMWT 14 and insertion penalty 1\.0, which is not in this sweep"):
        score_dir(DataDir(lattices), words, decode_dir, ScoreOptions(4, 13, widen=False), dev.parent.parent)
    wider, _ = score_dir(DataDir(lattices), words, decode_dir, ScoreOptions(4, 13, "0.0"), dev.parent.parent)
    assert wider == stats and (decode_dir / "wer_14_0.0").is_file() and not (decode_dir / "wer_15_0.0").exists()
    score_dir(DataDir(lattices), words, decode_dir, ScoreOptions(4, 15))
    assert not (decode_dir / "dev_chosen_wer").exists()


@pytest.mark.parametrize(("errors", "where", "more"), [
    ({(7, "0.0"): 3, (8, "0.0"): 2, (9, "0.0"): 4}, "", None),  # one within; one penalty has no edge
    ({(7, "0.0"): 3, (8, "0.0"): 2, (9, "0.0"): 2}, "", None),  # as good as one within
    ({(7, "0.0"): 3, (8, "0.0"): 2}, "LMWT 8", {(lmwt, "0.0") for lmwt in range(9, 14)}),
    ({(3, "0.0"): 1, (4, "0.0"): 2}, "LMWT 3", {(1, "0.0"), (2, "0.0")}),
    ({(1, "0.0"): 1, (2, "0.0"): 2}, "", None),  # there is nothing below 1
    ({(7, "0.0"): 1, (8, "0.0"): 0, (9, "0.0"): 1, (7, "0.5"): 1, (8, "0.5"): 1, (9, "0.5"): 1}, "", None),  # a penalty of 0 is no edge
    ({(5, "0.0"): 3, (5, "0.25"): 2}, "penalty 0.25", {(5, "0.50"), (5, "0.75")}),
    ({(5, "1.0"): 1, (5, "2.0"): 2}, "penalty 1.0", {(5, "0.0")}),
    ({(7, "0.0"): 2, (8, "0.0"): 1, (7, "1"): 1, (8, "1"): 1, (6, "1"): 2, (6, "0.0"): 2}, "LMWT 8 and penalty 1", {  # each at another edge
        *((lmwt, wip) for lmwt in range(9, 14) for wip in ("0.0", "1", "2.0", "3.0")),
        *((lmwt, wip) for lmwt in (6, 7, 8) for wip in ("2.0", "3.0"))}),
    ({(7, "0.0"): 9, (8, "0.0"): 9, (7, "1"): 9, (8, "1"): 1}, "LMWT 8 and penalty 1", {
        *((lmwt, wip) for lmwt in range(9, 14) for wip in ("0.0", "1", "2.0", "3.0")),
        *((lmwt, wip) for lmwt in (7, 8) for wip in ("2.0", "3.0"))}),
])
def test_a_sweep_goes_on_beyond_its_edges(errors: dict[tuple[int, str], int], where: str, more: set[tuple[int, str]] | None) -> None:
    found, named = beyond(errors)
    assert (set(found), named) == (more or set(), where) and len(found) == len(set(found))


def test_a_sweep_is_widened_until_the_lowest_rate_is_within(scored: tuple[Path, Path], tmp_path: Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    decode_dir, data = tmp_path / "decode", DataDir(scored[0] / "data")
    shutil.copytree(scored[0], decode_dir)
    words = SymbolTable.read(data.path / "words.txt")
    before, _ = score_dir(data, words, decode_dir, ScoreOptions(19, 20, "0.0", widen=False))
    assert "WARNING: the lowest error rate stands at the edge of the sweep (LMWT 19); score with a wider one" in capsys.readouterr().err
    assert len(list(decode_dir.glob("wer_*_*"))) == 2
    after, file = score_dir(data, words, decode_dir, ScoreOptions(19, 20, "0.0"))
    said = capsys.readouterr().err
    assert "the edge of the sweep (LMWT 19), which goes on to LMWT 14 to 20, penalty 0.0 to 0.0" in said and "WARNING" not in said
    rates = {int(path.name.split("_")[1]): int(path.read_text().split()[3]) for path in decode_dir.glob("wer_*_*")}
    assert after.errors == min(rates.values()) < before.errors and rates[min(rates)] > after.errors < rates[20]
    assert rates[int(file.name.split("_")[1])] == after.errors
    again, _ = score_dir(data, words, decode_dir, ScoreOptions(19, 20, "0.0", stage=1))  # hypotheses that are there are of the sweep alone
    assert again == before and "WARNING" in capsys.readouterr().err


def test_best_wer_sh_takes_the_first_of_the_lowest(root: Path) -> None:
    text = "d/wer_7_0.0:%WER 9.00 [ 9 / 100 ]\nd/wer_8_0.0:%WER 10.10 [ x ]\nd/wer_9_0.0:%WER 9.00 [ 9 / 100 ]\nd/wer_9_0.0:%SER 1 [ ]\n"
    result = subprocess.run([root / "utils/best_wer.sh"], input=text, capture_output=True, text=True, check=True)
    assert result.stdout == "%WER 9.00 [ 9 / 100 ] d/wer_7_0.0\n"
    assert subprocess.run([root / "utils/best_wer.sh"], input="nothing\n", capture_output=True, text=True).returncode == 1


def one_word_lattice(word: int) -> Lattice:
    return Lattice.from_arcs(np.array([0, 1, 1]), np.array([1], np.int32), np.array([word], np.int32), np.zeros(1, np.float32),
                             np.zeros(1, np.float32), np.array([1], np.int32), np.array([np.inf, 0], np.float32))


def test_errors(tmp_path: Path) -> None:
    data = write_datadir(tmp_path / "data", {"u": "x.wav"}, {"u": "a"}, {"u": "u"})
    words = SymbolTable({"<eps>": 0, "a": 1})
    decode_dir = tmp_path / "decode"
    decode_dir.mkdir()
    with pytest.raises(UserError, match="no lattices"):
        score_dir(data, words, decode_dir, ScoreOptions())
    write_lattices(decode_dir / "lat.1.gz", [("v", one_word_lattice(1))])
    with pytest.raises(UserError, match="no reference"):
        score_dir(data, words, decode_dir, ScoreOptions())
    write_lattices(decode_dir / "lat.1.gz", [("u", one_word_lattice(7))])
    with pytest.raises(UserError, match="no symbol 7"):
        score_dir(data, words, decode_dir, ScoreOptions())
    assert not list(decode_dir.glob("wer_*"))
    for options in (ScoreOptions(min_lmwt=9, max_lmwt=8), ScoreOptions(word_ins_penalty="0.0,x")):
        with pytest.raises(UserError, match="expected"):
            score_dir(data, words, decode_dir, options)
    write_lattices(decode_dir / "lat.1.gz", [("u", one_word_lattice(1))])
    assert score_dir(data, words, decode_dir, ScoreOptions())[0].errors == 0


def test_filters_of_the_recipe_and_later_stages(scored: tuple[Path, Path], tmp_path: Path) -> None:
    """References and hypotheses go through commands, each; what they leave is on disk, for later stages."""
    decode_dir = tmp_path / "decode"
    shutil.copytree(scored[0], decode_dir)
    data, words = DataDir(scored[0] / "data"), SymbolTable.read(scored[0] / "data/words.txt")
    spelt = {"A", "E", "I", "O", "U"}
    drop = "sed 's/ [AEIOU]\\b//g'"
    stats, _ = score_dir(data, words, decode_dir, ScoreOptions(8, 10, ref_filtering_cmd=drop, hyp_filtering_cmd=drop))
    hyps = {line.split()[0]: line.split()[1:] for line in (scored[0] / "scoring_kaldi/penalty_0.5/9.txt").read_text().splitlines()}
    slow = compute_wer({utt: [w for w in data.text[utt] if w not in spelt] for utt in hyps},
                       {utt: [w for w in hyp if w not in spelt] for utt, hyp in hyps.items()})
    assert (decode_dir / "wer_9_0.5").read_text() == str(slow) and slow.words < 279
    before = (decode_dir / "wer_8_0.0").read_text()
    for lattice in decode_dir.glob("lat.*.gz"):
        lattice.unlink()
    again, _ = score_dir(data, words, decode_dir, ScoreOptions(8, 10, stage=1, ref_filtering_cmd=drop))
    assert again == stats and (decode_dir / "wer_8_0.0").read_text() == before
    with pytest.raises(UserError, match=r"penalty_0\.0/3\.txt does not exist; score from stage 0"):
        score_dir(data, words, decode_dir, ScoreOptions(3, 10, stage=1))
    with pytest.raises(UserError, match=r"the filter `exit 3` ended with status 3"):
        score_dir(data, words, decode_dir, ScoreOptions(8, 10, stage=1, ref_filtering_cmd="exit 3"))


def test_character_error_rates(scored: tuple[Path, Path], tmp_path: Path) -> None:
    decode_dir = tmp_path / "decode"
    shutil.copytree(scored[0], decode_dir)
    data, words = DataDir(scored[0] / "data"), SymbolTable.read(scored[0] / "data/words.txt")
    stats, file = score_dir(data, words, decode_dir, ScoreOptions(8, 10, stage=2, unit="char"))
    lmwt, wip = file.name.split("_")[1:]
    hyps = {line.split()[0]: line.split()[1:] for line in (decode_dir / f"scoring_kaldi/penalty_{wip}/{lmwt}.txt").read_text().splitlines()}
    slow = compute_wer({utt: list("".join(data.text[utt])) for utt in hyps}, {utt: list("".join(hyp)) for utt, hyp in hyps.items()})
    assert stats == slow and file.name.startswith("cer_") and file.read_text() == str(slow)
    assert (decode_dir / "best_wer").exists() and (decode_dir / "scoring_kaldi/best_cer").read_text().startswith(slow.wer_line())
    assert (decode_dir / "scoring_kaldi/cer_details/cer_bootci").read_text().startswith("Set1: %WER ")
    chars = (decode_dir / f"scoring_kaldi/penalty_{wip}/{lmwt}.chars.txt").read_text().splitlines()
    assert [line.split()[0] for line in chars] == list(hyps) and all(len(word) == 1 for line in chars for word in line.split()[1:])
    whole = score_dir(data, words, decode_dir, ScoreOptions(8, 10, stage=2, unit="char", character_tokenizer="cat"))[0]
    assert whole.words == 279


def test_noises_are_one_character() -> None:
    assert _characters({"u": ["<unk>", "a[b]", "été", "!SIL"]}, ScoreOptions()) == {"u": ["<unk>", "a[b]", "é", "t", "é", "!SIL"]}


def test_least_expected_errors(scored: tuple[Path, Path], tmp_path: Path) -> None:
    """Of lattices with one path they are this path's words; of all, hardly other errors than the best paths'."""
    decode_dir = tmp_path / "decode"
    shutil.copytree(scored[0], decode_dir)
    data, words = DataDir(scored[0] / "data"), SymbolTable.read(scored[0] / "data/words.txt")
    stats, _ = score_dir(data, words, decode_dir, ScoreOptions(9, 10, "0.5", decode_mbr=True))
    best = int((scored[0] / "wer_9_0.5").read_text().split()[3])
    assert abs(stats.errors - best) <= 3
    narrow, _ = score_dir(data, words, decode_dir, ScoreOptions(9, 9, "0.5", decode_mbr=True, beam=0.0))
    assert narrow.errors == best
