"""What SECURITY.md says of the code holds: nothing that is read is run, but for what stands in ALLOWED with its reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pykaldist.cli import main

PACKAGE = Path(__file__).resolve().parent.parent / "pykaldist"
RUNS = {"eval", "exec", "compile", "__import__"}  # builtins
PROGRAMS = re.compile(r"subprocess\.(run|call|check_call|check_output|getoutput|getstatusoutput|Popen)|"
                      r"os\.(system|popen|(exec|spawn|posix_spawn)\w*)|asyncio\.create_subprocess_\w+")
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "multiprocessing", "runpy", "pty"}
# By the last part of a name, whatever it is of. From `send_pyobj` on: they pickle what they send, and unpickle what they receive.
NAMES = {"unpack_archive", "import_module", "exec_module", "CDLL", "read_pickle", "send_pyobj", "recv_pyobj", "bcast",
         "allgather", "alltoall", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
         "send_object_list", "recv_object_list"}
# Calls that are harmless with a constant: by its name, and its value.
WITH = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}

ALLOWED = {
    ("cli/__init__.py", "import_module"): "a verb's module, by its file in pykaldist/cli",
    ("cli/check_recipe.py", "import_module"): "a verb's module, by its file in pykaldist/cli",
    ("cures.py", "subprocess.run"): "a script of steps or utils here, for its usage text; never a recipe's",
    ("deterministic.py", "os.execv"): "the same command once more, in another environment",
    ("io/audio.py", "subprocess.run"): "pipes of a wav.scp, in a data directory that the user names",
    ("io/container.py", "import pickle"): "the name of an error",
    ("io/xfilenames.py", "os.posix_spawn"): "pipes in the arguments of a program, whose command line is the user's own",
    ("programs/table.py", "import_module"): "a program's module, by the table beside it",
    ("io/text_tools/run.py", "__import__"): "a tool's module, by the table of tools",
    ("io/corpora/debian.py", "subprocess.run"): "apt-get, with words of our own",
    ("io/corpora/packages.py", "subprocess.run"): "sph2pipe, with a file of the corpus",
    ("io/corpora/fetch.py", "subprocess.Popen"): "git, with an address and a commit of our own",
    ("jobs/cluster.py", "os.system"): "qdel or scancel, with a number",
    ("report/doctor.py", "subprocess.run"): "sinfo and qstat, with words of our own",
    ("jobs/cluster.py", "subprocess.run"): "qsub, sbatch and their like, as the recipe's configuration has them",
    ("frames/mapped.py", "CDLL"): "the C library",
    ("host_memory.py", "CDLL"): "the C library",
    ("jobs/guard.py", "CDLL"): "the C library",
    ("jobs/local.py", "os.execvpe"): "the command of a job of utils/run.pl, as the script gives it",
    ("jobs/local.py", "os.popen"): "nvidia-smi -L",
    ("jobs/retry.py", "os.spawnvp"): "the runner that the user names",
    ("kernels.py", "import_module"): "modules of pykaldist, by their files",
    ("cli/_completion.py", "import_module"): "a verb's module, by its file",
    ("hmm/alignments/corpus_jobs.py", "subprocess.Popen"): "the command of --cmd, with words of our own, without a shell",
    ("hmm/import_ali/sources/__init__.py", "import_module"): "modules of that folder, by their files",
    ("options.py", "import_module"): "modules of pykaldist, by their files",
    ("parallel/fabric/mpi.py", "CDLL"): "the MPI that is loaded already",
    ("parallel/launch/launcher.py", "subprocess.Popen"): "mpiexec or srun, with the user's command line, without a shell",
    ("parallel/launch/on_ray.py", "subprocess.Popen"): "this Python, with the command line of a process of the job, in a task of Ray",
    ("parallel/launch/rendezvous.py", "subprocess.Popen"): "this Python, with the server by which a step of srun meets",
    ("parallel/launch/rendezvous_server.py", "subprocess.Popen"): "scancel, for a step of srun whose MPI aborts",
    ("parallel/launch/supervisor.py", "CDLL"): "the C library",
    ("parallel/launch/supervisor.py", "subprocess.Popen"): "the command that mpiexec or srun has been given for a process",
    ("parallel/strategies/base/registry.py", "import_module"): "a strategy's module, by its file",
    ("scheduling.py", "CDLL"): "the C library",
    ("score/sclite.py", "subprocess.run"): "NIST's hubscr.pl, in a folder of ours, with names of files that a shell leaves as they are",
    ("score/score_dir.py", "subprocess.run"): "the filters of a recipe, which the user has started",
    ("serve/tour.py", "subprocess.Popen"): "this Python, with a verb of pykaldist",
    ("serve/tour.py", "subprocess.run"): "this Python, with a verb; a player of audio on PATH, with a file of the user's experiment",
    ("setup_venv.py", "subprocess.Popen"): "pip or uv, to make .venv",
    ("setup_venv.py", "subprocess.run"): "pip, which is asked for its configuration",
    ("study/verbs.py", "subprocess.Popen"): "this Python, with a verb of pykaldist",
    ("train/folder.py", "subprocess.run"): "git describe, in the checkout of pykaldist",
    ("train/measure.py", "subprocess.run"): "mpiexec with this Python, to measure an exchange",
}


def dotted(node: ast.expr, renamed: dict[str, str]) -> str:
    """The dotted name of what a node refers to, by the module's own name; `?` stands for what is computed."""
    if isinstance(node, ast.Name):
        return renamed.get(node.id, node.id)
    return f"{dotted(node.value, renamed)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def found_in(source: str) -> set[str]:
    """What a source names that could run what is read, or unpack it anywhere."""
    tree, found, renamed = ast.parse(source), set(), {}
    archives = re.search(r"import (tarfile|zipfile)", source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {f"import {name}" for name in {alias.name.partition(".")[0] for alias in node.names} & MODULES}
            renamed |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"import {name}" for name in {str(node.module).partition(".")[0]} & MODULES}
            renamed |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted(node, renamed)
            last = name.rpartition(".")[2]
            found |= {name} if name in RUNS or PROGRAMS.fullmatch(name) or name in ("torch.jit.load", "torch.hub.load") else set()
            found |= {last} & NAMES
        elif isinstance(node, ast.Call):
            name, given = dotted(node.func, renamed), {one.arg: one.value for one in node.keywords}
            if name in WITH:
                option, value = WITH[name]
                constant = given.get(option)
                found |= {name} if not (isinstance(constant, ast.Constant) and constant.value is value) else set()
            elif isinstance(given.get("allow_pickle"), ast.Constant) and given["allow_pickle"].value:  # type: ignore[attr-defined]
                found.add("allow_pickle")
            found |= {"shell="} & {f"{option}=" for option in given}
            unpacks = name.endswith(".extractall") or (name.endswith(".extract") and archives)
            found |= {"extract without a filter"} if unpacks and "filter" not in given else set()
    return found


def test_nothing_that_is_read_is_run() -> None:
    found = {(path.relative_to(PACKAGE).as_posix(), what) for path in PACKAGE.rglob("*.py")
             for what in found_in(path.read_text(encoding="utf-8"))}
    assert sorted(found - set(ALLOWED)) == [], "what could run data needs a reason in ALLOWED, and a sentence in SECURITY.md"
    assert sorted(set(ALLOWED) - found) == [], "no longer there"


@pytest.mark.parametrize(("source", "what"), [
    ("import pickle", "import pickle"), ("from pickle import loads", "import pickle"), ("import yaml as y", "import yaml"),
    ("import multiprocessing.shared_memory", "import multiprocessing"), ("eval(x)", "eval"), ("map(exec, lines)", "exec"),
    ("subprocess.run(x, shell=True)", "shell="), ("from subprocess import run as go\ngo(x)", "subprocess.run"),
    ("import os\nos.system(x)", "os.system"), ("from os import popen\npopen(x)", "os.popen"), ("os.spawnlp(0, x)", "os.spawnlp"),
    ("torch.load(x)", "torch.load"), ("torch.load(x, weights_only=False)", "torch.load"), ("torch.load(x, weights_only=y)", "torch.load"),
    ("from torch import load\nload(x)", "torch.load"), ("torch.jit.load(x)", "torch.jit.load"),
    ("import numpy as np\nnp.load(x)", "numpy.load"), ("import numpy as np\nnp.load(x, allow_pickle=True)", "numpy.load"),
    ("np.lib.format.read_array(x, allow_pickle=True)", "allow_pickle"), ("tar.extractall(x)", "extract without a filter"),
    ("import tarfile\ntar.extract(x)", "extract without a filter"), ("shutil.unpack_archive(x)", "unpack_archive"),
    ("importlib.import_module(x)", "import_module"), ("ctypes.CDLL(x)", "CDLL"), ("comm.bcast(x)", "bcast"),
    ("dist.all_gather_object(x, y)", "all_gather_object"), ("socket.recv_pyobj()", "recv_pyobj")])
def test_the_walk_finds(source: str, what: str) -> None:
    assert what in found_in(source)


def test_the_walk_passes_what_is_harmless() -> None:
    assert not found_in("import json, torch, numpy as np\nmodel.eval()\njson.loads(x)\ntorch.load(x, weights_only=True)\n"
                        "np.load(x, allow_pickle=False)\nre.compile(x)\nexcept_ = subprocess.CalledProcessError\ntar.extractfile(x)")


def test_scripts_evaluate_nothing() -> None:
    root, evaluates = PACKAGE.parent, re.compile(r"^[^#\n]*(\beval\b|\bbash -c\b|\bsh -c\b)", re.MULTILINE)
    scripts = [path for folder in ("steps", "utils", "egs") for path in (root / folder).rglob("*.sh") if path.is_file()]
    assert len(scripts) > 40 and not [path for path in [*scripts, root / "path.sh"] if evaluates.search(path.read_text(encoding="utf-8"))]


def test_pipes_are_listed_and_none_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    (data / "wav.scp").write_text("a touch harmed; cat a.wav |\nb b.wav\nc | d.wav\ne echo '\x1b[2J\u202e' |  \n")
    (data / "feats.scp").write_text("a touch harmed |\nb raw.ark:7\nc | touch harmed\n")
    assert main(["list-pipes", "data"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["wav.scp a touch harmed; cat a.wav", r"wav.scp e echo '\x1b[2J\u202e'", "feats.scp a touch harmed",
                                "feats.scp c touch harmed"]
    assert "data: 2 pipes in wav.scp, which the stages that read audio run; 2 in other scp files, which are refused" in err
    assert list(tmp_path.iterdir()) == [data]
