"""The table of programs, src/bin, the usage texts and the options are in step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.programs.command import COMMON, Command
from pykaldist.programs.table import FILES, PROGRAMS, function_name, load

ROOT = Path(__file__).resolve().parents[2]
TREE = "num-pdfs 5\ncontext-width 3\ncentral-position 1\n"
BIN = ROOT / "src/bin"


def test_every_program_is_a_link_in_src_bin() -> None:
    assert sorted(path.name for path in BIN.iterdir()) == sorted(PROGRAMS)
    assert {os.readlink(path) for path in BIN.iterdir()} == {"../program"} and os.access(ROOT / "src/program", os.X_OK)


def test_every_function_of_a_file_that_has_a_usage_text_is_in_the_table() -> None:
    for file, names in FILES.items():
        found = re.findall(r"^def ([a-z]\w*)\((?:.|\n)*?\"\"\"(?:.|\n)*?\"\"\"", (ROOT / f"pykaldist/programs/{file}.py").read_text(), re.M)
        with_usage = {name for name in found if "Usage: " in (load_any(file, name).__doc__ or "")}
        assert with_usage == set(map(function_name, names.split()))


def load_any(file: str, name: str):  # type: ignore[no-untyped-def]  # a function of the file, whichever
    from importlib import import_module

    return getattr(import_module(f"pykaldist.programs.{file}"), name)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_usage_text_tells_every_option_and_no_other(name: str) -> None:
    command = Command(name, load(name))
    usage = command.usage()
    told = [line.split(":")[0].strip(" -").replace("-", "_") for line in usage.splitlines() if line.startswith("  --")]
    common = [line.split(":")[0].strip(" -").replace("-", "_") for line in COMMON.splitlines()]
    assert told == [*told[:-len(common)], *common] and set(told[:-len(common)]) == set(command.options)
    first, usage_line = usage.splitlines()[0], next(line for line in usage.splitlines() if line.startswith("Usage: "))
    assert first.endswith(".") and usage_line.split()[1] == name


def test_usage_status_and_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy-feats"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "Usage: copy-feats [options] <feats-rspecifier>" in err and "ERROR" not in err
    assert main(["copy-feats", "--help"]) == 0
    assert capsys.readouterr().out == err
    for arguments, message in (
            (["copy-feats", "ark:a"], "copy-feats: ERROR: expected 2 arguments, found 1."),
            (["copy-feats", "--foo=1", "ark:a", "ark:b"], "there is no option --foo; copy-feats --help lists the options."),
            (["copy-feats", "--compress=maybe", "ark:a", "ark:b"], "--compress is true or false, found 'maybe'"),
            (["add-deltas", "--delta-order=x", "ark:a", "ark:b"], "--delta-order: expected an integer, found 'x'"),
            (["copy-feats", "a", "ark:b"], "expected two tables (ark:, scp:) or two files"),
            (["copy-feats", "ark,q:a", "ark:b"], "'ark,q:a' is no table"),
            (["copy-feats", "ark:nowhere", "ark:b"], "nowhere does not exist")):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err


def test_options_of_every_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v").write_text("a  [\n  1 2\n  3 4 ]\n")
    (tmp_path / "conf").write_text("# deltas\n--delta-order=1  # one\n\n--delta_window=1\n")
    out = f"ark,t:{tmp_path}/out"
    assert main(["add-deltas", f"--config={tmp_path}/conf", "--print-args=false", "--verbose=2", f"ark:{tmp_path}/v", out]) == 0
    assert (tmp_path / "out").read_text() == "a  [\n  1 2 1 1 \n  3 4 1 1 ]\n"
    assert capsys.readouterr().err == "1 utterances done\n"
    assert main(["add-deltas", "--delta-order", "0", f"ark:{tmp_path}/v", out]) == 0
    assert capsys.readouterr().err.startswith("add-deltas --delta-order 0 ark:")
    (tmp_path / "conf").write_text("delta-order=1\n")
    assert main(["add-deltas", f"--config={tmp_path}/conf", f"ark:{tmp_path}/v", out]) == 1
    assert "expected lines of --name=value, found 'delta-order=1'" in capsys.readouterr().err


def test_a_program_starts_without_numpy_where_it_needs_none(tmp_path: Path) -> None:
    code = """
import sys
from pykaldist.programs.command import start
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "torch", "numba", "argparse", "pathlib", "dataclasses", "inspect"):
            raise AssertionError(name + " is imported")
sys.meta_path.insert(0, Block())
assert start(["fstcompile", "t", "f"]) == start(["fstarcsort", "f", "g"]) == start(["fstprint", "g"]) == 0
"""
    numpy = """
sys.meta_path[0].find_spec = lambda name, path=None, target=None: 1 / (name != "numpy") and None
assert start(["tree-info", "tree"]) == 0
"""
    (tmp_path / "tree").write_text("ContextDependency 3 1 ToPdf SE 0 [ 1 2 ]\n{ CE 0 CE 4 } EndContextDependency ")
    (tmp_path / "t").write_text("0 1 2 2\n0 1 1 1\n1 0.5\n")
    done = subprocess.run([sys.executable, "-c", code + numpy], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\t1\t1\t1\n0\t1\t2\t2\n1\t0.5\n" + TREE), done.stderr


@pytest.mark.parametrize("file", ["copies", "models", "openfst", "fstbin"])
def test_programs_that_look_at_no_matrix_wait_for_no_numpy(file: str) -> None:
    """It takes two thirds of their time."""
    code = f"import sys, pykaldist.programs.{file}; sys.exit('numpy' in sys.modules or 'pathlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
