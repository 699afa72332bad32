"""Plans: what options, a cluster file, a store and a measurement make of cluster and workload."""

from __future__ import annotations

import dataclasses

import pytest

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Link
from pykaldist.parallel.strategies.base.registry import strategies
from pykaldist.report.plan import render
from pykaldist.train import plan as module
from pykaldist.train.measure import Exchange, Measured, Steps
from pykaldist.train.plan import PlanOptions, make_plan

ALONE, BESIDE = Steps(0.010, 0.001, 0.02), Steps(0.012, 0.002, 0.03)
PAIR = Measured(5000, 2, ALONE, 0.004, 4e10, {"quantising": 2e8}, Exchange(BESIDE, 1e-5, 2e9, "nccl"))
SINGLE = dataclasses.replace(PAIR, devices=1, exchange=None, no_exchange="this machine has one device for such workers")


@pytest.fixture
def measured(monkeypatch):
    """A machine that measures as PAIR, or as it is told; the jobs that it was asked to time."""
    asked = []

    class Machine:
        found = PAIR
        load = 0.0

    def fake(job, exchange):
        asked.append((job, exchange))
        return Machine.found

    monkeypatch.setattr(module, "measure", fake)
    monkeypatch.setattr(module.os, "getloadavg", lambda: (Machine.load, 0, 0))
    Machine.asked = asked
    return Machine


def options(**given):
    return PlanOptions(**{"ngpu": "2,4", "strategy": "ma,bmuf,ssgd,local", "average_period": "10", **given})


def test_a_cluster_file_is_taken_as_it_is():
    plan = make_plan(options(cluster="k20-infiniband", ngpu="8", strategy="ma", average_period="10"))
    cluster = Cluster.read("k20-infiniband")
    assert plan.cluster == cluster and plan.workload == cluster.workload and plan.notes == []
    assert [(p.ngpu, p.strategy, p.period) for p in plan.predictions] == [(8, "ma", 10)]
    assert set(plan.origin.values()) == {"from the file"}


def test_another_network_and_other_data_on_a_cluster_file(make_store):
    shape = {"hid_layers": 6, "hid_dim": 2048, "feat_dim": 40, "num_pdfs": 8806}
    same = make_plan(options(cluster="k20-infiniband", hours=30, **shape))
    own = Cluster.read("k20-infiniband").workload
    assert same.workload == dataclasses.replace(own, frames=own.frames // 10) and same.notes == []
    other = make_plan(options(cluster="k20-infiniband", hid_layers=2, minibatch_size=512, largest_shard=1.5))
    assert (other.workload.network, other.workload.minibatch_size, other.workload.largest_shard) == ("440-512x2-3000", 512, 1.5)
    assert other.workload.parameters == 441 * 512 + 513 * 512 + 513 * 3000
    assert "scaled in proportion" in other.notes[0] and set(other.origin.values()) == {"from the file, scaled"}
    make_store([100, 60], name="train")
    stores = make_store([30], name="dev").path.parent
    stored = make_plan(options(cluster="k40-infiniband", store=str(stores), splice=1)).workload
    assert (stored.frames, stored.cv_frames, stored.network) == (160, 30, "12-512x4-5")


def test_an_objective_of_whole_utterances_has_its_own_minibatch_and_advice(make_store):
    store = make_store([20, 30, 40, 50])
    make_store([30], name="dev")
    given = {"cluster": "k40-infiniband", "store": str(store.path.parent), "splice": 1}
    plans = {name: make_plan(options(**given, objective=name)) for name in ("xent", "smbr", "mmi")}
    assert plans["smbr"].workload.minibatch_size == 35 and plans["xent"].workload.minibatch_size != 35
    assert make_plan(options(**given, objective="smbr", minibatch_size=70)).workload.minibatch_size == 70
    assert not plans["xent"].advice and plans["smbr"].advice == plans["mmi"].advice
    text = render(plans["smbr"])
    assert all(f"  - {advice}." in text for advice in plans["smbr"].advice) and "--lr-scale" in text and "--one-silence-class" in text
    assert text.count("\n  - ") == render(plans["xent"]).count("\n  - ") + len(plans["smbr"].advice)


def test_this_machine_is_measured(measured):
    plan = make_plan(options(hid_layers=3, optimizer="ngsgd", minibatch_size=64, device="cpu"))
    (job, exchange), = measured.asked
    assert (job.hid_layers, job.hid_dim, job.optimizer, job.minibatch_size, job.num_threads, job.store) == (3, 512, "ngsgd", 64, 1, "")
    assert exchange
    cluster = plan.cluster
    assert (cluster.nodes, cluster.devices, cluster.within, cluster.between) == (1, 2, Link(2e9, 1e-5), None)
    assert (cluster.compute.minibatch_seconds, cluster.compute.alone, cluster.compute.spread) == (0.012, 0.010, 0.03)
    assert (cluster.compute.load_seconds, cluster.compute.score_seconds) == (0.002, 0.004)
    assert (cluster.compute.memory_bandwidth, cluster.compute.work_bandwidth) == (4e10, {"quantising": 2e8})
    assert job.strategies == ("ma", "bmuf", "ssgd", "local") and PlanOptions().strategies() == strategies()
    assert plan.workload.parameters == 5000 and plan.workload.frames == 300 * 360_000
    assert set(plan.origin.values()) == {"measured"} and plan.notes == []
    make_plan(options(ngpu="1"))
    assert measured.asked[-1][1] is False


def test_a_measurement_is_written_and_read_again(measured, tmp_path):
    file = str(tmp_path / "c.json")
    made = make_plan(options(nodes=4, bandwidth=1.5, latency=20, write_cluster=file, device="cpu"))
    assert (made.cluster.between, made.cluster.within) == (Link(1.5e9, 2e-5), Link(2e9, 1e-5))
    assert made.origin["between.bandwidth"] == "given" and made.origin["within.bandwidth"] == "measured"
    again = make_plan(options(cluster=file))
    assert again.cluster == made.cluster and again.predictions == made.predictions
    assert "measured by pykaldist plan" in made.cluster.sources["compute.minibatch_seconds"]
    assert made.cluster.sources["between"] == "given by option"


def test_machines_whose_link_was_not_given_or_not_measured(measured):
    taken = make_plan(options(nodes=4))
    assert taken.cluster.between == Link(2e9, 1e-5) and taken.origin["between.bandwidth"] == "measured within this machine"
    with pytest.raises(UserError, match="--bandwidth is that between machines"):
        make_plan(options(bandwidth=1.0))
    measured.found = SINGLE
    with pytest.raises(UserError, match="nothing is known of the link between machines; give --bandwidth"):
        make_plan(options(nodes=4))
    alone = make_plan(options(nodes=4, bandwidth=1.0))
    assert (alone.cluster.devices, alone.cluster.within, alone.cluster.between) == (1, None, Link(1e9, 0.0))
    assert alone.notes == ["exchange was not measured: this machine has one device for such workers."]
    assert alone.cluster.compute.minibatch_seconds == alone.cluster.compute.alone == 0.010
    measured.found = dataclasses.replace(SINGLE, devices=2, no_exchange="there is no MPI here")
    with pytest.raises(UserError, match="no link within it"):
        make_plan(options())
    assert make_plan(options(bandwidth=1.0)).origin["within.bandwidth"] == "given"


def test_a_busy_machine_says_so(measured):
    measured.load = 3.0
    assert "load 3.0" in make_plan(options()).notes[0]


@pytest.mark.parametrize(("given", "words"), [
    ({"ngpu": "2,x"}, "--ngpu 2,x: expected positive whole numbers"),
    ({"ngpu": "0"}, "--ngpu 0: expected positive whole numbers"),
    ({"average_period": "5,"}, "--average-period 5,: expected positive whole numbers"),
    ({"strategy": "ma,sgd"}, "there is no strategy 'sgd'; choose among adpsgd"),
    ({"strategy": "ssgd", "average_period": "4"}, "--average-period belongs to --strategy bmuf and .*ma and is not used by ssgd"),
    ({"minibatch_size": 0}, "--minibatch-size 0: expected a positive number"),
    ({"hours": float("nan")}, "--hours nan"),
    ({"largest_shard": 0.5}, "--largest-shard 0.5: expected 1 or more"),
    ({"hid_layers": -1}, "--hid-layers -1: expected 0 or more"),
    ({"cluster": "k20-infiniband", "optimizer": "sgd"}, "--optimizer is for measuring this machine and is not used with --cluster"),
    ({"cluster": "k20-infiniband", "write_cluster": "c.json"}, "--write-cluster is for measuring"),
    ({"store": "x", "hours": 3.0}, "--store x says how many hours"),
    ({"latency": 5.0}, "--latency 5 needs --bandwidth"),
    ({"device": "tpu"}, "--device tpu is not supported"),
])
def test_options_that_do_not_fit(given, words):
    with pytest.raises(UserError, match=words):
        make_plan(options(**given))
