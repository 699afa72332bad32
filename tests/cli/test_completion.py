"""What shells complete: in a bash and a zsh, by the script that is made from the parsers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pykaldist.cli import main, verbs
from pykaldist.cli._completion import bash, options_of, zsh

SOME = {name: text for name, text in verbs().items() if name in ("align", "export", "completion", "doctor", "watch")}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "pykaldist"
    path.write_text(bash(SOME))
    return path


@pytest.mark.parametrize(("line", "expected"), [
    (["w"], {"watch"}), ([""], set(SOME)), (["align", "--k"], {"--kind"}), (["align", "--kind", ""], {"mfcc", "plp", "fbank"}),
    (["align", "x", "--formats", "te"], set()), (["watch", "--serve", "t"], {"true"}), (["doctor", "--j"], {"--json"}),
    (["export", "exp/dnn", "--to", "v"], {"vosk"}), (["align", "exp/tri"], set()), (["none", "--x"], set())])
def test_bash_completes(script: Path, line: list[str], expected: set[str]) -> None:
    words = " ".join(f"'{word}'" for word in ["pykaldist", *line])
    command = f'source "$1"; COMP_WORDS=({words}); COMP_CWORD={len(line)}; _pykaldist; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", command, "bash", str(script)], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected and not done.stderr


def test_zsh_takes_the_script(tmp_path: Path) -> None:
    """Its syntax where there is a zsh; quotes and brackets of help texts, anywhere."""
    text = zsh(SOME)
    assert "--kind[features that the model was trained on]:value:(mfcc plp fbank)" in text and "--json[print JSON" in text
    (tmp_path / "_pykaldist").write_text(text)
    if (program := shutil.which("zsh")) is not None:
        subprocess.run([program, "-n", str(tmp_path / "_pykaldist")], check=True)


def test_every_option_is_there_once() -> None:
    names = [one.name for one in options_of("align")]
    assert len(names) == len(set(names)) and {"--help", "--lang", "--beam"} <= set(names)


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_verb_is_completed(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    made = capsys.readouterr().out
    assert all(f"    {verb})" in made for verb in verbs())
    if shell == "bash":
        (tmp_path / "script").write_text(made)
        subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True)
