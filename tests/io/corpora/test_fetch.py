"""Fetching: from a server, with stand-ins for apt-get and dpkg, from a repository; what breaks leaves nothing behind."""

from __future__ import annotations

import functools
import http.server
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykaldist.io.corpora.fetch import Unreachable, fetch_debs, fetch_git, fetch_tarball


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server of a folder: its address, and the folder."""
    folder = tmp_path / "www"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}", folder
        httpd.shutdown()


def tarball(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_tarball_from_a_server(server: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = server
    tarball(folder / "a.tar.gz", {"a/x.wav": b"one", "list.txt": b"two", "../../escaped": b"evil", "/absolute": b"evil"})
    target = tmp_path / "recipe/corpus"
    fetch_tarball(f"{address}/a.tar.gz", target)
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()) == ["a/x.wav", "list.txt"]
    assert not list(tmp_path.rglob("escaped"))
    fetch_tarball((folder / "a.tar.gz").as_uri(), target)  # again, over what is there
    assert [p.name for p in target.parent.iterdir()] == ["corpus"]


def test_failures_leave_nothing(server: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = server
    tarball(folder / "a.tar.gz", {"x": bytes(range(256)) * 100})
    (folder / "cut.tar.gz").write_bytes((folder / "a.tar.gz").read_bytes()[:200])
    (folder / "page.tar.gz").write_bytes(b"<html>no such file</html>")
    target = tmp_path / "recipe/corpus"
    for name, message in (("none", "cannot be reached"), ("cut", "no sound tarball"), ("page", "no sound tarball")):
        with pytest.raises(Unreachable, match=message):
            fetch_tarball(f"{address}/{name}.tar.gz", target)
        assert list((tmp_path / "recipe").iterdir()) == []
    with pytest.raises(Unreachable, match="cannot be reached"):
        fetch_tarball("http://127.0.0.1:9/a.tar.gz", target)


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """apt-get, which knows packages only after an update with lists of its own, and dpkg, on the path; and their record."""
    record, folder = tmp_path / "record", tmp_path / "bin"
    folder.mkdir()
    scripts = {
        "apt-get": f"""echo "apt-get $*" | sed 's#=/[^ ]*/#=#g' >> {record}
case "$*" in
  *Dir::State::lists=*update) test -d "${{2#*=}}/partial" && touch "${{2#*=}}/known" ;;
  *Dir::State::lists=*download*) test -f "${{2#*=}}/known" && touch one.deb two.deb ;;
  *) echo "E: Unable to locate package" >&2; exit 100 ;;
esac""",
        "dpkg": 'mkdir -p "$3/usr" && echo "$(basename "$2")" > "$3/usr/$(basename "$2").txt"',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return record


def test_debs_with_lists_of_our_own(stand_ins: Path, tmp_path: Path) -> None:
    fetch_debs(("one", "two"), tmp_path / "corpus")
    assert sorted(p.name for p in (tmp_path / "corpus/usr").iterdir()) == ["one.deb.txt", "two.deb.txt"]
    own = "apt-get -o Dir::State::lists=lists -o Dir::Cache=cache -o Debug::NoLocking=1"
    assert stand_ins.read_text().splitlines() == ["apt-get download one two", f"{own} update", f"{own} download one two"]


def test_apt_that_fails_is_quoted(stand_ins: Path, tmp_path: Path) -> None:
    (tmp_path / "bin/apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2; exit 100\n")
    with pytest.raises(Unreachable, match="apt-get failed: E: no network"):
        fetch_debs(("one",), tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_no_apt_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable, match="there is no apt-get"):
        fetch_debs(("one",), tmp_path / "corpus")


def test_git(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("hello")
    identity = ["-c", "user.name=x", "-c", "user.email=x@y"]
    for command in (["init", "-q"], ["add", "file"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=source, check=True)
    fetch_git(source.as_uri(), tmp_path / "corpus")
    assert (tmp_path / "corpus/file").read_text() == "hello"
    with pytest.raises(Unreachable, match="git failed"):
        fetch_git((tmp_path / "nowhere").as_uri(), tmp_path / "other")
