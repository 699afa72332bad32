"""Fetching: from a server that breaks off, damages and ignores ranges; of a commit; what the user has is never replaced."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io.corpora import fetch
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives, fetch_git


@dataclass
class Server:
    """A web server of `files`, with the faults of a bad one; `asked` has what was asked for: path and range."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)  # bytes that the next answers bring, each of them less than it announces
    ignores_ranges: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            state.asked.append((name, wanted))
            content, start = state.files.get(name), 0
            if content is None:
                self.send_error(404, "no such file")
                return
            if wanted and not state.ignores_ranges:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_error(416, "no such range")
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: state.breaks_after.pop(0) if state.breaks_after else None])

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        state.address = f"http://127.0.0.1:{httpd.server_port}"
        yield state
        httpd.shutdown()


def tarball(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:  # type: ignore[call-overload]  # typed for literal modes; this one is a parameter
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def deb(files: dict[str, bytes], compress: Callable[[bytes], bytes] = lzma.compress, suffix: str = ".xz") -> bytes:
    """A Debian package, by deb(5); its first members have odd sizes, so that padding follows."""
    result = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0"), ("control.tar.xz", b"x"), (f"data.tar{suffix}", compress(tarball(files, "w:")))):
        result += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
    return result


def archive(server: Server, name: str, content: bytes, into: str = ".") -> Archive:
    server.files[name] = content
    return Archive((f"{server.address}/{name}",), len(content), hashlib.sha256(content).hexdigest(), into)


NOISE = bytes(range(256)) * 40


def made(target: Path) -> dict[str, bytes]:
    return {p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*") if p.is_file() and p.name != fetch.MARK}


def test_archives_from_a_server(server: Server, tmp_path: Path) -> None:
    one = archive(server, "a.tar.gz", tarball({"a/x.wav": b"one", "../../escaped": b"evil", "/absolute": b"evil"}), "sub")
    two = archive(server, "b.deb", deb({"./usr/share/x": b"two"}))
    three = archive(server, "c.deb", deb({"./usr/share/y": b"three"}, gzip.compress, ".gz"))
    target = tmp_path / "recipe/corpus"
    for _ in range(2):  # again, over what is there
        fetch_archives([one, two, three], target)
        assert made(target) == {"sub/a/x.wav": b"one", "usr/share/x": b"two", "usr/share/y": b"three"}
    assert [p.name for p in target.parent.iterdir()] == ["corpus"] and not list(tmp_path.rglob("escaped"))
    assert (target / fetch.MARK).read_text().splitlines()[0] == f"{one.sha256}  a.tar.gz"


def test_a_download_that_breaks_off_goes_on(server: Server, tmp_path: Path) -> None:
    content = tarball({"x": NOISE}, "w:")
    server.breaks_after = [5000, 2000]
    fetch_archives([archive(server, "a.tar", content)], tmp_path / "corpus")
    assert server.asked == [("a.tar", None), ("a.tar", "bytes=5000-"), ("a.tar", "bytes=7000-")]
    assert made(tmp_path / "corpus") == {"x": NOISE}


def test_the_next_run_goes_on_where_one_was_stopped(server: Server, tmp_path: Path) -> None:
    whole = archive(server, "whole.tar", tarball({"w": b"w"}, "w:"))
    one = archive(server, "a.tar", tarball({"x": NOISE}, "w:"))
    server.breaks_after = [len(server.files["whole.tar"]), 5000] + [0] * fetch.BREAKS
    with pytest.raises(Unreachable, match=r"broke off after 5000 of \d+ bytes .*; they are kept, and the next run goes on"):
        fetch_archives([whole, one], tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    server.asked.clear()
    fetch_archives([whole, one], tmp_path / "corpus")
    assert server.asked == [("a.tar", "bytes=5000-")] and made(tmp_path / "corpus") == {"w": b"w", "x": NOISE}
    assert [p.name for p in tmp_path.iterdir()] == ["corpus"]


def test_a_server_that_ignores_ranges_is_read_from_the_start(server: Server, tmp_path: Path) -> None:
    server.ignores_ranges, server.breaks_after = True, [5000]
    fetch_archives([archive(server, "a.tar", tarball({"x": NOISE}, "w:"))], tmp_path / "corpus")
    assert [asked for _, asked in server.asked] == [None, "bytes=5000-"] and made(tmp_path / "corpus") == {"x": NOISE}


def test_a_flipped_bit_is_refused_and_fetched_again(server: Server, tmp_path: Path) -> None:
    content = tarball({"x": NOISE}, "w:")
    one = archive(server, "a.tar", content)
    server.files["a.tar"] = content[:3000] + bytes([content[3000] ^ 1]) + content[3001:]
    with pytest.raises(Unreachable, match=f"a.tar has the SHA-256 [0-9a-f]+, expected {one.sha256}: it was damaged on the way"):
        fetch_archives([one], tmp_path / "corpus")
    assert not list(tmp_path.rglob("*.part")) and not (tmp_path / "corpus").exists()
    server.breaks_after = [5000] + [0] * fetch.BREAKS
    with pytest.raises(Unreachable, match="broke off"):
        fetch_archives([one], tmp_path / "corpus")
    server.files["a.tar"], server.asked = content, []  # what the damaged part continues to is wrong too: from the start
    fetch_archives([one], tmp_path / "corpus")
    assert [asked for _, asked in server.asked] == ["bytes=5000-", None] and made(tmp_path / "corpus") == {"x": NOISE}


def test_other_size_other_address_and_no_checksum(server: Server, tmp_path: Path) -> None:
    one = archive(server, "a.tar", tarball({"x": NOISE}, "w:"))
    server.files["longer.tar"] = server.files["a.tar"] + b"more"
    missing, longer = f"{server.address}/none.tar", f"{server.address}/longer.tar"
    with pytest.raises(Unreachable, match=r"none\.tar cannot be reached \(no such file\); .*longer\.tar has \d+ bytes, expected \d+"):
        fetch_archives([Archive((missing, longer), one.size, one.sha256)], tmp_path / "corpus")
    fetch_archives([Archive((missing, longer, *one.urls), one.size, one.sha256)], tmp_path / "corpus")
    fetch_archives([Archive(one.urls)], tmp_path / "unchecked")
    assert made(tmp_path / "corpus") == made(tmp_path / "unchecked") == {"x": NOISE}
    with pytest.raises(Unreachable, match="cannot be reached"):
        fetch_archives([Archive(("http://127.0.0.1:9/a.tar.gz",))], tmp_path / "other")


@pytest.mark.parametrize(("name", "content"), [("cut.tar.gz", tarball({"x": NOISE})[:200]), ("page.tar.gz", b"<html>no such file</html>"),
                                               ("cut.deb", deb({"x": NOISE})[:-200]), ("empty.deb", deb({})[:128]),
                                               ("empty.tar.gz", tarball({}))],
                         ids=lambda value: value if isinstance(value, str) else "")  # a gzip header holds the time: workers would differ
def test_no_sound_archive_leaves_nothing(server: Server, tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(Unreachable, match="no sound archive"):
        fetch_archives([archive(server, name, content)], tmp_path / "corpus")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()] and not (tmp_path / "corpus").exists()


def test_what_no_fetch_has_made_is_left_alone(server: Server, tmp_path: Path) -> None:
    one = archive(server, "a.tar", tarball({"x": NOISE}, "w:"))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_text("ten years")
    (tmp_path / "link").symlink_to(mine)
    for target in (mine, tmp_path / "link", mine / "thesis"):
        with pytest.raises(UserError, match="is there already, and no fetch has made it, so it is left as it is"):
            fetch_archives([one], target)
    assert (mine / "thesis").read_text() == "ten years" and server.asked == []
    (tmp_path / "empty").mkdir()
    fetch_archives([one], tmp_path / "empty")
    assert made(tmp_path / "empty") == {"x": NOISE}


def test_git(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    identity = ["-c", "user.name=x", "-c", "user.email=x@y"]

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=source, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for text in ("hello", "changed"):
        (source / "file").write_text(text)
        git("add", "file")
        git(*identity, "commit", "-qm", text)
    first = git("rev-parse", "HEAD~")
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    fetch_git(source.as_uri(), first, tmp_path / "corpus")
    assert (tmp_path / "corpus/file").read_text() == "hello"
    with pytest.raises(Unreachable, match="git failed"):
        fetch_git((tmp_path / "nowhere").as_uri(), first, tmp_path / "other")
    with pytest.raises(UserError, match="no fetch has made it"):
        fetch_git(source.as_uri(), first, source)


def test_no_git_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable, match="there is no git"):
        fetch_git("https://127.0.0.1:9/x", "0" * 40, tmp_path / "corpus")


def fake_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, needs_lists: bool) -> Path:
    """An apt-get that knows one package, at `url`; with `needs_lists` only after an update of lists of its own."""
    tools = tmp_path / "tools"
    tools.mkdir()
    knows = '[ -f "${2#*=}/list" ]' if needs_lists else "true"
    (tools / "apt-get").write_text(f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$*" in
  *update) touch "${{2#*=}}/list" ;;
  *) if {knows}; then echo "'{url}' x.deb 10 SHA256:0"; else echo "E: Unable to locate package x" >&2; exit 100; fi ;;
esac
""")
    (tools / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return tmp_path / "asked"


@pytest.mark.parametrize("needs_lists", [False, True])
def test_a_package_is_where_apt_says_it_is(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_lists: bool) -> None:
    one = archive(server, "pool/x_1.deb", deb({"./usr/share/x": b"here"}))
    asked = fake_apt(tmp_path, monkeypatch, one.urls[0], needs_lists)
    fetch_archives([Archive(("apt:x",), one.size, one.sha256)], tmp_path / "corpus")
    assert (tmp_path / "corpus/usr/share/x").read_bytes() == b"here"
    assert ("update" in asked.read_text()) == needs_lists


def test_a_package_of_another_version_or_without_apt(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = archive(server, "x_1.deb", deb({"./x": b"one"})), archive(server, "x_2.deb", deb({"./x": b"two"}))
    fake_apt(tmp_path, monkeypatch, other.urls[0], needs_lists=False)
    with pytest.raises(Unreachable, match="is another version"):
        fetch_archives([Archive(("apt:x",), one.size, one.sha256)], tmp_path / "corpus")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(Unreachable, match="there is no apt-get"):
        fetch_archives([Archive(("apt:x",), one.size, one.sha256)], tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_what_was_added_to_a_fetched_folder_is_left_alone(server: Server, tmp_path: Path) -> None:
    one, target = archive(server, "a.tar", tarball({"sub/x": NOISE, "y": b"y"}, "w:")), tmp_path / "corpus"
    for change in (lambda: (target / "sub/notes").write_text("mine"), lambda: (target / "sub/link").symlink_to("/"),
                   lambda: (target / "y").write_text("edited")):
        fetch_archives([one], target)
        change()
        before = made(target)
        with pytest.raises(UserError, match=r"corpus/(sub/notes|sub/link|y) is there already, and no fetch has made it, so it is left"):
            fetch_archives([one], target)
        assert made(target) == before
        shutil.rmtree(target)
    fetch_archives([one], target)
    (target / "y").unlink()  # that something is missing is why one fetches again
    fetch_archives([one], target)
    assert made(target) == {"sub/x": NOISE, "y": b"y"}


def test_the_old_folder_comes_back_where_the_new_one_cannot_stand(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, target, real = archive(server, "a.tar", tarball({"x": NOISE}, "w:")), tmp_path / "corpus", os.replace
    fetch_archives([one], target)

    def fails(source: str | Path, to: str | Path) -> None:
        if Path(source).name == "made":
            raise OSError(28, "No space left on device")
        real(source, to)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space"):
        fetch_archives([one], target)
    assert made(target) == {"x": NOISE}


def test_the_folder_of_downloads_is_nobody_elses(server: Server, tmp_path: Path) -> None:
    one, mine = archive(server, "a.tar", tarball({"x": NOISE}, "w:")), tmp_path / "mine"
    mine.mkdir()
    (tmp_path / ".fetch-corpus").symlink_to(mine)
    with pytest.raises(UserError, match=r"\.fetch-corpus is a link, where downloads are to be kept; remove it"):
        fetch_archives([one], tmp_path / "corpus")
    (tmp_path / ".fetch-corpus").unlink()
    (tmp_path / ".fetch-corpus").mkdir()
    (tmp_path / ".fetch-corpus/thesis").write_text("ten years")
    fetch_archives([one], tmp_path / "corpus")
    assert (tmp_path / ".fetch-corpus/thesis").read_text() == "ten years" and not list(mine.iterdir())


def test_a_kept_download_that_was_damaged_since_is_fetched_again(server: Server, tmp_path: Path) -> None:
    whole, one = archive(server, "whole.tar", tarball({"w": b"w"}, "w:")), archive(server, "a.tar", tarball({"x": NOISE}, "w:"))
    server.breaks_after = [len(server.files["whole.tar"])] + [0] * (fetch.BREAKS + 1)
    with pytest.raises(Unreachable):
        fetch_archives([whole, one], tmp_path / "corpus")
    kept = tmp_path / ".fetch-corpus/whole.tar"
    kept.write_bytes(kept.read_bytes()[:-1] + b"!")
    server.breaks_after = []
    fetch_archives([whole, one], tmp_path / "corpus")
    assert made(tmp_path / "corpus") == {"w": b"w", "x": NOISE}
