"""egs/fisher_swbd/s5: its tables of Chen & Huo (2016) and IBM (2019), and all of its stages on a stand-in of the corpora."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import pytest
from layouts import fisher, swbd
from test_swbd import tables

from pykaldist.cli import train
from pykaldist.report.paper_table import read_runs, read_table

TABLES = ("chen1", "chen2", "chen3", "chen4", "ibm", "ibm-batch")


@pytest.fixture
def local(root: Path) -> Path:
    return root / "egs/fisher_swbd/s5/local"


def test_published_values_are_those_of_the_papers(local: Path, shared: Path) -> None:
    """Tables 1 to 4 of Chen & Huo, rows in any order, as the document beside this project has them."""
    paper = (shared / "reference/seeds/001_5b0704f276074396.txt").read_text()
    rows = [re.findall(r"(?<![\d.])\d+\.\d(?!\d)", line) for line in paper[paper.index("Trainng"):].splitlines() if "\t" in line]
    published = [row for row in rows if row]
    sizes = {"chen1": (7, 3), "chen2": (7, 3), "chen3": (11, 3), "chen4": (11, 1)}
    for name, (count, columns) in sizes.items():
        cells, _ = read_table(local, name)
        mine = [tuple(cell.published for cell in cells if cell.row == row) for row in dict.fromkeys(cell.row for cell in cells)]
        theirs, published = published[:count], published[count:]
        assert sorted(mine) == sorted(tuple(row[-columns:]) for row in theirs), name
    ibm = (shared / "reference/seeds/002_2743a8cb0346dff6.txt").read_text()
    for phrase in ("achieved 7.6% WER for the Switchboard task and 13.2% WER for the Callhome", "11.5 hours", "5.2 hours", "12,288"):
        assert phrase in ibm
    assert {cell.published for cell in read_table(local, "ibm")[0]} == {"-", "168", "11.5", "5.2", "7.6", "13.2"}


def test_runs_have_the_settings_of_the_papers(local: Path) -> None:
    """Every run is one that training takes, with the papers' N x M blocks and block momenta, and IBM's global batches."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    train.add_arguments(parser)
    found = {name: parser.parse_args([*f"--ngpu {run.ngpu} --strategy bmuf {run.schedule_opts} {run.train_opts}".split(), "store", "exp"])
             for name, run in read_runs(local / "runs.tsv").items()}
    momenta = {8: 0.9, 16: 0.94, 32: 0.97, 64: 0.986}
    for name, run in found.items():
        if re.search("[cn]bm-n", name):
            assert run.strategy == "bmuf" and run.block_momentum == momenta[run.ngpu] and getattr(run, "nesterov", True) == ("nbm" in name)
            assert run.average_period == 0 and run.serial_warmup in (0.166, 1.0)
        assert run.num_epochs == (16 if run.schedule == "warmup" else 6 if run.nnet == "chen2016-dblstm" else 5), name
    blocks = {(run.ngpu, run.blocks) for name, run in found.items() if run.nnet == "chen2016-dnn" and run.ngpu > 1}
    assert blocks == {(8, 620), (16, 310), (32, 155), (64, 78)}
    assert {run.chunk for name, run in found.items() if name.startswith("csc-")} == {"21-64+21"}
    assert {128 * found[f"{strategy}-n{n}"].ngpu for strategy in ("ssgd", "adpsgd") for n in (32, 64, 96)} == {4096, 8192, 12288}
    assert found["hadpsgd-n64"].group_size == 8
    needed = {name for table in TABLES for name in read_table(local, table)[1]}
    assert needed == set(found)


def test_tables_run_what_they_need(make_recipe) -> None:
    folder, _ = make_recipe("fisher_swbd")
    (folder / "data/eval2000").mkdir(parents=True)
    (folder / "run.sh").write_text("""#!/usr/bin/env bash
printf '%s\\t' "$@" >> calls; echo >> calls
while [ $# -gt 0 ]; do case $1 in --dnn) dnn=$2 ;; esac; shift; done
for set in decode_eval2000 decode_eval2000_fg/swbd; do
  mkdir -p "$dnn/$set"
  echo "%WER 9.00 [ 9 / 100, 0 ins, 0 del, 9 sub ]" > "$dnn/$set/best_wer"
done
""")
    done = tables(folder, "--table", "ibm")
    assert done.returncode == 0, done.stderr
    calls = [line.split("\t")[:-1] for line in (folder / "calls").read_text().splitlines()]
    found = [dict(zip(call[::2], call[1::2], strict=True)) for call in calls]
    assert [(call["--dnn"], call["--ngpu"], call["--nnet-opts"]) for call in found] == [
        ("exp/tables/ibm-n1", "1", ""), ("exp/tables/adpsgd-n32", "32", ""), ("exp/tables/hadpsgd-n64", "64", "")]
    assert "--part" not in found[0] and "--strategy hadpsgd" in found[2]["--train-opts"]
    assert re.search(r"\| H-ADPSGD, 64 V100 \| 7.6 +\| 9.0 +\| 13.2 ", done.stdout)
    (folder / "calls").unlink()
    assert tables(folder, "--table", "chen1").returncode == 0
    call = (folder / "calls").read_text().splitlines()[0]
    assert "--part\tswbd\t--forward-opts\t--forward chunks" in call and "--chunk 21-64+21" in call


@pytest.mark.slow  # its dry run, and TIMIT's and Mini LibriSpeech's stand-ins, go through most of its stages
def test_every_stage_on_a_stand_in(make_recipe, speech: Path, tmp_path: Path) -> None:
    """From the packages to word error rates with both language models; with an hour Chen & Huo's first table, of Switchboard alone, too."""
    if not (shutil.which("hubscr.pl") or Path("/usr/lib/sctk/bin/hubscr.pl").exists()):
        pytest.skip("NIST's scoring toolkit (Debian's package sctk) is not installed")
    tiny = speech.name == "tones"
    speakers, each, files = (6, 5, 2) if tiny else (48, 13, 20)
    swbd.small(speech, tmp_path / "corpora", speakers, each, files)
    fisher.lay_out(speech, tmp_path / "corpora", speakers, each, speakers)
    folder, run = make_recipe("fisher_swbd")
    if not tiny:  # there is more speech
        with open(folder / "conf/stand_in.conf", "a", encoding="utf-8") as stream:
            stream.write("leaves=(150 200 250 300 400) gauss=(600 800 1000 1500 2000) mono_opts='' gmm_opts=''\n")
    options = ["--config", "conf/stand_in.conf", "--nj", "1" if tiny else "2", "--ngpu", "2", "--device", "cpu", "--sets", "eval2000",
               "--train-opts", "--num-threads 1"]
    done = run("--corpus", tmp_path / "corpora", *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    rates = {decode: float((folder / "exp" / decode / "best_wer").read_text().split()[1]) for decode in (
        f"{system}/decode_eval2000{lm}{part}" for system in ("tri5", "dnn") for lm in ("", "_fg") for part in ("", "/swbd", "/callhm"))}
    assert max(rates.values()) < 75 and rates["tri5/decode_eval2000"] < 60, rates
    if tiny:
        return
    done = tables(folder, "--table", "chen1", "--sets", "eval2000", "--run-opts", " ".join(options[:8]),
                  "--train-opts", "--hid-layers 1 --hid-dim 16 --blocks 1 --num-threads 1",
                  "--schedule-opts", "--schedule fixed --learn-rates 0.008")
    assert done.returncode == 0 and (folder / "exp/store_swbd/train/manifest.json").is_file(), done.stdout[-3000:] + done.stderr
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if re.match(r"\| (MA|BMUF|SGD)", line)]
    assert len(lines) == 7, done.stdout
    for _, published, obtained, *others in lines:
        assert 14 < float(published) < 17 and 0 <= float(obtained) <= 200, others
