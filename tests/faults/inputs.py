"""Damaged inputs of every format that is read: those of tests/test_damage.py, as many as are wanted, and what was made of each.

A reader runs in a fork, so that one that crashes is counted, and the next damage comes. What it gave is compared with what it gives of the
sound file: the same; or, where a format has no checksum, one of the legal changes:

    other values    one number or word for another
    empty           nothing in it, gunzipped: an empty table
    fewer entries   a table whose last entries are gone; who joins tables counts what the other one lacks
    other entries   text that people or other programs write, with an entry of another length: a pronunciation without its last phone

or another shape, which is a silent change. Our own files have checksums: any difference is a silent change there.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import tempfile
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import test_damage
import torch
from faults import Trial

from pykaldist.errors import UserError

CHECKED = ("final.pt", "store/", "denlats/")  # our own formats
TEXT = ("dict/", "dict_silprob/", "ARPA", "words.ctm", "ctm_edits", "table.csv", "nemo.jsonl", "supervisions.jsonl", "ali text",
        "matrices text", "prons", "data/")  # that people or other programs write


def shape_of(value: Any, depth: int = 0) -> str:
    """What there is, without the numbers and the words."""
    if isinstance(value, np.ndarray):
        return f"array{value.shape}{value.dtype}"
    if isinstance(value, torch.Tensor):
        return f"tensor{tuple(value.shape)}{value.dtype}"
    if isinstance(value, dict):
        return f"dict{len(value)}[{','.join(sorted({shape_of(one, depth + 1) for one in value.values()}))}]"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"{type(value).__name__}{len(value)}[{','.join(shape_of(one, depth + 1) for one in value)}]"
    if isinstance(value, (str, bytes, int, float, bool, type(None), np.generic, Path)):
        return type(value).__name__
    fields = _fields(value)
    return type(value).__name__ if depth > 8 else f"{type(value).__name__}({','.join(f'{k}={shape_of(v, depth + 1)}' for k, v in fields)})"


def values_of(value: Any, sink: Any, depth: int = 0) -> None:
    """Everything in it, into a checksum."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous().numpy()
    if isinstance(value, np.ndarray):
        sink.update(str(value.dtype).encode() + (b"".join(str(v).encode() for v in value.ravel()) if value.dtype == object
                                                 else np.ascontiguousarray(value).tobytes()))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            sink.update(str(key).encode() + b"\0")
            values_of(value[key], sink, depth + 1)
    elif isinstance(value, (list, tuple)):
        for one in value:
            values_of(one, sink, depth + 1)
    elif isinstance(value, (set, frozenset)):
        sink.update(str(sorted(map(str, value))).encode())
    elif isinstance(value, (str, bytes, int, float, bool, type(None), np.generic, Path)):
        sink.update(repr(value).encode() + b"\0")
    elif depth < 9:
        for name, one in _fields(value):
            sink.update(name.encode() + b"\0")
            values_of(one, sink, depth + 1)


def _fields(value: Any) -> list[tuple[str, Any]]:
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            with contextlib.suppress(AttributeError):
                found[name] = getattr(value, name)
    return sorted((name, one) for name, one in found.items() if not callable(one))


def content_of(value: Any) -> tuple[str, str, frozenset[str]]:
    """Checksums: of the shape, of the values, and of each entry of a table."""
    entries = value if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return hashlib.blake2b(shape_of(value).encode(), digest_size=10).hexdigest(), _digest(value), frozenset(map(_digest, entries))


def _digest(value: Any) -> str:
    sink = hashlib.blake2b(digest_size=10)
    values_of(value, sink)
    return sink.hexdigest()


def legal(name: str, content: bytes, found: tuple[str, str, frozenset[str]], sound: tuple[str, str, frozenset[str]]) -> str:
    """The legal change, of those above, that this is; empty where it is none."""
    if name.startswith(CHECKED):
        return ""
    with contextlib.suppress(OSError, EOFError, zlib.error):
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    if not content:
        return "empty"
    if found[0] == sound[0]:
        return "other values"
    return "fewer entries" if found[2] < sound[2] else "other entries" if name.startswith(TEXT) else ""


def samples(base: Path) -> dict[str, test_damage.Sample]:
    found = {}
    for make in (test_damage.language, test_damage.archives, test_damage.sources, test_damage.networks, test_damage.speech):
        (base / make.__name__).mkdir(parents=True)
        found |= make(base / make.__name__)
    return found


def tried(name: str, sample: test_damage.Sample, content: bytes, sound: tuple[str, str, frozenset[str]]) -> Trial:
    """One damage."""
    trial = Trial("inputs", name)
    sample.path.write_bytes(content)
    try:
        with test_damage.limits():
            found = content_of(sample.read())
    except UserError as error:
        text = str(error)
        named = sample.path.name in text or str(sample.path.parent) in text
        trial.outcome, trial.said = ("sentence" if named and "\n" not in text else "mute"), text[:300]
    except test_damage.TooSlowError:
        trial.outcome = "hang"
    except BaseException:
        trial.outcome, trial.said = "traceback", traceback.format_exc()[-600:]
    else:
        if found == sound:
            trial.outcome = "survived"
        elif kind := legal(name, content, found, sound):
            trial.outcome, trial.kind = "survived", kind
        else:
            trial.outcome, trial.said = "silent", "another shape"
    return trial


def campaign(seed: int, each: int, folder: str | None = None) -> Iterator[Trial]:
    """`each` damages of every format."""
    with tempfile.TemporaryDirectory(dir=folder) as base:
        for name, sample in samples(Path(base)).items():
            content = sample.path.read_bytes()
            sound = content_of(sample.read())
            damages = list(test_damage.damages(content, zlib.crc32(f"{seed} {name}".encode()), each))
            yield from _in_forks(name, sample, damages, content, sound)
            sample.path.write_bytes(content)


def _in_forks(name: str, sample: test_damage.Sample, damages: list[bytes], content: bytes,
              sound: tuple[str, str, frozenset[str]]) -> Iterator[Trial]:
    at = 0
    while at < len(damages):
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(reader)
                with open(writer, "w", encoding="utf-8") as stream, open(os.devnull, "w") as nothing:
                    os.dup2(nothing.fileno(), 2)  # warnings of skipped utterances
                    for damage in damages[at:]:
                        one = None if damage == content else tried(name, sample, damage, sound)
                        stream.write(json.dumps(None if one is None else vars(one)) + "\n")
                        stream.flush()
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader, encoding="utf-8") as stream:
            for line in stream:
                at += 1
                if (fields := json.loads(line)) is not None:
                    yield Trial(**{**fields, "where": sample.path.name, "k": at})
        _, status = os.waitpid(pid, 0)
        if at < len(damages):
            at += 1
            yield Trial("inputs", name, sample.path.name, at, outcome="traceback", status=status, said=f"the process ended ({status})")
