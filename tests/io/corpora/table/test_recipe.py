"""The recipe that is written: its scripts, links and sizes; nothing is left of one that fails."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from pykaldist.cli import main, verbs
from pykaldist.cli.check_recipe import tool_interfaces, verb_options
from pykaldist.errors import UserError
from pykaldist.io.corpora.table.recipe import SIZES, check_folder, sizes_for
from pykaldist.report.check_recipe import check_recipe
from pykaldist.report.interfaces import Interfaces

NAMES = [f"{speaker}/{i}.wav" for speaker in ("anna", "ben", "cleo") for i in range(2)]


@pytest.fixture
def corpus(make_audio, tmp_path) -> list[str]:
    """The options that name a small corpus, whose folder has a blank and a quotation mark in its name."""
    audio = make_audio(*NAMES).rename(tmp_path / "anna's audio")
    (tmp_path / "table.csv").write_text("file,text\n" + "".join(f"{name},ba du\n" for name in NAMES))
    return ["--audio", str(audio), "--transcripts", str(tmp_path / "table.csv"), "--lexicon", "graphemes"]


def new(root: Path, folder: Path, corpus: list[str], *options: str) -> int:
    return main(["new-recipe", "--root", str(root), *corpus, *options, "mine", str(folder)])


def test_the_recipe_is_short_and_all_that_it_calls_is_there(root, tmp_path, corpus, capsys):
    folder = tmp_path / "egs/mine/s5"
    assert new(root, folder, corpus, "--speakers", "folder", "--shares", "60 20 20") == 0
    assert "a recipe for 0.00 hours of training speech at 8000 Hz: 300 leaves" in capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} == {"run.sh", "cmd.sh", "path.sh", "conf", "local", "steps", "utils"}
    assert (folder / "conf/mfcc.conf").read_text() == "--sample-frequency=8000\n--use-energy=false\n"
    for name, most in (("run.sh", 80), ("local/prepare_data.sh", 40), ("local/decode_gmms.sh", 40)):
        script = folder / name
        text = script.read_text()
        assert os.access(script, os.X_OK) and text.count("\n") <= most and not re.search(r"@[A-Z_]+@", text)
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    found = check_recipe(folder / "run.sh", Interfaces(root, verbs(), verb_options, tool_interfaces()))
    assert found.counted > 20 and found.number("accepted") == found.counted
    for name in ("steps", "utils", "path.sh"):
        assert (folder / name).resolve() == (root / name).resolve()
    help_text = subprocess.run([folder / "run.sh", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert all(option in help_text for option in ("--corpus", "--stage", "--nj", "--ngpu"))


def test_links_within_the_project_can_be_moved_with_it(root, tmp_path, corpus):
    house = tmp_path / "house"
    for name in ("steps", "utils"):
        (house / name).mkdir(parents=True)
    (house / "path.sh").touch()
    assert new(house, house / "egs/mine/s5", corpus) == 0
    assert os.readlink(house / "egs/mine/s5/steps") == "../../../steps"


def test_stage_0_makes_what_was_said(root, tmp_path, corpus, capsys):
    folder = tmp_path / "s5"
    assert new(root, folder, corpus, "--shares", "60 20 20", "--split-seed", "3") == 0
    said = capsys.readouterr().out.splitlines()[:-1]
    env = {**os.environ, "PYKALDIST_TOLD": "true"}
    done = subprocess.run([folder / "local/prepare_data.sh"], cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"prepare_data.sh: {line}" for line in said]
    assert (folder / "data/local/dict/lexicon.txt").read_text() == "<SIL> SIL\n<UNK> SPN\nba b a\ndu d u\n"
    assert {path.name for path in (folder / "data").iterdir()} == {"train", "dev", "test", "local"}
    options = shlex.split((folder / "local/prepare_data.sh").read_text().split("$(pykaldist prepare-table")[1].split(")")[0])
    assert {"--shares=60 20 20", "--split-seed=3"} <= set(options) and not any(word.startswith("--speakers") for word in options)


def test_a_lexicon_brings_the_word_for_others(root, tmp_path, corpus):
    (tmp_path / "lexicon.txt").write_text("ba B AA\nbu B UW\nda D AA\n")
    assert new(root, tmp_path / "s5", [*corpus[:-1], str(tmp_path / "lexicon.txt")]) == 0
    assert '--oov "<UNK>" --heldout-text' in (tmp_path / "s5/run.sh").read_text()
    assert new(root, tmp_path / "s6", corpus) == 0 and "--oov" not in (tmp_path / "s6/run.sh").read_text()


@pytest.mark.parametrize(("change", "message"), [
    ({"--audio": "{tmp}/none"}, "none is no folder"), ({"--transcripts": "{tmp}/none.csv"}, "none.csv does not exist"),
    ({"--lexicon": "{tmp}/none.txt"}, "none.txt is no file; give one"), ({"--columns": "text=said"}, "has no column 'said'"),
    ({"--shares": "1 2 3"}, "--shares: expected three numbers"),
])
def test_nothing_is_left_of_what_fails(root, tmp_path, corpus, capsys, change, message):
    options = {**dict(zip(corpus[::2], corpus[1::2], strict=True)), **{name: value.format(tmp=tmp_path) for name, value in change.items()}}
    before = sorted(tmp_path.iterdir())
    assert new(root, tmp_path / "egs/mine/s5", [word for pair in options.items() for word in pair]) == 1
    error, = capsys.readouterr().err.splitlines()
    assert error.startswith("pykaldist new-recipe: ERROR: ") and message in error
    assert sorted(tmp_path.iterdir()) == before


def test_a_failure_while_writing_leaves_no_folder(root, tmp_path, corpus, monkeypatch):
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("pykaldist.io.corpora.table.recipe.Path.symlink_to", fail)
    assert new(root, tmp_path / "s5", corpus) == 1
    assert not [path for path in tmp_path.iterdir() if "s5" in path.name]


def test_a_folder_that_exists_and_names_that_are_none_are_refused(tmp_path):
    check_folder("my-lang_2.0", tmp_path / "s5")
    with pytest.raises(UserError, match="exists; remove it, or give another name or --dir"):
        check_folder("mine", tmp_path)
    for name in ("", "a b", "../x", ".x", "a/b"):
        with pytest.raises(UserError, match="expected a name of letters"):
            check_folder(name, tmp_path / "s5")


def test_sizes_grow_with_the_hours():
    found = [sizes_for(hours) for hours in (0.0, 0.3, 0.31, 5, 10, 100, 1000)]
    assert found[0] == found[1] == SIZES[0.3] and found[-1] == SIZES[float("inf")]
    for smaller, larger in zip(SIZES.values(), list(SIZES.values())[1:], strict=False):
        assert smaller.leaves < larger.leaves < larger.gauss and smaller.gauss < larger.gauss
        assert smaller.hid_layers * smaller.hid_dim < larger.hid_layers * larger.hid_dim


def test_the_script_says_what_is_missing_and_writes_without_running(root, tmp_path, corpus):
    def script(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([root / "utils/new_recipe.sh", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = script("mine", *corpus[:2], "--lexicon", "graphemes")
    assert (done.returncode, done.stderr) == (1, "new_recipe.sh: ERROR: give --transcripts; new_recipe.sh --help says what it is.\n")
    done = script("mine", *corpus, "--dir", "s5", "--run", "false")  # the name first, and a folder as the caller's folder has it
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "new_recipe.sh: to run it: s5/run.sh" and (tmp_path / "s5/run.sh").is_file()
    done = script(*corpus, "--dir", "s5", "mine")
    assert done.returncode == 1 and "s5 exists" in done.stderr and done.stdout == ""
