"""The arithmetics of `--dtype`, and what a CPU must have for bfloat16.

bf16 means the same on a GPU and on a CPU: the factors of matrix products are bfloat16, and are summed up in float32. The parameters are
float32, and so are softmax and loss, sums over frames, gradients and the statistics of NG-SGD. On a CPU a product itself is rounded to
bfloat16, once, where PyTorch has no product with a wider result.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from pykaldist import deterministic
from pykaldist.errors import UserError

DTYPES = ("float32", "tf32", "bf16", "float64")
CPUINFO = Path("/proc/cpuinfo")
#: What multiplies bfloat16, and what a CPU without it may have in its place, by the names of /proc/cpuinfo and by their makers' names.
MULTIPLIES = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16"}
OTHERS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def arithmetic(name: str, device: torch.device) -> tuple[torch.dtype, torch.dtype]:
    """(type of parameters, type of factors of matrix products) for a `--dtype`. Sets how a GPU multiplies float32 in this process.

    Raises UserError where the device has not what the type needs.
    """
    if name == "tf32" and device.type != "cuda":
        raise UserError(f"--dtype tf32 needs a GPU; use float32 on {device}.")
    if name == "bf16" and device.type == "cpu":
        check_bf16()
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    dtype = torch.float64 if name == "float64" else torch.float32
    return dtype, torch.bfloat16 if name == "bf16" else dtype


def check_bf16() -> None:
    """Check that this process can multiply bfloat16 on its CPU faster than float32; raises UserError where it cannot."""
    if deterministic.enabled():
        raise UserError("--dtype bf16: the deterministic mode has only products of float32 and float64; leave out one of the two options.")
    model, _, flags = cpu()
    if not flags.intersection(MULTIPLIES):
        found = [name for flag, name in OTHERS.items() if flag in flags]
        raise UserError(f"--dtype bf16 on a CPU needs {' or '.join(MULTIPLIES.values())}, and this one ({model}) has "
                        f"{' and '.join(found) or 'neither, nor AVX2'}; use float32.")
    if not torch.backends.mkldnn.is_available():
        raise UserError(f"--dtype bf16 on a CPU needs a PyTorch with oneDNN, and this one ({torch.__version__}) has none; use float32.")


class Cpu(NamedTuple):
    """A CPU's name, its vendor's and its flags."""

    name: str
    vendor: str
    flags: set[str]


def cpu() -> Cpu:
    """This machine's CPU, as /proc/cpuinfo has it."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    return Cpu(found.get("model name", "of unknown type"), found.get("vendor_id", "unknown"), set(found.get("flags", "").split()))
