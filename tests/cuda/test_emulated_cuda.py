"""The emulated CUDA device behaves as its description says."""

from __future__ import annotations

import threading

import pytest
import torch
from emulated_cuda import EmulatedCuda, missing

pytestmark = pytest.mark.skipif(torch.cuda.is_available() or bool(missing), reason=missing or "a real CUDA device is there")


@pytest.fixture
def emulated():
    with EmulatedCuda(devices=2, memory=1 << 20) as device:
        yield device


def record(graph, step):
    with torch.cuda.graph(graph):
        step()


def test_it_is_there_only_while_it_is_asked_for():
    with EmulatedCuda(devices=3):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 3
        x = torch.zeros(2, device="cuda")
        assert x.is_cuda and x.device == torch.device("cuda:0") and not x.is_cpu
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="after the emulation has ended"):
        x.add_(1)


def test_it_computes(emulated):
    x = torch.arange(6.0, device="cuda").view(2, 3)
    assert (x @ x.t())[1, 0].item() == 14
    assert torch.tensor([1, 2], device="cuda").tolist() == [1, 2] and float(x.sum()) == 15
    assert torch.equal(x[:, x.sum(0) > 3].cpu(), torch.tensor([[1.0, 2.0], [4.0, 5.0]]))
    assert not torch.empty_like(x, device="cpu").is_cuda and x.new_zeros(2).is_cuda
    a, b = x.unbind()
    a.copy_(b)
    x[0, 0] = 9
    assert x.cpu().tolist() == [[9, 4, 5], [3, 4, 5]]
    with pytest.raises(TypeError, match="convert cuda"):
        x.numpy()


def test_it_counts_launches_and_what_waits(emulated):
    x = torch.zeros(4, device="cuda")
    emulated.reset()
    y = x.view(2, 2).t()
    assert emulated.launches == 0
    y.add_(1).mul_(2)
    torch.zeros(0, device="cuda").add_(1)
    assert emulated.launches == 2 and not emulated.synchronisations
    y.sum().item()
    x.to("cpu")
    x.copy_(torch.ones(4))
    y.nonzero()
    assert [what.split(" of ")[0] for what in emulated.synchronisations] == ["item", "copy to the host", "copy to the device", "nonzero"]
    assert emulated.launches == 7 and emulated.kernels["copy"] == 2
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation: item"):
        x[0].item()


def test_tensors_of_two_devices_do_not_meet(emulated):
    x, y = torch.zeros(4, device="cuda:0"), torch.zeros(4)
    for wrong in (lambda: x + y, lambda: y.add_(x), lambda: torch.add(x, x, out=y), lambda: x.index_select(0, torch.tensor([1]))):
        with pytest.raises(RuntimeError):
            wrong()
    assert (x + torch.tensor(2.0)).tolist() == [2] * 4
    torch.cuda.set_device(1)
    z = torch.zeros(4, device="cuda")
    assert z.device.index == 1
    with pytest.raises(RuntimeError, match="same device, but found cuda:0, cuda:1"):
        torch.add(x, z)


def test_a_kernel_beside_the_current_device_is_an_error(emulated):
    with pytest.raises(RuntimeError, match="runs on cuda:1, and the current device is cuda:0"):
        torch.zeros(4, device="cuda:1")
    with torch.cuda.device(1):
        x = torch.zeros(4, device="cuda:1")
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device(1)
    x.add_(1)
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    assert found == [0]


def test_a_graph_holds_the_numbers_it_was_recorded_with(emulated):
    x, rate, number = torch.ones(2, device="cuda"), torch.ones((), device="cuda"), 2.0
    on_host = torch.tensor(3.0)
    graph = torch.cuda.CUDAGraph()
    record(graph, lambda: x.mul_(number).add_(rate * on_host))
    assert x.tolist() == [1, 1]
    graph.replay()
    assert x.tolist() == [5, 5]
    rate.fill_(2.0)
    on_host.fill_(100.0)
    number = 7.0
    emulated.reset()
    graph.replay()
    assert emulated.launches == 1 and x.tolist() == [16, 16]


def test_what_a_graph_makes_is_nothing_before_it_is_replayed(emulated):
    x, made = torch.ones(2, device="cuda"), []
    graph = torch.cuda.CUDAGraph()
    record(graph, lambda: made.append(x + 1))
    assert made[0].isnan().all().item()
    graph.replay()
    assert made[0].tolist() == [2, 2]


def test_recording_refuses_what_a_gpu_refuses(emulated):
    x, generator = torch.ones(2, device="cuda"), torch.Generator("cuda")
    for wrong in (lambda: x.sum().item(), lambda: x.cpu(), lambda: generator.manual_seed(1), torch.cuda.synchronize):
        with pytest.raises(RuntimeError, match=r"capturing|recorded"):
            record(torch.cuda.CUDAGraph(), wrong)


def test_a_graph_whose_memory_is_freed_is_an_error(emulated):
    tensors, graph = [torch.ones(2, device="cuda")], torch.cuda.CUDAGraph()
    record(graph, lambda: tensors[0].add_(1))
    graph.replay()
    tensors.clear()
    with pytest.raises(RuntimeError, match="memory that has been freed"):
        graph.replay()


def test_random_numbers_follow_the_seed_of_each_replay(emulated):
    x, generator = torch.zeros(8, device="cuda"), torch.Generator("cuda")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    record(graph, lambda: x.uniform_(generator=generator))
    found = []
    for seed in (1, 2, 1):
        generator.manual_seed(seed)
        graph.replay()
        found.append(x.tolist())
    assert found[0] == found[2] != found[1]


def test_a_copy_to_the_host_arrives_with_its_event(emulated):
    x, host = torch.ones(2, device="cuda"), torch.zeros(2, pin_memory=True)
    assert host.is_pinned() and not torch.zeros(2).is_pinned()
    host.copy_(x, non_blocking=True)
    x.add_(1)
    event = torch.cuda.Event()
    event.record()
    for early in (host.sum, host.numpy):
        with pytest.raises(RuntimeError, match="before the copy to it is over"):
            early()
    assert not event.query()
    event.synchronize()
    assert host.tolist() == [1, 1] and event.query()


def test_an_event_recorded_before_the_copy_does_not_tell(emulated):
    x, host, event = torch.ones(2, device="cuda"), torch.zeros(2).pin_memory(), torch.cuda.Event()
    event.record()
    host.copy_(x, non_blocking=True)
    event.synchronize()
    with pytest.raises(RuntimeError, match="before the copy"):
        host.sum()
    torch.cuda.synchronize()
    assert host.sum() == 2


def test_what_is_copied_to_the_device_stays_until_it_is_there(emulated):
    host = torch.ones(2).pin_memory()
    x = host.to("cuda", non_blocking=True)
    assert not emulated.synchronisations
    host.fill_(2)
    with pytest.raises(RuntimeError, match="written to while it was copied"):
        x.sum().item()


def test_a_copy_arrives_beside_one_that_went_wrong(emulated):
    """Another thread of the host may have waited for the first copy, while this one is told of the second."""
    x, wrong, right = torch.ones(2, device="cuda"), torch.ones(2).pin_memory(), torch.zeros(2).pin_memory()
    wrong.to("cuda", non_blocking=True)
    right.copy_(x, non_blocking=True)
    wrong.fill_(2)
    with pytest.raises(RuntimeError, match="written to while it was copied"):
        torch.cuda.synchronize()
    assert right.tolist() == [1, 1]


def test_streams_are_ordered_by_events_alone(emulated):
    x, side = torch.zeros(4, device="cuda"), torch.cuda.Stream()
    x.add_(1)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        with pytest.raises(RuntimeError, match="nothing orders the two"):
            x.add_(1)
    x.zero_().add_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x[:2].add_(1)
    x[2:].add_(1)
    with pytest.raises(RuntimeError, match="nothing orders the two"):
        x.sum()
    torch.cuda.current_stream().wait_event(side.record_event())
    assert x.tolist() == [2] * 4


def test_the_host_orders_streams_by_waiting(emulated):
    x, side = torch.zeros(4, device="cuda"), torch.cuda.Stream()
    x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.add_(1)
    side.synchronize()
    assert x.tolist() == [2] * 4


def test_memory_is_counted_and_ends(emulated):
    x = torch.zeros(1000, device="cuda")
    view = x[5:]
    assert torch.cuda.memory_allocated() == 4000 and torch.cuda.mem_get_info()[0] == (1 << 20) - 4000
    del x
    assert torch.cuda.memory_allocated() == 4000
    del view
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 4000
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.zeros(1 << 20, device="cuda")


def test_an_empty_part_takes_no_memory(emulated):
    x = torch.zeros(1000, device="cuda")
    part = x[1000:].view(0, 2)
    assert torch.cuda.memory_allocated() == 4000 and len(part) == 0


def test_graphs_of_a_pool_share_its_memory(emulated):
    """As much as their tensors take at once, at most; another pool has its own, and what runs without a graph gets none of it."""
    x, graphs, pools = torch.ones(1000, device="cuda"), [], [torch.cuda.graph_pool_handle() for _ in range(2)]

    def passing(times):
        y = x
        for _ in range(times):
            y = y + 1  # beside the one before
        x.copy_(y)

    for pool, times, taken in ((0, 1, 4000), (0, 3, 8000), (0, 2, 8000), (1, 1, 12000)):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pools[pool]):
            passing(times)
        assert torch.cuda.memory_allocated() == 4000 + taken
    passing(1)
    assert torch.cuda.max_memory_allocated() == 20000 and torch.cuda.memory_allocated() == 16000
    for graph in graphs:
        graph.replay()
    assert x.tolist() == [9.0] * 1000
    del graphs[:], graph
    assert torch.cuda.memory_allocated() == 4000


def test_tf32_rounds_factors(emulated):
    x = torch.full((1, 1), 1.0 + 2.0**-12, device="cuda")
    assert (x @ x).item() > 1
    torch.backends.cuda.matmul.allow_tf32 = True
    assert (x @ x).item() == 1


def test_autograd_goes_through(emulated):
    x = torch.ones(3, device="cuda", requires_grad=True)
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad((x * x).sum(), x)
    assert gradient.tolist() == [2, 2, 2]
