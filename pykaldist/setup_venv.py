"""Makes .venv from requirements.txt with this interpreter: by uv where it is installed, by pip where not, or where uv cannot.

`python -m pykaldist.setup_venv MADE_FROM NAMED`: utils/setup_venv.sh runs it with the interpreter that it chose; standard library only.
MADE_FROM and NAMED are what .venv is known by afterwards. What goes wrong is one sentence with its cure; the installer's own words are in
.venv.log.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_GLIBC = (2, 28)  # of the wheels' manylinux tags
LEAST_SPACE = 1.5  # GB of .venv with PyTorch's CPU build
DISK = f"6 GB with PyTorch's CUDA build ({LEAST_SPACE} GB with its CPU build)"
OWN = "make an environment of your own, and name its Python in PYKALDIST_PYTHON"
OTHER = "name another Python in PYKALDIST_SETUP_PYTHON"
UV_NAMES = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE"}
DOING = re.compile(r"^ *((?:Collecting|Downloading|Using|Processing|Installing|Resolved|Prepared) .*)", re.MULTILINE)


class SetupError(Exception):
    """The error of a set-up that cannot go on, as a sentence with its cure."""


def machine() -> dict[str, str]:
    """The properties of this machine that decide which wheels its interpreter can use."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or "another C library"
    except (ValueError, OSError):
        libc = "another C library (musl)"
    threads = " without the GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return {"system": platform.system(), "machine": platform.machine(), "libc": libc,
            "python": platform.python_implementation() + threads, "bits": str(8 * (sys.maxsize.bit_length() // 8 + 1))}


def check_machine(found: dict[str, str]) -> None:
    """Check that the wheels of requirements.txt are for this machine; raises SetupError where they are for others."""
    if (found["system"], found["machine"], found["bits"]) != ("Linux", "x86_64", "64"):
        raise SetupError(f"the packages of requirements.txt are for Linux on x86_64, and this is {found['system']} on {found['machine']} "
                         f"({found['bits']} bits); {OWN}.")
    if found["python"] != "CPython":
        raise SetupError(f"{sys.executable} is {found['python']}, and the packages of requirements.txt are for CPython; {OTHER}.")
    name, _, version = found["libc"].partition(" ")
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < OLDEST_GLIBC:
        raise SetupError(f"the packages of requirements.txt need glibc 2.28 or later, and this system has {found['libc']}; use a newer "
                         f"system (Debian 10, Ubuntu 20.04, RHEL 8 or later) or a container of one, or {OWN}.")


# What an installer's output means, the most telling first: a pattern, and the sentence; {0} is the pattern's first group.
CAUSES = [
    (r"No space left on device|Errno 28\b|os error 28\b", f"no space is left on the disk; set-up needs {DISK} in {{root}}, and while it "
     "runs the same in {tmp} (TMPDIR names another folder) and in the cache of pip or uv (PIP_NO_CACHE_DIR=1, UV_NO_CACHE=1)"),
    (r"Disk quota exceeded|Errno 122\b|os error 122\b", f"the disk quota is reached; set-up needs {DISK} in {{root}}"),
    (r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate", "the package index's certificate is not trusted here; name your site's bundle "
     "of certificates in PIP_CERT (SSL_CERT_FILE for uv)"),
    (r"Read-only file system|Permission denied: '?([^'\n]*)", "no permission to write {0}; clone the project where you may write"),
    (r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|Connection refused|ConnectTimeout|ProxyError|"
     r"Network is unreachable|No route to host|dns error|tcp connect error|error sending request|Could not connect",
     "no package index can be reached; check the network, name a proxy in HTTPS_PROXY or a mirror of PyPI in PIP_INDEX_URL "
     "(UV_DEFAULT_INDEX for uv), and run the same command again"),
    (r"ReadTimeout|Read timed out|IncompleteRead|Connection broken|Connection reset|operation timed out",
     "the download broke off; run the same command again, which goes on with what is in the cache"),
    (r"No matching distribution found for (\S+)|Because there (?:is|are) no versions? of (\S+)|"
     r"Because (\S+) (?:has no (?:usable )?wheels|was not found in)",
     "the package index has no {0} for Python {python}, or could not be reached; " + OTHER + ", or in PIP_INDEX_URL an index that has "
     "all of PyPI"),
    (r"ResolutionImpossible|conflicting dependencies", "the packages of requirements.txt exclude each other on Python {python}; " + OTHER),
    (r"\bKilled\b|MemoryError|Out of memory", "the installer ran out of memory; end other programs and run the same command again"),
]


def sentence(log: str, root: Path = ROOT) -> str:
    """The cause of a failure, as one sentence, from an installer's output."""
    for pattern, text in CAUSES:
        found = re.search(pattern, log)
        if found:
            group = next((g for g in found.groups() if g), str(root)).rstrip(".,:;")
            return text.format(group, root=root, tmp=os.environ.get("TMPDIR", "/tmp"), python="{}.{}".format(*sys.version_info))
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if re.match(r"error", line, re.IGNORECASE)), lines[-1] if lines else "no output")
    return f"the packages of requirements.txt could not be installed ({last.rstrip('.')})"


def pip_settings(listing: str) -> dict[str, str]:
    """The environment variables for uv that name the indices that pip is told to use; `listing` is the output of `pip config list`."""
    values: dict[str, list[str]] = {}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        try:
            values.setdefault(name.rpartition(".")[2], []).extend(str(ast.literal_eval(value)).split())
        except (ValueError, SyntaxError):
            continue
    found = {variable: " ".join(dict.fromkeys(values[name])) for name, variable in UV_NAMES.items() if values.get(name)}
    if {"UV_INDEX", "UV_FIND_LINKS"} & set(found):
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip looks at all of them
    return {name: value for name, value in found.items() if name not in os.environ}


class Installer:
    """Runs commands whose output goes to a log, with a line on the terminal that says how far they are."""

    def __init__(self, log: Path) -> None:
        self.log, self.start = log, time.monotonic()
        self.terminal = sys.stderr.isatty()

    def run(self, *words: str | os.PathLike[str], **env: str) -> bool:
        """Run a command; returns whether it succeeded."""
        with open(self.log, "a", encoding="utf-8") as stream:
            try:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env={**os.environ, **env})
            except OSError as error:
                print(f"error: {words[0]}: {error.strerror}", file=stream)
                return False
            try:
                while True:
                    try:
                        return process.wait(timeout=0.5 if self.terminal else 15) == 0
                    except subprocess.TimeoutExpired:
                        self.show()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
                if self.terminal:
                    print("\r\033[K", end="", file=sys.stderr, flush=True)

    def show(self) -> None:
        """Print what the installer last said that it does, cut to the terminal's width."""
        with open(self.log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(self.log) - 10000))
            said = DOING.findall(stream.read().decode(errors="replace"))
        text = f"setup_venv.sh: {time.monotonic() - self.start:.0f} s: {said[-1] if said else 'making a virtual environment'}"
        if self.terminal:
            print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
        else:
            print(text[:120], file=sys.stderr, flush=True)

    def by_uv(self, uv: str, venv: Path, requirements: Path) -> bool:
        """Make a venv by uv, with the package indices that pip is told to use."""
        shutil.rmtree(venv, ignore_errors=True)
        listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False).stdout
        made = self.run(uv, "venv", "--python", sys.executable, venv)
        return made and self.run(uv, "pip", "install", "--python", venv / "bin" / "python", "--only-binary", ":all:", "-r", requirements,
                                 **pip_settings(listing))

    def by_pip(self, venv: Path, requirements: Path) -> bool:
        """Make a venv by pip: its own, or that of this interpreter (Debian without python3-venv; pip 22.3 or later)."""
        shutil.rmtree(venv, ignore_errors=True)
        python = venv / "bin" / "python"
        pip: list[str | os.PathLike[str]] = [python, "-m", "pip"]
        if importlib.util.find_spec("ensurepip") is None or not self.run(sys.executable, "-m", "venv", venv):
            shutil.rmtree(venv, ignore_errors=True)
            if not self.run(sys.executable, "-m", "venv", "--without-pip", venv):
                return False
            pip = [sys.executable, "-m", "pip", "--python", python]
        return self.run(*pip, "install", "--disable-pip-version-check", "--progress-bar", "off", "--only-binary", ":all:", "-r",
                        requirements)


def make(made_from: str, named: str, root: Path = ROOT) -> None:
    """Make .venv; raises SetupError, and leaves none, where that cannot be."""
    check_machine(machine())
    venv, requirements, log = root / ".venv", root / "requirements.txt", root / ".venv.log"
    if Path(sys.prefix).resolve() == venv.resolve():
        raise SetupError(f"{sys.executable} is the Python of the .venv that is made anew; {OTHER}.")
    uv = shutil.which("uv")
    has_pip = any(map(importlib.util.find_spec, ("ensurepip", "pip")))
    if not uv and not (has_pip and importlib.util.find_spec("venv")):
        raise SetupError(f"{sys.executable} has no pip, or cannot make virtual environments; install them (Debian, Ubuntu: apt-get install "
                         f"python3-venv python3-pip), or uv, or {OTHER}.")
    free = shutil.disk_usage(root).free / 1e9
    if free < LEAST_SPACE:
        raise SetupError(f"{free:.1f} GB are free on the disk of {root}, and set-up needs {DISK}; free some, or clone it elsewhere.")
    log.write_text("", encoding="utf-8")
    installer = Installer(log)
    done = bool(uv) and installer.by_uv(str(uv), venv, requirements)
    if not done and uv and has_pip:
        print(f"setup_venv.sh: uv could not: {sentence(log.read_text(errors='replace'), root)}. Now with pip ...", file=sys.stderr)
        log.write_text("", encoding="utf-8")
    if not done and has_pip:
        done = installer.by_pip(venv, requirements)
    if not done:
        shutil.rmtree(venv, ignore_errors=True)
        raise SetupError(f"{sentence(log.read_text(errors='replace'), root)}. (The installer's own words: {log})")
    (venv / "made-from").write_text(f"{made_from}\n{named}\n", encoding="utf-8")
    log.unlink()


if __name__ == "__main__":
    try:
        made_from, named = sys.argv[1:3]
        make(made_from, named)
    except SetupError as error:
        sys.exit(f"setup_venv.sh: ERROR: {error}")
    except OSError as error:
        why = sentence(f"{error}") if error.errno in (28, 122, 13, 30) else str(error)
        sys.exit(f"setup_venv.sh: ERROR: {why}.")
    except KeyboardInterrupt:
        sys.exit("setup_venv.sh: interrupted; run the same command again.")
