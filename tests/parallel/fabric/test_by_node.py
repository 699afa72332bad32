"""Sums node by node: the same sums, with one buffer a node between nodes."""

from __future__ import annotations

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.by_node import ByNode


@pytest.mark.parametrize(("hosts", "between"), [("aabb", [2]), ("abab", [2]), ("abcaa", [3]), ("aaab", [2])])
def test_one_process_of_each_node_speaks_for_it(in_processes, hosts, between):
    values = torch.randint(-9, 9, (len(hosts), 5), generator=torch.Generator().manual_seed(0)).double()

    def work(processes):
        sizes = []
        node_by_node = ByNode(processes, hosts)
        for those in (node_by_node, node_by_node.duplicate()):
            those.sum(buffer := values[processes.rank].clone(), 0.5)
            sizes.append(None if those._firsts is None else those._firsts.size)
            assert torch.equal(buffer, values.sum(0) * 0.5)
        assert node_by_node.control([1.0])[0] == len(hosts)
        assert torch.equal(torch.stack(node_by_node.gather(values[processes.rank])), values)
        node_by_node.broadcast(buffer)
        node_by_node.close()
        return sizes

    found = in_processes(len(hosts), work)
    speaking = [rank for rank, host in enumerate(hosts) if hosts.index(host) == rank]
    assert found == [between * 2 if rank in speaking else [None] * 2 for rank in range(len(hosts))]


def test_a_host_averages_so_also_meanwhile(in_processes):
    async def work(fabric):
        ticket = await fabric.begin(fabric.mean(torch.full((3,), float(fabric.rank)), 1.0))
        await fabric.sum(buffer := torch.full((2,), float(fabric.rank)))
        return buffer.tolist() + (await fabric.finish(ticket)).tolist()

    found = in_processes(3, lambda those: Host(6, ByNode(those, "aab")).run([work(fabric) for fabric in Host(6, those).fabrics]))
    assert found == [[[15.0] * 2 + [2.5] * 3] * 2] * 3


@pytest.mark.parametrize("hosts", ["aa", "ab", "a"])
def test_where_there_is_nothing_to_sum_first(in_processes, hosts):
    def work(processes):
        with pytest.raises(UserError, match=f"expected several hosts with several processes on some, found {len(hosts)} processes on "
                                            f"{len(set(hosts))}"):
            ByNode(processes, hosts)

    in_processes(len(hosts), work)
