"""The program that says whether there is CUDA."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def cuda_compiled() -> int:
    """Exit with status 0 where PyTorch was built with CUDA, else with status 1; nothing is printed.

    Usage: cuda-compiled
    e.g.: if ! cuda-compiled; then echo "this script needs a GPU"; exit 1; fi
    """
    found = importlib.util.find_spec("torch")
    version = Path(found.origin).with_name("version.py") if found and found.origin else None  # read, for torch takes seconds to import
    text = version.read_text(encoding="utf-8") if version and version.is_file() else ""
    return 0 if re.search(r"^cuda(?:: [^=]*)? = ['\"]", text, re.MULTILINE) else 1
