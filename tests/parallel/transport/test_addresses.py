"""Which address a process listens at."""

from __future__ import annotations

import socket
from ipaddress import IPv4Interface

import pytest

from pykaldist.errors import UserError
from pykaldist.parallel.transport import addresses
from pykaldist.parallel.transport.addresses import facing, interfaces, is_here, machine, variables

DOCKER = IPv4Interface("172.17.0.1/16")


def those(*texts: str) -> list[IPv4Interface]:
    return [IPv4Interface(text) for text in texts]


@pytest.mark.parametrize(("own", "others", "expected"), [
    (["10.0.0.1/24"], [["10.0.0.2/24"]], "10.0.0.1"),
    (["192.168.1.5/24", "10.0.0.1/24"], [["10.0.0.2/24"], ["10.0.0.3/24", "192.168.7.1/24"]], "10.0.0.1"),  # where all others are
    (["172.17.0.1/16", "10.0.0.1/24"], [["172.17.0.1/16", "10.0.0.2/24"]], "10.0.0.1"),  # a bridge of its own on each
    (["192.168.1.5/24", "10.0.1.1/24"], [["10.0.2.2/24"]], "10.0.1.1"),  # in no network of theirs: as the system routes
])
def test_the_interface_that_faces_the_others(monkeypatch, own, others, expected):
    monkeypatch.setattr(addresses, "_source", lambda address: "10.0.1.1" if address.startswith("10.") else "")
    mine = {f"eth{k}": one for k, one in enumerate(those(*own))}
    assert facing(mine, [those(*one) for one in others]) == expected


def test_an_interface_that_is_named():
    own = dict(zip(("eth0", "ib0"), those("10.0.0.1/24", "10.1.0.1/24"), strict=True))
    assert facing(own, [those("10.0.0.2/24")], "ib0") == "10.1.0.1"
    with pytest.raises(UserError, match=r"--interface eth7: .* it has eth0 \(10\.0\.0\.1\), ib0 \(10\.1\.0\.1\)\."):
        facing(own, [those("10.0.0.2/24")], "eth7")


def test_none_that_faces_the_others(monkeypatch):
    monkeypatch.setattr(addresses, "_source", lambda address: "")
    with pytest.raises(UserError, match=r"no network interface that faces .* eth0 \(10\.0\.0\.1\): name one by --interface"):
        facing({"eth0": IPv4Interface("10.0.0.1/24")}, [those("10.5.0.2/24")])
    with pytest.raises(UserError, match="it has none"):
        facing({}, [those("10.5.0.2/24")])


def test_this_machine():
    assert machine() == machine() and all(not str(one.ip).startswith("127.") for one in interfaces().values())


def test_names_of_this_machine():
    assert all(map(is_here, ["localhost", "127.0.0.1", socket.gethostname(), *(str(one.ip) for one in interfaces().values())]))
    assert not any(map(is_here, ["node7", "192.0.2.1", "localhost2"]))


def test_variables(monkeypatch):
    """What the user has set stays."""
    for name in variables("lo"):
        monkeypatch.delenv(name, raising=False)
    assert variables("") == {} and set(variables("eth0").values()) == {"eth0"}
    assert variables("lo") == {**dict.fromkeys(variables("eth0"), "lo"), "UCX_TLS": "^tcp"}
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_0:1")
    assert "UCX_NET_DEVICES" not in variables("eth0") and variables("eth0")["GLOO_SOCKET_IFNAME"] == "eth0"
