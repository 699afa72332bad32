"""The check of foreign recipes: shell is read as the shell reads it, calls are judged by what the scripts here take."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pykaldist.cli import verbs
from pykaldist.cli.check_recipe import tool_interfaces, verb_options
from pykaldist.report.check_recipe import ACCEPTED, ARGUMENTS, LATER, OPTION, UNKNOWN, Checked, check_recipe, lines, table
from pykaldist.report.interfaces import Interfaces, numbers_of_arguments
from pykaldist.report.shell_calls import commands, functions

ROOT = Path(__file__).resolve().parents[2]
NINE = ("yesno/s5", "an4/s5", "rm/s5", "wsj/s5", "aishell/s5", "librispeech/s5", "mini_librispeech/s5", "tedlium/s5_r3", "swbd/s5c")


@pytest.fixture(scope="module")
def interfaces() -> Interfaces:
    return Interfaces(ROOT, verbs(), verb_options, tool_interfaces())


def read(text: str) -> list[tuple[int, str, list[str]]]:
    return [(command.line, command.name, [word.text for word in command.words]) for command in commands(text)]


@pytest.mark.parametrize(("text", "expected"), [
    ("a b 'c d' \"e $f\" # g h\n", [(1, "a", ["b", "c d", "e $f"])]),
    ("a \\\n  b\nc", [(1, "a", ["b"]), (3, "c", [])]),
    ("a | b && c || d; e & f", [(1, name, []) for name in "abcdef"]),
    ("if [ x = y ]; then a; else b; fi\nfor x in a b; do c $x; done", [(1, "a", []), (1, "b", []), (2, "c", ["$x"])]),
    ("case $x in\n  a) b ;;\n  *) c ;;\nesac", [(1, "in", []), (2, "b", []), (3, "c", [])][1:]),
    ("x=1 y=2 a b; x=3", [(1, "a", ["b"])]),
    ("n=$(a b | c)", [(1, "a", ["b"]), (1, "c", [])]),
    ("a `b c` <(d e) \"$(f)\"", [(1, "b", ["c"]), (1, "d", ["e"]), (1, "f", []), (1, "a", ["$()", "$()", "$()"])]),
    ("a > out 2>&1 < in b >>log", [(1, "a", ["b"])]),
    ("cat <<EOF\nnot | a command\nEOF\na", [(1, "cat", []), (4, "a", [])]),
    ("cat <<-'X' | a\n\tno\n\tX\nb", [(1, "cat", []), (1, "a", []), (4, "b", [])]),
    ("x=$((1 + 2)); a ${y:+--opt $y}", [(1, "a", ["${y:+--opt $y}"])]),
    ("$cmd JOB=1:4 a.JOB.log b c '>' d 2\\>/dev/null \\| e '<f' g", [
        (1, "$cmd", ["JOB=1:4", "a.JOB.log", "b", "c", ">", "d", "2>/dev/null", "|", "e", "<f", "g"]), (1, "b", ["c"]), (1, "e", ["g"])]),
    ("$train_cmd JOB=1:4 a.JOB.log b --c d", [(1, "$train_cmd", ["JOB=1:4", "a.JOB.log", "b", "--c", "d"]), (1, "b", ["--c", "d"])]),
    ("run.pl --mem 2G log a \\| b", [(1, "run.pl", ["--mem", "2G", "log", "a", "|", "b"]), (1, "a", []), (1, "b", [])]),
    ("a \"ark:b -c | d |\" 'ark,t:| e'", [(1, "b", ["-c"]), (1, "d", []), (1, "e", []), (1, "a", ["ark:b -c | d |", "ark,t:| e"])]),
    ("export train_cmd=\"queue.pl --mem 4G\"", [(1, "queue.pl", ["--mem", "4G"])]),
    ("a() { b; }\n( cd x; c ) || exit 1", [(1, "a", []), (1, "b", []), (2, "cd", ["x"]), (2, "c", []), (2, "exit", ["1"])]),
    ("perl utils/x.pl y", [(1, "perl", ["utils/x.pl", "y"]), (1, "utils/x.pl", ["y"])]),
    ("a 'never ends", [(1, "a", ["never ends"])]),
])
def test_shell_is_read_as_the_shell_reads_it(text, expected):
    assert read(text) == expected


def test_definitions_are_no_calls_of_others():
    assert functions("a() {\n  b\n}\nfunction c { d; }\nfunction e() { f; }\n") == {"a", "c", "e"}


@pytest.mark.parametrize(("usage", "expected"), [
    ("Usage: x.sh [options] <a> <b>\n", (2, 2)), ("Usage: x.sh <a> [<b> [<c>]]\n", (1, 3)),
    ("Usage: x.sh <a> ... <b>\n", (2, float("inf"))),
    ("Usage: x.sh [--first|--last] <a> <n> <b>\n   or: x.sh --utt-list <file>|--spk-list <file> <a> <b>\n", (2, 3)),
    ("Usage: grep WER wer_* | utils/best_wer.sh\n", (0, 0)), ("nothing", (0, float("inf"))),
    ("Usage: x.pl [-f <n>] <a> [<in>] > <out>\n", (1, 2)), ("Usage: x.pl <a> < <in> > <out>\n", (1, 1)),
])
def test_numbers_of_arguments_are_in_the_usage_text(usage, expected):
    assert numbers_of_arguments(usage) == expected


@pytest.mark.parametrize(("name", "options", "arguments"), [
    ("steps/train_mono.sh", {"nj", "cmd", "totgauss", "boost-silence", "config"}, (3, 3)),
    ("steps/make_mfcc.sh", {"mfcc-config", "nj", "cmd", "compress"}, (1, 3)),
    ("utils/subset_data_dir.sh", {"first", "utt-list", "per-spk"}, (2, 3)),
    ("utils/validate_data_dir.sh", {"no-feats", "no-text"}, (1, 1)),
    ("utils/filter_scp.pl", {"exclude", "f"}, (1, 2)),
    ("utils/data/copy_data_dir.sh", {"utt-prefix"}, (2, 2)),
    ("steps/online/nnet2/copy_data_dir.sh", {"utts-per-spk-max"}, (2, 2)),
    ("utils/mkgraph.sh", {"self-loop-scale", "mono", "remove-oov"}, (3, 3)),
])
def test_what_scripts_take_is_found_out_from_them(interfaces, name, options, arguments):
    found = interfaces.of(name)
    assert options <= set(found.options) and "no-such-option" not in found.options and found.arguments == arguments


def test_flags_take_no_value(interfaces):
    assert not interfaces.of("utils/mkgraph.sh").options["mono"] and interfaces.of("utils/mkgraph.sh").options["self-loop-scale"]
    assert not interfaces.of("utils/subset_data_dir.sh").options["first"] and interfaces.of("utils/subset_data_dir.sh").options["utt-list"]
    assert not interfaces.of("utils/subset_scp.pl").options["quiet"]


def test_what_would_set_up_an_environment_is_not_asked(interfaces):
    assert interfaces.of("utils/setup_venv.sh").any_option


NO_USAGE = {"parse_options.sh", "setup_venv.sh", "best_wer.sh", "guard.sh"}  # sourced, run by path.sh, and one that reads a pipe


def test_every_script_says_what_it_takes(interfaces):
    """Each executable script of steps and utils has a usage text that the check can use: options that its own usage text shows are its."""
    for folder in ("steps", "utils"):
        for path in (ROOT / folder).rglob("*.sh"):
            if os.access(path, os.X_OK) and path.resolve().name != "later" and path.name not in NO_USAGE:
                found = interfaces.of(str(path.relative_to(ROOT)))
                assert found is not None and found.options is not None and found.arguments[0] > 0, path


RUN = """#!/usr/bin/env bash
. ./cmd.sh
. ./path.sh
local/prep.sh "$1" || exit 1
steps/make_mfcc.sh --nj 4 --cmd "$train_cmd" data/train exp/make_mfcc/train mfcc
for x in a b; do
  steps/decode.sh --nj 4 --no-such-option 3 --cmd "$decode_cmd" graph data/$x dir
  utils/filter_scp.pl -f 2 ids data/$x/feats.scp > out || exit 1
done
utils/prepare_lang.sh $opts data/local/dict "<UNK>" tmp
utils/no_such_tool.pl x | utils/sym2int.pl --map-oov "<UNK>" -f 2- words.txt
utils/mkgraph.sh --mono data/lang exp/mono exp/mono/graph
steps/train_mmi_sgmm2.sh --boost 0.1 data lang ali denlats dir
steps/nnet2/decode.sh --stage 3
steps/train_mono.sh $extra_opts $(list data) data/lang exp/mono
no-such-program --x | fstcompile
flac -c -d -s a.flac | sph2pipe
steps/align_si.sh "${jobs[@]}" --beam 10 data/train data/lang exp/mono exp/mono_ali
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "egs" / "mine" / "s5"
    (folder / "local").mkdir(parents=True)
    (folder / "run.sh").write_text(RUN)
    (folder / "cmd.sh").write_text('export train_cmd="run.pl --mem 2G"\n')
    (folder / "path.sh").write_text("export KALDI_ROOT=/x\n")
    (folder / "local" / "prep.sh").write_text("helper() { :; }\nhelper x\nutils/utt2spk_to_spk2utt.pl a b c\n"
                                              "local/gone.sh\nlocal/more.pl\n")
    (folder / "local" / "more.pl").write_text("#!/usr/bin/perl\nsystem('utils/x.pl')\n")
    return folder / "run.sh"


def test_calls_are_judged(recipe, interfaces):
    checked = check_recipe(recipe, interfaces)
    found = {(call.file, call.line, call.script): call.verdict for call in checked.calls if not call.script.endswith("run.pl")}
    assert found == {
        ("run.sh", 5, "steps/make_mfcc.sh"): ACCEPTED, ("run.sh", 7, "steps/decode.sh"): OPTION,
        ("run.sh", 8, "utils/filter_scp.pl"): ACCEPTED, ("run.sh", 10, "utils/prepare_lang.sh"): ACCEPTED,  # $opts may hold anything
        ("run.sh", 11, "utils/no_such_tool.pl"): UNKNOWN, ("run.sh", 11, "utils/sym2int.pl"): ACCEPTED,
        ("run.sh", 12, "utils/mkgraph.sh"): ACCEPTED, ("run.sh", 13, "steps/train_mmi_sgmm2.sh"): ACCEPTED,
        ("run.sh", 14, "steps/nnet2/decode.sh"): LATER,
        ("run.sh", 15, "steps/train_mono.sh"): ACCEPTED, ("local/prep.sh", 3, "utils/utt2spk_to_spk2utt.pl"): ARGUMENTS,
        ("run.sh", 18, "steps/align_si.sh"): ACCEPTED,  # an array may hold options
    }
    counted = [call for call in checked.calls if not call.counts]
    assert [call.script for call in counted] == ["steps/nnet2/decode.sh"] and checked.files == 4
    assert checked.missing_local == ["prep.sh:4: local/gone.sh"]
    assert {"no-such-program", "fstcompile"} <= set(checked.programs) and checked.missing_programs == {"no-such-program"}
    text = "\n".join(lines(checked))
    for line in ("run.sh:7: steps/decode.sh: has no option --no-such-option", "run.sh:11: utils/no_such_tool.pl: there is no such script",
                 "run.sh:14: steps/nnet2/decode.sh: belongs to nnet2 networks", "program no-such-program (1 call): it is not on PATH",
                 "local/prep.sh:3: utils/utt2spk_to_spk2utt.pl: takes 0 to 1 arguments, here are 3",
                 "prep.sh:4: local/gone.sh: the recipe has no such script"):
        assert line in text, text
    assert {call.file for call in check_recipe(recipe, interfaces, only_run=True).calls} == {"run.sh"}


@pytest.mark.parametrize("only_run", [True, False])
def test_a_script_in_local_names_those_of_its_recipe(tmp_path, interfaces, only_run):
    folder = tmp_path / "local/s5/local/chain/tuning"
    folder.mkdir(parents=True)
    for name in ("path.sh", "local/made.sh", "local/chain/tuning/run_tdnn_1a.sh"):
        (tmp_path / "local/s5" / name).write_text("local/made.sh\nlocal/gone.sh\nutils/fix_data_dir.sh data/train\n")
    checked = check_recipe(folder / "run_tdnn_1a.sh", interfaces, only_run=only_run)
    read = ["local/chain/tuning/run_tdnn_1a.sh"] if only_run else ["local/chain/tuning/run_tdnn_1a.sh", "local/made.sh"]
    assert [call.file for call in checked.calls] == read
    assert checked.missing_local == [f"{Path(name).name}:2: local/gone.sh" for name in read]


def test_the_command_reports_and_runs_nothing(recipe, tmp_path):
    env = {**os.environ, "PYKALDIST_ROOT": str(ROOT), "PATH": f"{ROOT}/utils:{ROOT}/utils/shared:{os.environ['PATH']}"}
    before = sorted(recipe.parent.rglob("*"))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([ROOT / "utils/check_recipe.sh", *map(str, arguments)], cwd=tmp_path, env=env, capture_output=True, text=True,
                              check=False)

    done = run(recipe)
    assert done.returncode == 1 and "calls of steps/ and utils/ are accepted" in done.stdout and sorted(recipe.parent.rglob("*")) == before
    rows = run("--table", "true", recipe).stdout.splitlines()
    assert rows[0].startswith("| recipe | calls |") and rows[2].startswith("| mine/s5 | ") and rows[3].startswith("| together | ")
    (recipe.parent / "run.sh").write_text("utils/filter_scp.pl a b\n")
    assert run(recipe).returncode == 0
    gone = run(tmp_path / "none" / "run.sh")
    assert gone.returncode == 1 and "does not exist; name a recipe's run.sh." in gone.stderr
    (recipe.parent / "run.sh").write_bytes(b"\xff\xfe")
    assert "is no shell script in UTF-8" in run(recipe).stderr


def test_a_recipe_cannot_name_what_is_run(recipe, interfaces, tmp_path):
    """Scripts are asked for their usage texts; a name that leads out of steps and utils is none of them."""
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/done\n")
    evil.chmod(0o755)
    recipe.write_text(f"utils/{'../' * 20}{evil.relative_to('/')} x\nsteps/../utils/filter_scp.pl a b\n")
    checked = check_recipe(recipe, interfaces)
    assert [call.verdict for call in checked.calls] == [UNKNOWN, ACCEPTED] and not (tmp_path / "done").exists()


def test_a_table_sums_recipes(recipe, interfaces):
    checked = check_recipe(recipe, interfaces)
    rows = [[cell.strip() for cell in row.split("|")] for row in table([checked, checked])]
    assert rows[-1][2] == str(2 * checked.counted) and rows[2][2] == str(checked.counted)
    assert sum(int(cell.split()[0]) for cell in rows[2][3:7]) == checked.counted


def test_our_own_recipes_are_accepted(interfaces):
    for path in sorted(ROOT.glob("egs/*/s5/run.sh")):
        checked = check_recipe(path, interfaces)
        assert list(lines(checked))[:-1] == [], path


def test_kaldis_nine_recipes(interfaces, kaldi_egs):
    """As many calls in their run.sh as were counted by hand with other means: 299 (../shared/reference/kaldi_recipes.md)."""
    found: list[Checked] = [check_recipe(kaldi_egs / name / "run.sh", interfaces, only_run=True) for name in NINE]
    assert abs(sum(len(checked.calls) for checked in found) - 299) <= 3
    whole = [check_recipe(kaldi_egs / name / "run.sh", interfaces) for name in NINE]
    print("\n".join(table(whole)))
    assert sum(checked.number(ACCEPTED) for checked in whole) >= 0.94 * sum(checked.counted for checked in whole)


def test_language_models_of_recipes_are_accepted(interfaces, tmp_path, monkeypatch):
    """kaldi_lm's form of train_lm.sh, programs by name, and one that the recipe has in a folder of its own."""
    monkeypatch.setenv("PATH", f"{ROOT}/src/bin:{os.environ['PATH']}")
    (tmp_path / "local/dict").mkdir(parents=True)
    (tmp_path / "local/dict/add_counts.pl").write_text("#!/usr/bin/perl\n")
    (tmp_path / "run.sh").write_text(
        "train_lm.sh --arpa --lmtype 3gram-mincount $dir || exit 1\nutils/train_lm.sh --order 3 text words lm\nutils/train_lm.sh a b c d\n"
        "ngram-count -text x -lm y\nngram -lm x -ppl y\ncompute-best-mix a b\ntrain_lm.py --wordlist=w text 4 work\nlmplz -o 3\n"
        "add_counts.pl a b\nget_word_map.pl '<s>' '</s>' '<UNK>'\ng2p.py --model m --apply w\nno-such-program\n"
        "steps/dict/train_g2p.sh --cmd 'run.pl --mem 4G' --silence-phones s lexicon dir\nsteps/dict/apply_g2p.sh --var-counts 4 w m d\n"
        "steps/dict/train_g2p_phonetisaurus.sh --stage 0 --silence-phones s lexicon dir\n"
        "steps/dict/apply_g2p_phonetisaurus.sh --nbest 1 w m d\nutils/lang/make_kn_lm.py -ngram-order 7 -text t -lm l\n")
    checked = check_recipe(tmp_path / "run.sh", interfaces)
    assert [(call.line, call.verdict) for call in checked.calls if call.verdict != ACCEPTED] == [(3, ARGUMENTS)]
    assert checked.missing_programs == {"no-such-program"} and checked.programs["ngram-count"] == 1
