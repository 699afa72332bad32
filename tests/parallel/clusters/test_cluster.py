"""Cluster files: what ships is complete and sourced, what is written is read again, what does not fit is a sentence."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import SHIPPED, Allreduce, Cluster, Compute, Link, Pause, Workload, shipped

SMALL = {"name": "c", "description": "", "nodes": 2, "devices": 1, "compute": {"minibatch_seconds": 0.5}, "between": {"bandwidth": 1e9},
         "workload": {"network": "4-8x1-2", "parameters": 58, "minibatch_size": 16, "frames": 100}}


def changed(path: str, value: object) -> dict:
    """SMALL with one value changed, or left out where it is None."""
    found = json.loads(json.dumps(SMALL))
    *way, last = path.split(".")
    part = found
    for step in way:
        part = part.setdefault(step, {})
    if value is None:
        del part[last]
    else:
        part[last] = value
    return found


@pytest.mark.parametrize("name", shipped())
def test_every_number_of_a_cluster_that_ships_has_its_source(name):
    cluster = Cluster.read(name)
    assert cluster.name == name and cluster.description
    assert set(cluster.numbers()) <= set(cluster.sources)
    assert all(len(text) > 10 for text in cluster.sources.values())


def test_published_clusters_ship():
    assert shipped() == ["k20-infiniband", "k40-infiniband", "speech3", "v100-ethernet"]
    assert {path.stem for path in SHIPPED.iterdir() if path.suffix != ".py" and path.is_file()} == set(shipped())


def test_numbers_are_all_that_are_given():
    cluster = Cluster.read("k20-infiniband")
    assert cluster.numbers()["between.bandwidth"] == cluster.between.bandwidth
    assert "compute.spread" not in cluster.numbers()


def test_what_is_written_is_read_again(tmp_path):
    link = Link(1e9, 1e-5)
    cluster = Cluster("ours", "two of them", 2, 2, Workload("4-8x1-2", 58, 16, 1000, 10, 1.5),
                      Compute(0.5, 0.4, 0.1, 0.01, True, 0.1, 3.0, 2e9, {"quantising": 3e8}, 0.3), link, link, Allreduce(232, {"4": 0.25}),
                      True, {"between": "guessed", "compute.spread": "guessed"}, {"3": 4.0}, (Pause(1, 2.0, 3.0), Pause(0, 2.5, 1.0)))
    cluster.write(tmp_path / "c.json")
    assert Cluster.read(tmp_path / "c.json") == cluster
    least = Cluster("one", "", 1, 1, Workload("x", 1, 1, 1), Compute(1.0))
    least.write(tmp_path / "least.json")
    assert Cluster.read(tmp_path / "least.json") == least and "null" not in (tmp_path / "least.json").read_text()


@pytest.mark.parametrize(("path", "value", "words"), [
    ("nodes", None, "nodes is missing"),
    ("nodes", 0, "nodes is 0, expected a positive number"),
    ("nodes", 2.5, "nodes is 2.5, expected a whole number"),
    ("nodes", True, "nodes is True, expected a whole number"),
    ("nodse", 2, "nodse is unknown, expected one of name, description, nodes"),
    ("between", None, "between is missing, expected the link between the 2 nodes"),
    ("between.bandwidth", -1, "between.bandwidth is -1"),
    ("between.bandwidth", math.inf, "between.bandwidth is inf"),
    ("between.latency", math.nan, "between.latency is nan, expected 0 or more seconds"),
    ("between.latencies", 1, "between.latencies is unknown, expected one of bandwidth, latency"),
    ("within", 7, "within is int, expected an object with bandwidth, latency"),
    ("compute", [], "compute is list, expected an object"),
    ("compute.minibatch_seconds", "0.5", "compute.minibatch_seconds is '0.5', expected a number"),
    ("compute.minibatch_seconds", 0, "compute.minibatch_seconds is 0"),
    ("compute.minibatch_seconds", 10**400, "out of range"),
    ("compute.single_minibatch_seconds", 0, "compute.single_minibatch_seconds is 0"),
    ("compute.spread", -0.1, "compute.spread is -0.1, expected 0 or more"),
    ("compute.memory_bandwidth", 0, "compute.memory_bandwidth is 0.0"),
    ("compute.work_bandwidth", {"quantising": -1}, "compute.work_bandwidth.quantising is -1.0"),
    ("compute.load_overlaps", 1, "compute.load_overlaps is 1, expected true or false"),
    ("workload.frames", 0, "workload.frames is 0"),
    ("workload.largest_shard", 0.9, "workload.largest_shard is 0.9, expected 1 or more"),
    ("compute.server_seconds", -1, "compute.server_seconds is -1"),
    ("slow", {"first": 2.0}, "a key of slow is 'first', expected the number of a worker"),
    ("slow", {"1": 0}, "slow.1 is 0"),
    ("pauses", {"worker": 1}, "pauses is {'worker': 1}, expected a list"),
    ("pauses", [{"worker": 1, "at": 2.0}], "pauses.0.seconds is missing"),
    ("pauses", [{"worker": 1, "at": 2.0, "seconds": 0}], "pauses.0.seconds is 0"),
    ("pauses", [{"worker": -1, "at": 2.0, "seconds": 1}], "pauses.0.worker is -1"),
    ("pauses", [{"worker": 1, "at": math.inf, "seconds": 1}], "pauses.0.at is inf"),
    ("allreduce", {"bytes": 8, "seconds": {"1": 0.1}}, "allreduce.a key of seconds is '1'"),
    ("allreduce", {"bytes": 8, "seconds": {"2": 0}}, "allreduce.seconds.2 is 0"),
    ("allreduce", {"bytes": 8, "seconds": [1]}, "allreduce.seconds is [1], expected an object"),
    ("sources", {"compute.spraed": "?"}, "sources.compute.spraed is about nothing"),
    ("sources", {"within": "?"}, "sources.within is about nothing"),
])
def test_what_does_not_fit_is_one_sentence(tmp_path, path, value, words):
    (tmp_path / "c.json").write_text(json.dumps(changed(path, value)))
    with pytest.raises(UserError) as raised:
        Cluster.read(tmp_path / "c.json")
    message = str(raised.value)
    assert "c.json" in message and words in message and "\n" not in message


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"\xff\xfe", b"[" * 100_000, b"3"])
def test_what_is_no_cluster_file_is_one_sentence(tmp_path, content):
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(UserError, match=r"c\.json"):
        Cluster.read(tmp_path / "c.json")


def test_a_name_that_is_not_known_says_which_are():
    with pytest.raises(UserError, match="there is no such file, and the clusters known by name are k20-infiniband, k40-infiniband, "):
        Cluster.read("k80")


places = st.sampled_from(["nodes", "devices", "name", "between", "between.bandwidth", "between.latency", "compute", "compute.spread",
                          "compute.minibatch_seconds", "workload.frames", "workload.network", "allreduce", "sources"])
values = st.recursive(st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                      lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(max_size=5), part, max_size=2), max_leaves=4)


@given(places, values)
def test_any_value_anywhere_gives_a_cluster_or_a_sentence(tmp_path_factory, place, value):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(changed(place, value)))
    try:
        assert Cluster.read(path).workers >= 1
    except UserError as error:
        assert "any.json" in str(error)
