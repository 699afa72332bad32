"""egs/swbd/s5c: its tables of Su, Chen & Xu (2015), and all of its stages on a stand-in of the corpora."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from layouts import swbd as layout
from test_stages import STUB, make_dry

from pykaldist.errors import UserError
from pykaldist.report.paper_table import obtained, read_runs, read_table, render

__all__ = ["make_dry"]  # a fixture
Run = Callable[..., subprocess.CompletedProcess[str]]
Made = Callable[..., tuple[Path, Run]]


def tables(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / "local/tables.sh", *arguments], cwd=folder.parent, capture_output=True, text=True, check=False,
                          timeout=3600)


@pytest.fixture
def local(root: Path) -> Path:
    return root / "egs/swbd/s5c/local"


def test_published_values_are_those_of_the_paper(local: Path, shared: Path) -> None:
    """Every value of tables 1 to 6, in the paper's order, as the document beside this project has them."""
    paper = (shared / "reference/seeds/003_1e7be2c7f8ad878d.txt").read_text()
    for number in range(1, 7):
        before = paper[: paper.index(f"**Table {number}.**")]
        lines = before[before.rindex("**Table") if number > 1 else 0 :].splitlines()
        rows = [line.split("\t") for line in lines if "\t" in line]
        published = [value.replace("–", "-") for row in rows[1:] for value in row[1:] if re.fullmatch(r"[\d.]+|–", value)]
        cells, _ = read_table(local, str(number))
        mine = [cell.published for cell in cells]
        if number == 3:
            published.remove("-")  # the baseline's speed-up
        if number in (2, 4, 5, 6):  # the head has the numbers of nodes
            published = [value for value in published if "." in value or value == "-"]
        assert sorted(mine) == sorted(published), number


@pytest.mark.parametrize(("table", "workers"), [(1, [1, 2, 4, 8, 16, 32]), (2, [1, 1, 32, 32]), (3, [1, 16, 16]), (4, [1, 1, 16, 16]),
                                                (5, [1, 1, 16, 16]), (6, [1, 1, 16, 16])])
def test_runs_differ_in_what_a_table_is_about(local: Path, table: int, workers: list[int]) -> None:
    _, runs = read_table(local, str(table))
    assert [run.ngpu for run in runs.values()] == workers
    about = {2: "rbm", 3: "train_opts", 4: "train_opts", 5: "schedule_opts", 6: "train_opts"}.get(table)
    for name in ("rbm", "train_opts", "schedule_opts"):
        assert len({getattr(run, name) for run in runs.values()}) == (2 if name == about else 1), name


def test_a_table_beside_what_was_obtained(local: Path, tmp_path: Path) -> None:
    for run, value, part, epoch in (("n1", "14.66", "swbd", 30.0), ("n16", "20.00", "callhm", 2.5)):
        best = tmp_path / run / "decode_eval2000" / part / "best_wer"
        best.parent.mkdir(parents=True)
        best.write_text(f"%WER {value} [ 1 / 2, 0 ins, 0 del, 1 sub ] wer_10_0.0\n")
        (tmp_path / run / "history.jsonl").write_text(
            '{"epoch": 1, "updates": 1, "frames": 1, "learn_rate": 1, "train_loss": 1, "cv_loss": 1, "accepted": true,'
            f'"seconds": {{"total": {epoch}}}, "time": "measured", "disagreement": 0}}\n')
    cells, _ = read_table(local, "3")
    assert [obtained(cell, tmp_path) for cell in cells] == ["14.7", "-", "12.00", "-", "20.0", "-", "-", "-"]
    lines = render(cells, tmp_path).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == ["baseline", "14.7", "14.7", "26.8", "-", "", ""]
    assert "| 9.32 " in lines[3] and "12.00" in lines[3]


def test_tables_that_are_wrong_are_refused(local: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no table 7; choose among 1, 2, 3, 4, 5, 6"):
        read_table(local, "7")
    shutil.copytree(local, tmp_path / "local")
    (tmp_path / "local/runs.tsv").write_text("n1\t1\ttrue\t-\t-\n")
    with pytest.raises(UserError, match="has no run sgd-n1, which table 6 needs"):
        read_table(tmp_path / "local", "6")
    for line in ("n1\t0\ttrue\t-\t-\n", "n1\t1\tyes\t-\t-\n", "a b\t1\ttrue\t-\t-\n"):
        (tmp_path / "local/runs.tsv").write_text(line)
        with pytest.raises(UserError, match="line 1: expected a new name, a number of workers and true or false"):
            read_runs(tmp_path / "local/runs.tsv")


def test_each_run_of_a_table_is_run_once(make_recipe: Made) -> None:
    folder, _ = make_recipe("swbd", "s5c")
    (folder / "run.sh").write_text("""#!/usr/bin/env bash
printf '%s\\t' "$@" >> calls; echo >> calls
while [ $# -gt 0 ]; do case $1 in --dnn) dnn=$2 ;; esac; shift; done
mkdir -p "$dnn"/decode_eval2000/swbd "$dnn"/decode_rt03
touch "$dnn/decode_rt03/best_wer"
echo "%WER 10.00 [ 1 / 10, 0 ins, 0 del, 1 sub ]" | tee "$dnn/decode_eval2000/best_wer" > "$dnn/decode_eval2000/swbd/best_wer"
""")
    for _ in range(2):
        done = tables(folder, "--table", "6", "--train-opts", "--num-threads 1", "--run-opts", "--device cpu", "--sets", "eval2000 rt03")
        assert done.returncode == 0, done.stderr
    calls = [line.split("\t")[:-1] for line in (folder / "calls").read_text().splitlines()]
    assert len(calls) == 4 and {"--device", "eval2000 rt03"} <= set(calls[0])
    found = [dict(zip(call[::2], call[1::2], strict=True)) for call in calls]
    assert [(call["--dnn"], call["--ngpu"]) for call in found] == [
        ("exp/tables/sgd-n1", "1"), ("exp/tables/n1", "1"), ("exp/tables/sgd-n16", "16"), ("exp/tables/n16", "16")]
    assert found[2]["--train-opts"] == "--average-period 10 --optimizer sgd --num-threads 1" and found[2]["--rbm"] == "true"
    assert found[0]["--schedule-opts"].startswith("--schedule exponential")
    assert "Table 6 of Su, Chen & Xu (2015)" in done.stdout and re.search(r"\| SGD +\| 14.9 +\| 10.0 +\| 16.3 +\| 10.0 +\|", done.stdout)
    assert tables(folder, "--table", "7").returncode == 1 == tables(folder).returncode


def scored(folder: Path) -> None:
    """A run.sh that trains nothing: every part of every test set gets 12.3 % in an epoch of 60 s, of each run."""
    (folder / "run.sh").write_text("""#!/usr/bin/env bash
while [ $# -gt 0 ]; do case $1 in --dnn) dnn=$2 ;; --sets) sets=$2 ;; esac; shift; done
echo "$dnn" >> calls
for set in $sets; do
  for place in decode_${set}{,_fg}{,/swbd,/callhm,/swb2p3,/swbcell}; do
    mkdir -p "$dnn/$place"
    echo "%WER 12.30 [ 123 / 1000, 0 ins, 0 del, 123 sub ]" > "$dnn/$place/best_wer"
  done
done
echo '{"epoch": 1, "updates": 1, "frames": 1, "learn_rate": 1, "train_loss": 1, "cv_loss": 2.5, "accepted": true,
 "seconds": {"total": 60}, "time": "measured", "disagreement": 0}' | tr -d '\n' > "$dnn/history.jsonl"
""")


@pytest.mark.parametrize(("recipe", "version", "table"), [
    *(("swbd", "s5c", str(number)) for number in range(1, 7)),
    *(("fisher_swbd", "s5", name) for name in ("chen1", "chen2", "chen3", "chen4", "ibm", "ibm-batch"))])
def test_a_whole_table(make_recipe: Made, recipe: str, version: str, table: str) -> None:
    """Of every table each run is run, and every cell is there: what was published, and what was obtained."""
    folder, _ = make_recipe(recipe, version)
    scored(folder)
    for name in ("eval2000", "eval2001", "rt03"):
        (folder / "data" / name).mkdir(parents=True)
    done = tables(folder, "--table", table)
    assert done.returncode == 0, done.stderr
    cells, runs = read_table(folder / "local", table)
    assert (folder / "calls").read_text().split() == [f"exp/tables/{name}" for name in runs]
    printed = [[value.strip() for value in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("| ")][-len(
        {cell.row for cell in cells}):]
    of_training = {"speedup": "1.00", "minutes": "1.00", "hours": "0.02", "cv_loss": "2.50"}
    columns = list(dict.fromkeys(cell.column for cell in cells))
    at = {(cell.row, cell.column): [cell.published, of_training.get(cell.test_set, "12.3")] for cell in cells}
    for row, *values in printed:
        assert values == [value for column in columns for value in at.get((row, column), ["", ""])], done.stdout


def test_stages_take_what_those_before_them_made(make_dry: Callable[..., tuple[Path, Callable[..., list]]]) -> None:
    folder, dry = make_dry("swbd", "s5c")
    (folder / "local/score.sh").write_text(STUB)
    layout.lines(folder / "data/train/text", [f"utt{i} word" for i in range(20)])
    (folder / "data/local").mkdir()
    calls = dry("run.sh", "--corpus", "elsewhere", "--sets", "eval2000 rt03", "--stop-stage", "7", "--cmd", "run.pl --mem 2G")
    made = {"data/train", "data/local/dict", "data/local/dict/lexicon.txt", "data/local/lm_text", "data/eval2000", "data/rt03"}
    for call in calls[1:]:
        last = -3 if call.script == "steps/nnet/make_fmllr_feats.sh" else -1
        outputs = call.arguments[last - 2 : last - 1] if last == -3 else call.arguments[-1:]
        inputs = call.arguments[1:3] if last == -3 else call.arguments[:-1]
        if call.script in ("steps/make_plp_pitch.sh", "steps/compute_cmvn_stats.sh", "utils/fix_data_dir.sh", "local/score.sh"):
            outputs, inputs = [], call.arguments[:1] if call.script != "local/score.sh" else call.arguments
        inputs += [value for option, value in call.options.items() if option in ("--dbn", "--transform-dir")]
        for name in inputs:
            assert name in made or name == "data/local/lang" or not name.startswith(("data", "exp")), (name, call)
        made.update(outputs)
        assert call.options.get("--cmd", "run.pl --mem 2G") == "run.pl --mem 2G" or call.options["--cmd"].endswith("run.pl --mem 2G")
    assert [call.arguments for call in calls if call.script == "local/score.sh"] == [
        [f"data/{name}", "exp/tri4/graph", f"exp/{system}/decode_{name}"] for name in ("eval2000", "rt03") for system in ("tri4", "dnn")]
    trained, = (call.options for call in calls if call.script == "steps/nnet/train.sh")
    expected = {"--hid-layers": "6", "--hid-dim": "2048", "--optimizer": "ngsgd", "--strategy": "ma", "--minibatch-size": "1024"}
    assert expected.items() <= trained.items()


def test_without_a_corpus_it_says_what_is_needed(make_recipe: Made) -> None:
    _, run = make_recipe("swbd", "s5c")
    done = run("--stop-stage", "0")
    assert done.returncode == 1 and "--corpus is needed: the folder with the packages LDC97S62 and others" in done.stderr


@pytest.mark.slow  # test_fisher_swbd.py goes through the same preparation and more stages
def test_every_stage_on_a_stand_in(make_recipe: Made, speech: Path, tmp_path: Path) -> None:
    """From the packages to a word error rate by NIST's scoring; with an hour of speech table 6 too."""
    if not (shutil.which("hubscr.pl") or Path("/usr/lib/sctk/bin/hubscr.pl").exists()):
        pytest.skip("NIST's scoring toolkit (Debian's package sctk) is not installed")
    tiny = speech.name == "tones"
    speakers, each, files = (6, 6, 2) if tiny else (98, 13, 20)
    layout.small(speech, tmp_path / "corpora", speakers, each, files)
    folder, run = make_recipe("swbd", "s5c")
    sets = "eval2000" if tiny else "eval2000 rt03"
    if not tiny:
        with open(folder / "conf/stand_in.conf", "a", encoding="utf-8") as stream:
            stream.write("short=800 mono=800 first=800 leaves=(200 250 300 400) gauss=(800 1200 1500 2000) mono_opts='' gmm_opts=''\n")
    config, jobs = ("--config", "conf/stand_in.conf"), str(min(2, os.cpu_count() or 1))
    done = run(*config, "--corpus", tmp_path / "corpora", "--sets", sets, "--nj", jobs, "--ngpu", "2", "--device", "cpu",
               "--train-opts", "--num-threads 1")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "left out: recordings without transcripts, 1: sw04999" in done.stdout
    assert re.search(rf"[\d,]+ utterances of {speakers} speakers \(sides\) of {speakers // 2} conversations", done.stdout)
    rates = {}
    for decode in ("eval2000", "eval2000/swbd", "eval2000/callhm", "rt03", "rt03/fsh")[: 3 if tiny else 5]:
        for system in ("tri4/decode", "dnn/decode"):
            rates[f"{system}_{decode}"] = float((folder / "exp" / f"{system}_{decode}" / "best_wer").read_text().split()[1])
    assert max(rates.values()) < 75 and rates["tri4/decode_eval2000"] < 60, rates
    if tiny:
        return
    done = tables(folder, "--table", "6", "--train-opts", "--num-threads 1", "--schedule-opts", "--schedule fixed --learn-rates 0.008",
                  "--run-opts", f"{' '.join(config)} --nj {jobs} --device cpu")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()
             if line.startswith(("| SGD", "| NG-SGD"))]
    assert [line[0] for line in lines] == ["SGD", "NG-SGD"] and lines[0][1::2] == ["14.9", "16.3", "26.9", "28.3"]
    assert all(0 <= float(value) <= 100 for line in lines for value in line[2::2]), lines
