"""Archives that are made to do harm, or are damaged, are refused; nothing outside of the folder is made, and no device."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pykaldist.io.corpora import unpack as module
from pykaldist.io.corpora.unpack import UnsoundArchive, unpack

NOISE = bytes(range(256)) * 40


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", link: str = "", size: int | None = None,
           mode: int = 0o644) -> bytes:
    """Header and content of one member; `size` where the header is to tell another one than that of the content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def sparse(size: int, content: bytes) -> bytes:
    """A sparse file as GNU tar's pax headers have it: its length, and the list of what is not a hole."""
    info = tarfile.TarInfo("x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": f"{size}"}
    info.size = len(content)
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


def extended(header: bytes) -> bytes:
    """The header of a sparse file that says that a list of what is not a hole follows."""
    changed = bytearray(header)
    changed[482], changed[148:156] = 1, b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


def tar(*members: bytes) -> bytes:
    return b"".join(members) + bytes(1024)


def unpacked(content: bytes, tmp_path: Path) -> dict[str, bytes]:
    folder, archive = tmp_path / "in/here", tmp_path / "archive"
    folder.mkdir(parents=True)
    archive.write_bytes(content)
    try:
        unpack(archive, folder)
    finally:
        made = {path for path in tmp_path.rglob("*") if path not in (folder, folder.parent, archive)}
        assert all(folder in path.parents for path in made), "outside"
        assert all((path.is_file() or path.is_dir()) and not path.is_symlink() for path in made)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_regular_files_inside_are_made(tmp_path: Path) -> None:
    found = unpacked(tar(
        member("a/file", content=b"file"), member("../escaped", content=b"x"), member("a/../../escaped", content=b"x"),
        member(f"{tmp_path}/absolute", content=b"x"), member("folder/", tarfile.DIRTYPE), member("b/file", content=b"two"),
        member("link", tarfile.SYMTYPE, link=".."), member("link/through", content=b"in a folder of that name"),
        member("hard", tarfile.LNKTYPE, link="../../archive"), member("device", tarfile.CHRTYPE), member("block", tarfile.BLKTYPE),
        member("pipe", tarfile.FIFOTYPE), member("own", content=b"own", mode=0o6777)), tmp_path)
    assert found == {"a/file": b"file", "b/file": b"two", "link/through": b"in a folder of that name", "own": b"own"}
    assert (tmp_path / "in/here/own").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress], ids=["tar", "gz", "xz", "bz2"])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]) -> None:
    """Of zeros; of names; of sizes that the archive does not hold; of members."""
    monkeypatch.setattr(module, "ROOM", 1 << 19)
    monkeypatch.setattr(module, "LONGEST_HEADER", 1 << 16)
    monkeypatch.setattr(module, "MOST_MEMBERS", 100)
    zeros, size = bytes(2 << 20), 1 << 40
    bombs = [] if compress is bytes else [(tar(member("zeros", content=zeros)), "times as large as it is"),
                                          (tar(member("x")) + zeros, "unpacks to more than 50 times")]
    bombs += [(tar(member("x", size=size)), "times as large"), (tar(member("x", tarfile.GNUTYPE_SPARSE, size=size)), "times as large"),
              (tar(member("x", tarfile.XHDTYPE, size=size)), f"a header has {size} bytes"),
              (tar(member("x", tarfile.GNUTYPE_LONGNAME, size=1 << 20)), "a header has"),
              (tar(sparse(size, b"1\n0\n0\n")), "times as large"), (tar(sparse(1, b"99999999\n")), "not enough values"),
              (extended(member("x", tarfile.GNUTYPE_SPARSE)), "index out of range"),
              (tar(*[member(f"{number}", tarfile.GNUTYPE_LONGNAME, b"x") for number in range(2000)]), "recursion"),
              (tar(*[member(f"{number}") for number in range(101)]), "more than 100 members")]
    for number, (bomb, reason) in enumerate(bombs):
        with pytest.raises(UnsoundArchive, match=reason):
            unpacked(compress(bomb), tmp_path / str(number))
    assert unpacked(compress(tar(member("zeros", content=bytes(1000)))), tmp_path / "good") == {"zeros": bytes(1000)}


@pytest.mark.parametrize("name", ["file/below", "folder", ".", "x" * 300])
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsoundArchive):
        unpacked(tar(member("file", content=b"x"), member("folder/x", content=b"x"), member(name, content=b"x")), tmp_path)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress], ids=["gz", "xz", "bz2"])
def test_damage_within_a_compressed_tarball_is_found_without_a_checksum_of_ours(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """Wherever it is: cut short, or a bit flipped."""
    sound = compress(tar(member("x", content=NOISE), member("y", content=b"y")))
    assert unpacked(sound, tmp_path / "sound") == {"x": NOISE, "y": b"y"}
    for number, at in enumerate(range(12, len(sound), max(1, len(sound) // 16))):
        flipped = bytearray(sound)
        flipped[at] ^= 4
        for kind, damaged in (("flipped", bytes(flipped)), ("cut", sound[:at])):
            with pytest.raises(UnsoundArchive):
                unpacked(damaged, tmp_path / f"{kind}{number}")


def test_a_damaged_header_in_the_midst_is_found(tmp_path: Path) -> None:
    parts = [member("x", content=NOISE), member("y", content=b"y"), member("z", content=b"z")]
    damaged = bytearray(tar(*parts))
    damaged[len(parts[0]) + 3] ^= 1
    with pytest.raises(UnsoundArchive, match="bad checksum"):
        unpacked(bytes(damaged), tmp_path)


def test_what_follows_a_package_s_data_is_not_of_it(tmp_path: Path) -> None:
    data = gzip.compress(tar(member("x", content=b"x")))
    package = module.AR_MAGIC
    for name, content in (("debian-binary", b"2.0\n"), ("data.tar.gz", data), ("more", zlib.compress(NOISE))):
        package += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
    assert unpacked(package, tmp_path) == {"x": b"x"}
