"""An emulated CUDA device: `torch.cuda` on a machine without a GPU, computed by the CPU, and stricter than a GPU.

    with EmulatedCuda(devices=2) as cuda:
        x = torch.ones(3, device="cuda:0")
        (x + 1).sum().item()
    cuda.launches, cuda.synchronisations            # 4 (fill, add, sum, copy), {"item of ...": 1}

Tests that are marked gpu run on it where the machine has no CUDA device (`tests/conftest.py`); the fixture `cuda` is the emulation.

What it emulates
    Tensors     have the device cuda:N. An operation on tensors of two devices is an error, but for copies and single numbers of the host.
    Kernels     compute at once, on the CPU. Each counts as a launch, as does a copy and the replay of a graph; views and tensors without
                values launch nothing. One on another device than the thread's current one is an error, which a GPU lets pass: graphs,
                streams and events are those of the current device, so that such a kernel is not recorded and not waited for.
    Waiting     What makes the host wait for the device counts in `synchronisations`, by the lines that asked for it. It is an error
                while a graph is recorded, and after `torch.cuda.set_sync_debug_mode("error")`.
    Copies      Those to pinned memory that do not block arrive when the host waits for an event recorded after them, for their stream,
                or for the device. Until then the memory holds NaN or 0, and reading it is an error. Those from pinned memory are read
                late as well: to write there before they are over is an error.
    Graphs      A recorded kernel does not run; what it would make is NaN or 0. A replay runs it with the Python numbers and the host's
                numbers that it was recorded with. Memory that was freed since is an error; so are copies between host and device, and
                the seeding of a generator, while a graph is recorded.
    Streams     Two streams that touch the same values, one of them writing, without an event or a synchronisation between, are an error.
    Threads     have a current device each, 0 at first, and record graphs each for itself.
    Memory      `torch.cuda.memory_allocated` and its maximum count the bytes of living tensors, and of each pool of graphs as many as the
                tensors made there took at once, at most; beyond `memory` bytes a device raises torch.OutOfMemoryError. Graphs name their
                pools in `pools`.
    Arithmetic  is the CPU's; tf32 products round their factors to 10 bits of mantissa, and bfloat16 products may be wider than these.

    Autograd    of one number, to leaves, on the thread that asks.

What it does not
    Time, NCCL, the numbers and the order of sums of cuBLAS and of atomics, random numbers of a GPU, the fragmentation and the caches of
    the allocator, memory that one stream frees while another still uses it, kernels beside torch's own (Triton, cuDNN), processes: each
    would have an emulation of its own. A launch here is one of torch's operations; a few of them are two kernels on a GPU.

It needs no compiler, but a PyTorch from 2.4 on, whose CPU build it gives the device guard that a CUDA build has (`guard.py`). `missing`
says why that could not be done, and is empty where it could.
"""

from emulated_cuda.device import EmulatedCuda
from emulated_cuda.guard import missing

__all__ = ["EmulatedCuda", "missing"]
