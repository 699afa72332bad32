"""Stores on other machines: the minibatches of a store on this one, read by parts, which are kept up to a limit."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import ssl
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.frames.block_sampler import BlockSampler
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Partition, Sampler, splice_statistics
from pykaldist.frames.shards import combine, subset
from pykaldist.frames.store import FrameStore, pack
from pykaldist.io import remote
from pykaldist.io.remote import PartCache, exists_remote, read_remote

CPU, SPLICE, PDFS = torch.device("cpu"), [-1, 0, 1], 4
OPTIONS = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "16", "--num-threads", "1", "--device", "cpu",
           "--schedule", "fixed", "--learn-rates", "0.01,0.01"]


class Parts(http.server.SimpleHTTPRequestHandler):
    """Answers requests for files and for parts of them, as object stores do; `broken`: answers to come that are errors."""

    def do_GET(self):
        self.server.asked.append(self.path)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.server.broken:
            self.server.broken -= 1
            self.send_error(503)
        elif wanted is None or not self.server.knows_range:
            super().do_GET()
        else:
            content = Path(self.translate_path(self.path)).read_bytes()[int(wanted[1]) : int(wanted[2]) + 1]
            self.send_response(206)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the folder `there`; parts are cached in the folder `cache`."""
    monkeypatch.setenv("PYKALDIST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "there").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Parts, directory=tmp_path / "there")) as found:
        found.asked, found.broken, found.knows_range = [], 0, True
        found.url = f"http://127.0.0.1:{found.server_port}"
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def secure(server, tmp_path, monkeypatch):
    """The server over TLS, with a certificate that no authority has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    remote._pool.cache_clear()
    yield f"https://127.0.0.1:{server.server_port}", certificate
    remote._pool.cache_clear()


def make(path, names, dtype="float32", seed=0):
    rng = np.random.default_rng(sum(map(ord, "".join(names))) + seed)
    feats = {utt: rng.standard_normal((30 + 5 * n, 3), np.float32) for n, utt in enumerate(names)}
    pdfs = {utt: rng.integers(PDFS, size=len(f)) for utt, f in feats.items()}
    pack(feats, feats.__getitem__, pdfs.get, PDFS, path, dtype)
    return path


def inputs(store, size):
    plain = splice_statistics(store, SPLICE)
    shared = SharedFrames(store, CPU, (1, 1), group=size)
    shared.hold()
    arguments = (store, Partition(store, run=8 if size else 1), 0, 7, SPLICE, *plain, 3, CPU, shared)
    sampler = BlockSampler(*arguments, randomizer_size=size, block=8) if size else Sampler(*arguments)
    return [(m.inputs.clone(), m.targets.clone()) for m in sampler.epoch(0)]


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("size", [0, 40])
def test_a_remote_store_gives_the_minibatches_of_one_that_is_here(server, tmp_path, dtype, size):
    for name, utts in (("a", "ab"), ("b", "cde")):
        make(tmp_path / "there" / name, list(utts), dtype)
    combine(tmp_path / "there" / "both", [tmp_path / "there" / "a", tmp_path / "there" / "b"])
    combine(tmp_path / "here", [tmp_path / "there" / "a", tmp_path / "there" / "b"])
    combine(tmp_path / "one", [f"{server.url}/a", f"{server.url}/b"])
    combine(tmp_path / "two", [f"{server.url}/both"])  # shards of a remote store
    combine(tmp_path / "mixed", [f"{server.url}/a", tmp_path / "there" / "b"])
    expected = inputs(FrameStore(tmp_path / "here"), size)
    for name in ("one", "two", "mixed"):
        found = FrameStore(tmp_path / name)
        found.verify()
        assert found.remote and not list((tmp_path / name).rglob("*.bin"))
        for (a, b), (c, d) in zip(inputs(found, size), expected, strict=True):
            assert torch.equal(a, c) and torch.equal(b, d)
    subset(tmp_path / "part", FrameStore(tmp_path / "one"), ["b", "d"])
    subset(tmp_path / "own", FrameStore(tmp_path / "here"), ["b", "d"])
    assert torch.equal(inputs(FrameStore(tmp_path / "part"), size)[0][0], inputs(FrameStore(tmp_path / "own"), size)[0][0])


def test_a_network_is_trained_on_a_remote_store(server, tmp_path, capsys):
    for part, utts in (("train", "abcd"), ("dev", "efg")):
        make(tmp_path / "there/store" / part, list(utts))
    (tmp_path / "there/store/cmvn_opts").write_text("--norm-vars=true\n")
    assert main(["combine-stores", str(tmp_path / "here"), f"{server.url}/store"]) == 0
    assert (tmp_path / "here/cmvn_opts").read_text() == "--norm-vars=true\n" and not (tmp_path / "here/tree").exists()
    options = [*OPTIONS, "--randomizer-size", "40", "--randomizer-block", "10"]
    assert main(["train", *options, str(tmp_path / "here"), str(tmp_path / "one")]) == 0
    assert main(["train", *options, str(tmp_path / "there/store"), str(tmp_path / "two")]) == 0
    assert (tmp_path / "one/final.nnet").read_bytes() == (tmp_path / "two/final.nnet").read_bytes()


def test_a_store_over_tls_is_read_where_its_certificate_is_known(secure, tmp_path, monkeypatch):
    url, certificate = secure
    make(tmp_path / "there/a", "abc")
    monkeypatch.setattr("time.sleep", lambda _: None)
    for ask in (read_remote, exists_remote):
        with pytest.raises(UserError, match=r"manifest.json cannot be read .*certificate.*; for a certificate of your own set SSL_"):
            ask(f"{url}/a/manifest.json")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    remote._pool.cache_clear()
    combine(tmp_path / "found", [f"{url}/a"])
    for (a, b), (c, d) in zip(inputs(FrameStore(tmp_path / "found"), 40), inputs(FrameStore(tmp_path / "there/a"), 40), strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)


def test_parts_are_read_once_and_those_used_longest_ago_go_first(server, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "PART", 100)
    content = np.random.default_rng(0).bytes(1050)
    (tmp_path / "there/file").write_bytes(content)
    cache = PartCache(tmp_path / "cache", 350)
    for first, end in ((0, 250), (120, 130), (1000, 1050), (90, 110), (400, 700), (0, 1050)):
        assert cache.read(f"{server.url}/file", 1050, first, end) == content[first:end]
        assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*.part")) <= 350
    server.asked.clear()
    assert cache.read(f"{server.url}/file", 1050, 800, 1050) == content[800:] and server.asked == []
    cache.read(f"{server.url}/file", 1050, 900, 1000)
    cache.read(f"{server.url}/file", 1050, 0, 100)
    server.asked.clear()
    cache.read(f"{server.url}/file", 1050, 900, 1000)  # was used after 800
    assert server.asked == []


def test_parts_of_another_version_or_that_are_damaged_are_read_anew(server, tmp_path):
    (tmp_path / "there/file").write_bytes(b"0123456789")
    cache, url = PartCache(tmp_path / "cache", 1000), f"{server.url}/file"
    assert cache.read(url, 10, 0, 10, "one") == b"0123456789"
    (tmp_path / "there/file").write_bytes(b"abcdefghij")
    assert cache.read(url, 10, 2, 5, "one") == b"234" and cache.read(url, 10, 2, 5, "two") == b"cde"
    for part in (tmp_path / "cache").glob("*.part"):
        part.write_bytes(b"damaged" + part.read_bytes()[7:])
    assert cache.read(url, 10, 0, 10, "two") == b"abcdefghij"


def test_the_cache_is_looked_through_seldom_and_clears_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "PART", 10)
    content = np.random.default_rng(0).bytes(10000)
    (tmp_path / "there/file").write_bytes(content)
    folder, looks = tmp_path / "cache", []
    cache, look = PartCache(folder, 7000), Path.glob
    folder.mkdir()
    for name, age in (("old", 2 * remote.UNFINISHED_S), ("new", 0)):
        (folder / f".{name}.tmp").write_bytes(b"half")
        os.utime(folder / f".{name}.tmp", (time.time() - age,) * 2)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: looks.append(pattern) or look(path, pattern))
    for first in range(0, 10000, 10):  # 14 bytes each, with its CRC
        assert cache.read(f"{server.url}/file", 10000, first, first + 10) == content[first : first + 10]
    assert sum(path.stat().st_size for path in look(folder, "*.part")) <= 7000
    assert looks.count("*.part") <= 10000 // 10 * 14 // 70 + 1
    assert [path.name for path in look(folder, ".*.tmp")] == [".new.tmp"]


def test_a_remote_store_that_was_packed_again_is_noticed(server, tmp_path):
    make(tmp_path / "there/a", "abc")
    combine(tmp_path / "one", [f"{server.url}/a"])
    before = FrameStore(tmp_path / "one").features(0).copy()
    shutil.rmtree(tmp_path / "there/a")
    make(tmp_path / "there/a", "abc", seed=1)
    with pytest.raises(UserError, match="a was packed again, with another result"):
        FrameStore(tmp_path / "one").verify()
    combine(tmp_path / "one", [f"{server.url}/a"])
    store = FrameStore(tmp_path / "one")
    store.verify()
    assert not np.array_equal(store.features(0), before) and np.array_equal(store.features(0), FrameStore(tmp_path / "there/a").features(0))


def test_what_cannot_be_read_is_a_sentence(server, tmp_path, monkeypatch):
    (tmp_path / "there/file").write_bytes(b"0123456789")
    server.broken = 2  # a server that is overloaded is asked again
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert read_remote(f"{server.url}/file", 2, 5) == b"234"
    with pytest.raises(UserError, match="HTTP status 404"):
        read_remote(f"{server.url}/none")
    for url, words in ((f"{server.url}/file", "has 10 bytes or less, expected 20"), ("memory://none", "memory://none cannot be read"),
                       ("nothing://a/b", "nothing://a/b: Protocol not known.*expected an address such as https://")):
        with pytest.raises(UserError, match=words):
            read_remote(url, 0, 20)
    server.knows_range = False
    with pytest.raises(UserError, match="this server gives no parts of files"):
        read_remote(f"{server.url}/file", 2, 5)
    monkeypatch.setenv("PYKALDIST_CACHE_GB", "much")
    with pytest.raises(UserError, match="PYKALDIST_CACHE_GB is 'much', expected a number of GB"):
        remote.part_cache()


def test_other_file_systems_are_those_of_fsspec(tmp_path, monkeypatch):
    import fsspec

    monkeypatch.setenv("PYKALDIST_CACHE", str(tmp_path / "cache"))
    make(tmp_path / "store", ["a", "b"])
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "store"), "/bucket/store", recursive=True)
    assert exists_remote("memory://bucket/store/utts") and not exists_remote("memory://bucket/store/none")
    combine(tmp_path / "here", ["memory://bucket/store"])
    for (a, _), (b, _) in zip(inputs(FrameStore(tmp_path / "here"), 0), inputs(FrameStore(tmp_path / "store"), 0), strict=True):
        assert torch.equal(a, b)


def test_a_store_in_an_s3_bucket(tmp_path, monkeypatch):
    """A bucket of a local server that speaks S3's protocol."""
    for name, package in (("moto.server", "moto[server]"), ("s3fs", "s3fs")):
        pytest.importorskip(name, reason=f"{package} is not installed; pip install 'moto[server]' s3fs")
    import s3fs
    from moto.server import ThreadedMotoServer

    for name, value in (("PYKALDIST_CACHE", str(tmp_path / "cache")), ("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"),
                        ("AWS_DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    own = make(tmp_path / "store", ["a", "b"])
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        bucket = s3fs.S3FileSystem(endpoint_url=f"http://{host}:{port}")
        bucket.mkdir("bucket")
        for file in own.iterdir():
            bucket.put(str(file), f"bucket/store/{file.name}")
        assert exists_remote("s3://bucket/store/utts") and not exists_remote("s3://bucket/store/none")
        combine(tmp_path / "here", ["s3://bucket/store"])
        for (a, _), (b, _) in zip(inputs(FrameStore(tmp_path / "here"), 0), inputs(FrameStore(own), 0), strict=True):
            assert torch.equal(a, b)
        with pytest.raises(UserError, match="s3://bucket/none"):
            read_remote("s3://bucket/none", 0, 20)
    finally:
        server.stop()
