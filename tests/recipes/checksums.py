"""A recipe's numbers, stage by stage, as checksums; and environments that make libraries believe in another CPU."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

# What the libraries that can be told believe of the CPU. MKL cannot be told: it asks the CPU itself.
CPUS = {
    "this": {},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "NUMBA_CPU_NAME": "haswell",
                "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX", "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
                 "MKL_ENABLE_INSTRUCTIONS": "AVX512", "NUMBA_CPU_NAME": "skylake-avx512"},
    "Nehalem": {"OPENBLAS_CORETYPE": "Nehalem", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41",
                "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": "",
                "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"},
}


def threads(number: int) -> dict[str, str]:
    """The environment that gives every library this many threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(number))


def _archives(pattern: str, folder: Path) -> bytes:
    """What is in the jobs' archives, job by job; their number does not show."""
    found = sorted(folder.glob(pattern), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    return b"".join(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in found)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12] if content else "missing"


def _file(path: Path) -> str:
    return _short(path.read_bytes() if path.is_file() else b"")


def recipe_checksums(folder: Path) -> dict[str, str]:
    """Name of a result -> its checksum, or WER, of what a recipe has made in its folder s5; in the order of the stages."""
    exp, mfcc = folder / "exp", folder / "mfcc"
    found = {f"features {part}": _short(_archives(f"raw_mfcc_{part}.*.ark", mfcc)) for part in ("train", "test")}
    found["CMVN"] = _short(_archives("cmvn_*.ark", mfcc))
    for gmm in ("mono", "tri1", "tri2", "tri3"):
        if (exp / gmm).is_dir():
            found[f"{gmm}/final.mdl"] = _file(exp / gmm / "final.mdl")
            found[f"{gmm}_ali"] = _short(_archives("ali.*.gz", exp / f"{gmm}_ali"))
            found[f"{gmm}/graph"] = _file(exp / gmm / "graph" / "HCLG.fst")
            found[f"{gmm}/decode"] = _short(_archives("lat.*.gz", exp / gmm / "decode"))
    found["frame store"] = _short(_archives("*/*.npy", exp / "dnn" / "store") + _archives("*/*.bin", exp / "dnn" / "store"))
    if (exp / "dbn").is_dir():
        found["RBMs"] = _short(_archives("*.dbn", exp / "dbn"))
    found["dnn/final.nnet"] = _file(exp / "dnn" / "final.nnet")
    found["dnn/decode"] = _short(_archives("lat.*.gz", exp / "dnn" / "decode"))
    for best in sorted(exp.glob("*/decode/best_wer")):
        words = re.search(r"%WER ([\d.]+)", best.read_text(encoding="utf-8"))
        found[f"WER {best.parent.parent.name}"] = words[1] if words else "missing"
    return found
