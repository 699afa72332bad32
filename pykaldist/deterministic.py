"""The deterministic mode: the same numbers on every machine, with any number of threads and jobs.

Libraries choose their code by the CPU that they find, and share sums out among the threads that they have: both change the last bits of a
result. In this mode a process has of each library the code for one CPU type, the baseline, and one thread, whatever the machine, and
whatever the caller's environment says. Libraries read their settings when they are loaded, so `start` comes before all of them:

    OpenBLAS (numpy, scipy: products, decompositions)       OPENBLAS_CORETYPE: Haswell's kernels, whose blocks are of fixed sizes
    MKL (in PyTorch: decompositions, FFT, functions)        MKL_CBWR=COMPATIBLE: one code path, on all CPUs of all vendors, but a slow one;
                                                            products, which are most of the work, are nnet/blas.py's
    PyTorch's own loops; oneDNN (convolutions)              ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA: AVX2
    numpy's own loops (exp, log)                            NPY_DISABLE_CPU_FEATURES: what is beyond AVX2
    numba                                                   NUMBA_CPU_NAME, NUMBA_CPU_FEATURES: Haswell
    the C library's exp and log                             choose FMA wherever there is AVX2, unless GLIBC_TUNABLES hides it
"""

from __future__ import annotations

import itertools
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pykaldist.errors import UserError

VARIABLE = "PYKALDIST_DETERMINISTIC"  # true: the mode is on; recipes and steps set it by --deterministic true
BASELINE = "x86-64 with AVX2 and FMA (Haswell), one thread a process"  # as config.json names it
FLAGS = ("avx2", "fma", "bmi2", "f16c")  # what a CPU must have, by the names of /proc/cpuinfo
PINNED = {
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # The groups' names since numpy 2.4, and the features' names before; numpy leaves out names that it does not know.
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_KNL AVX512_KNM",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+cx16",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
}
UNSET = ("NPY_ENABLE_CPU_FEATURES", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_DOMAIN_NUM_THREADS",
         "NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_SLP_VECTORIZE")


def enabled() -> bool:
    """Whether the deterministic mode is on."""
    return os.environ.get(VARIABLE) == "true"


def start(argv: Sequence[str] = ()) -> None:
    """Turn the mode on where the environment, or the option `--deterministic true` of the command line `argv`, asks for it.

    To be called before numpy or PyTorch is loaded. Raises UserError where the machine has not what the baseline has.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "true", "false"):
        raise UserError(f"{VARIABLE} is true or false, found {value!r}.")
    given = []
    for word, following in itertools.pairwise([*argv, ""]):
        option, _, value = word.partition("=")
        if option == "--deterministic":
            given.append(value or following)
    if given[-1:] == ["true"]:  # the last one counts, as for every option
        os.environ[VARIABLE] = "true"
    if not enabled():
        return
    check_machine(platform.machine(), Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    os.environ.update(PINNED)
    for name in UNSET:
        os.environ.pop(name, None)
    if os.environ.pop("GLIBC_TUNABLES", None) is not None:  # read when a process begins
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until interrupts.py lets it through
        os.execv(sys.executable, sys.orig_argv)


def check_machine(machine: str, cpuinfo: str) -> None:
    """Check that a CPU with these lines of /proc/cpuinfo can run the baseline's code; raises UserError where it cannot."""
    if machine != "x86_64":
        raise UserError(f"--deterministic true: the same numbers on every machine are those of {BASELINE}, and this is a machine of type "
                        f"{machine}; leave the option out.")
    flags = next((line.split(":", 1)[1].split() for line in cpuinfo.splitlines() if line.startswith("flags")), [])
    lacking = [flag for flag in FLAGS if flag not in flags]
    if lacking:
        raise UserError(f"--deterministic true: the same numbers on every machine are those of {BASELINE}, and this CPU lacks "
                        f"{', '.join(lacking)}; leave the option out, or use another machine.")
