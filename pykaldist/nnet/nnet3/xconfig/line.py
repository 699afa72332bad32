"""The lines of an xconfig file: the kind of a layer, and its fields.

`relu-layer name=tdnn1 dim=512 input=Append(-1, 0, 1)`: a value goes to the next `key=`, so it may have spaces in it; one with `=` in it
stands between double quotes. What follows a `#` is a comment. Source: the documentation of Kaldi's xconfig files, and its own examples.
"""

from __future__ import annotations

import re

QUOTED = re.compile(r'"([^"]*)"')
KIND = re.compile(r"[a-z][a-z0-9-]+")
STRANGE = re.compile(r'[^A-Za-z0-9.\-()@_=,/+:\s"\[\]]')
HIDDEN = "\0"  # for "=" between quotes


def parse_line(text: str) -> tuple[str, dict[str, str]] | None:
    """Parse a line into its kind and its fields; None for one that is empty. Raises ValueError that says what is wrong."""
    content = text.partition("#")[0].strip()
    if not content:
        return None
    if strange := STRANGE.search(content):
        raise ValueError(f"expected letters, digits and .-()[]@_=,/+:\", found {strange[0]!r}")
    if content.count('"') % 2:
        raise ValueError("expected double quotes in pairs")
    kind, _, rest = content.partition(" ")
    if not KIND.fullmatch(kind):
        raise ValueError(f"expected the kind of a layer first, such as relu-batchnorm-layer, found {kind[:40]!r}")
    rest = QUOTED.sub(lambda match: f" {match[1].replace('=', HIDDEN)} ", rest)
    first, *pairs = re.split(r"(?:^|\s+)([\w-]*)\s*=", " ".join(rest.split()))
    if first.strip():
        raise ValueError(f"expected fields as key=value, found {first.strip()[:40]!r}")
    fields: dict[str, str] = {}
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not re.match(r"[A-Za-z_]", key):
            raise ValueError(f"expected the name of a field before =, found {key!r}")
        if key in fields:
            raise ValueError(f"field {key}= is there twice")
        fields[key] = value.replace(HIDDEN, "=").strip()
    return kind, fields
