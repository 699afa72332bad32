"""Devices of programs: what --use-gpu means, and the program that says whether there is CUDA."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

ASSUMED = "PYKALDIST_CUDA_COMPILED"
DEVICES = {"yes": "auto", "no": "cpu", "optional": "auto"}


def device_of(use_gpu: str, device: str = "auto") -> str:
    """The device that Kaldi's --use-gpu means, or `device` where it is empty, as `take_device` has it.

    With `yes` a machine without a GPU computes on its CPU, as a Kaldi that was built without CUDA does, and says so. Raises UserError for
    other words.
    """
    from pykaldist.devices import take_device
    from pykaldist.errors import UserError

    if use_gpu and use_gpu not in DEVICES:
        raise UserError(f"--use-gpu={use_gpu}: expected yes, no or optional.")
    place = take_device(DEVICES.get(use_gpu, device))
    if use_gpu == "yes" and place == "cpu":
        print("WARNING: --use-gpu=yes, but there is no GPU; computing on the CPU", file=sys.stderr)
    return place


def cuda_compiled() -> int:
    """Exit with status 0 where PyTorch was built with CUDA, else with status 1 and a line that says how to go on.

    Usage: cuda-compiled
    e.g.: if ! cuda-compiled; then echo "this script needs a GPU"; exit 1; fi
    Recipes end where the status is 1. With PYKALDIST_CUDA_COMPILED=true in the environment it is 0, and they train on the CPU.
    """
    if os.environ.get(ASSUMED) == "true":
        return 0
    found = importlib.util.find_spec("torch")
    version = Path(found.origin).with_name("version.py") if found and found.origin else None  # read, for torch takes seconds to import
    text = version.read_text(encoding="utf-8") if version and version.is_file() else ""
    if re.search(r"^cuda(?:: [^=]*)? = ['\"]", text, re.MULTILINE):
        return 0
    print(f"cuda-compiled: PyTorch has no CUDA here; with {ASSUMED}=true in the environment recipes train on the CPU all the same",
          file=sys.stderr)
    return 1
