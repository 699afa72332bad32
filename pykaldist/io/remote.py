"""Files on servers and in object stores, of which parts are read: over HTTP by urllib3, all else by fsspec and the package for it.

    https://host/path   s3://bucket/path (s3fs)   gs://bucket/path (gcsfs)   and what else fsspec knows

Parts that were read stay in a folder of this machine, up to a limit; the ones that were used longest ago go first. The folder is
$PYKALDIST_CACHE, else ~/.cache/pykaldist; the limit in GB is $PYKALDIST_CACHE_GB, else 10. Processes of a machine share it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError

PART = 1 << 20  # bytes
RETRIES = 5
UNFINISHED_S = 3600.0  # age of a part that nobody writes any more
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # that fsspec wants


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address such as https://host/path."""
    return "://" in os.fspath(path)


def read_remote(url: str, first: int = 0, end: int | None = None) -> bytes:
    """The bytes `first` to `end` - 1 of a remote file, or all; raises UserError where there are none."""
    if url.startswith(("http://", "https://")):
        found = _read_http(url, first, end)
    else:
        filesystem, path = _filesystem(url)
        try:
            found = filesystem.cat_file(path, start=first, end=end)
        except Exception as error:  # those of all kinds of file systems
            why = str(error) or type(error).__name__
            raise UserError(f"{url} cannot be read ({why}); look at the address and at who may read it.") from error
    if end is not None and len(found) != end - first:
        raise UserError(f"{url} has {first + len(found)} bytes or less, expected {end}; it was changed or is cut.")
    return found


def exists_remote(url: str) -> bool:
    """Whether there is a remote file."""
    if not url.startswith(("http://", "https://")):
        filesystem, path = _filesystem(url)
        return bool(filesystem.exists(path))
    response = _request("HEAD", url, {})
    if response.status not in (200, 403, 404):  # an object store says 403 where one may not list what there is
        raise UserError(f"{url} cannot be read (HTTP status {response.status}); look at the address and at who may read it.")
    return bool(response.status == 200)


def _read_http(url: str, first: int, end: int | None) -> bytes:
    response = _request("GET", url, {} if end is None else {"Range": f"bytes={first}-{end - 1}"})
    if end is not None and response.status == 200:
        raise UserError(f"{url}: this server gives no parts of files (it does not know Range); use another, or copy the store.")
    if response.status not in (200, 206):
        raise UserError(f"{url} cannot be read (HTTP status {response.status}); look at the address and at who may read it.")
    return bytes(response.data)


def _request(method: str, url: str, headers: dict[str, str]) -> Any:
    """A server's answer. Raises UserError where there is none."""
    import urllib3

    try:
        return _pool().request(method, url, headers=headers)
    except urllib3.exceptions.HTTPError as error:
        if isinstance(getattr(error, "reason", error), urllib3.exceptions.SSLError):
            raise UserError(f"{url} cannot be read ({error}); for a certificate of your own set SSL_CERT_FILE to its file.") from error
        raise UserError(f"{url} cannot be read ({error}); look at the address and at the network.") from error


@functools.cache
def _pool() -> Any:
    import urllib3

    return urllib3.PoolManager(retries=urllib3.Retry(RETRIES, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504),
                                                     raise_on_status=False), timeout=urllib3.Timeout(connect=10, read=60))


@functools.cache
def _file_system_of(protocol: str, url: str) -> Any:
    import fsspec

    try:
        return fsspec.filesystem(protocol)
    except ImportError as error:
        package = PACKAGES.get(protocol)
        raise UserError(f"{url}: {error}" + (f"; run pip install {package}." if package else ".")) from error
    except ValueError as error:
        raise UserError(f"{url}: {error}; expected an address such as https://host/store, s3://bucket/store or gs://bucket/store.") \
            from error


def _filesystem(url: str) -> tuple[Any, str]:
    filesystem = _file_system_of(url.partition("://")[0], url)
    return filesystem, filesystem._strip_protocol(url)


class PartCache:
    """The parts of remote files that lie in a folder, up to about `limit` bytes of them.

    A part has its CRC behind it, and is read anew where that does not fit. A process looks through the folder when it has written a
    hundredth of the limit since, so that a part costs the same however many there are; for each process so much more may lie there.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit, self._writing = folder, limit, threading.Lock()
        self._room = 0  # bytes that may be written before the folder is looked through again

    def read(self, url: str, size: int, first: int, end: int, version: str = "") -> bytes:
        """The bytes `first` to `end` - 1 of a file of `size` bytes; `version`: another one's parts are not taken for this one's."""
        numbers = range(first // PART, -(-end // PART))
        whole = b"".join(self._part(url, number, min(PART, size - number * PART), version) for number in numbers)
        return whole[first - numbers.start * PART : end - numbers.start * PART]

    def _part(self, url: str, number: int, size: int, version: str) -> bytes:
        """A part of a file, from the folder or from its server."""
        name = hashlib.blake2b(f"{url} {number} {version}".encode(), digest_size=16).hexdigest()
        path = self.folder / f"{name}.part"
        with suppress(OSError):
            kept = path.read_bytes()
            found, crc = kept[:size], kept[size:]
            if crc == _crc(found):
                os.utime(path)  # used now
                return found
        found = read_remote(url, number * PART, number * PART + size)
        with self._writing:
            self._make_room(size + len(_crc(b"")))
            written = self.folder / f".{name}.{os.getpid()}.tmp"
            written.write_bytes(found + _crc(found))
            os.replace(written, path)  # not synced: the CRC says whether it is whole
        return found

    def _make_room(self, size: int) -> None:
        """Remove the parts that were used longest ago, until there is room for so many bytes and for some that follow."""
        self._room -= size
        if self._room >= 0:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for unfinished in self.folder.glob(".*.tmp"):  # of a process that was killed
            with suppress(OSError):
                if time.time() - unfinished.stat().st_mtime > UNFINISHED_S:
                    unfinished.unlink()
        parts = []
        for path in self.folder.glob("*.part"):
            with suppress(OSError):  # another process has removed it
                state = path.stat()
                parts.append((state.st_mtime_ns, state.st_size, path))
        total, self._room = sum(one for _, one, _ in parts), max(0, self.limit // 100 - size)
        for _, one, path in sorted(parts):
            if total + size + self._room <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= one


def _crc(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")


def beside(url: str, path: str) -> str:
    """The address of a path that is relative to a remote folder; of an address, itself."""
    protocol, _, rest = url.partition("://")
    return path if is_remote(path) else f"{protocol}://{posixpath.normpath(f'{rest}/{path}')}"


def cache_folder() -> Path:
    """The folder of this machine in which parts of remote files are kept."""
    return Path(os.environ.get("PYKALDIST_CACHE") or Path.home() / ".cache" / "pykaldist")


def part_cache() -> PartCache:
    """The cache of this machine's user; raises UserError where its limit is no number."""
    text = os.environ.get("PYKALDIST_CACHE_GB") or "10"
    try:
        limit = float(text) * 1e9
    except ValueError as error:
        raise UserError(f"PYKALDIST_CACHE_GB is {text!r}, expected a number of GB.") from error
    return PartCache(cache_folder(), int(limit))
