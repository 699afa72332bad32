"""A device guard of CUDA that does nothing: without one, no view of a CUDA tensor can be made on a machine that has no GPU.

PyTorch has such a guard, for its CUDA builds. `_ensureCUDADeviceGuardSet` puts it in the place of one that counts 0 devices. A CPU build
has none that counts; so one whose every method returns 0 is put there for a moment. No compiler is needed.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_CUDA = 1  # c10::DeviceType::CUDA
_METHODS = 64  # more than a guard has


def _install() -> None:
    """Install the guard. Raises an error where this PyTorch is built otherwise."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libc10.so"))
    registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if registry[_CUDA] is not None:
        return
    zero = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda guard: 0)
    methods = (ctypes.c_void_p * _METHODS)(*[ctypes.cast(zero, ctypes.c_void_p)] * _METHODS)
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(methods))
    registry[_CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()
    if registry[_CUDA] == ctypes.addressof(guard):
        registry[_CUDA] = None
        raise RuntimeError("this PyTorch does not replace a device guard that counts no devices")


missing = ""
if torch.backends.cuda.is_built():
    if not torch.cuda.is_available():
        torch._C._ensureCUDADeviceGuardSet()
else:
    try:
        _install()
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        missing = f"this PyTorch ({torch.__version__}) takes no device guard for CUDA: {error}"
