"""What a daemon wants of the kernel's routes, told to a socket that only listens."""

from __future__ import annotations

from typing import Any

from daemons.protocol import Hop, SetRoute
from testbed.fib import RTPROT_WEFT, Fib
from testbed.netlink import Message
from testbed.site import Interface, Site
from topologies.address import Prefix

LEFT, RIGHT = Prefix(10 << 24 | 1 << 8, 24), Prefix(10 << 24 | 2 << 8, 24)
NEAR, FAR = Hop(0, 1), Hop(1, 2)


class Listener:
    """Takes every request, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    def request(self, messages: list[Message], **_: Any) -> None:
        self.requests.append([message.command for message in messages])


def fib() -> tuple[Fib, Listener]:
    ports = {
        port: Interface(7 + port, f"h0-eth{port}", {node: (10 << 24 | node << 8, bytes([2, 0, 0, node, 0, 0]))})
        for port, node in ((0, 1), (1, 2))
    }
    listener = Listener()
    return Fib(listener, Site(0, "h0", "weft.test.h0", 10 << 24, ports)), listener  # type: ignore[arg-type]


def test_a_neighbour_is_told_of_once_and_again_when_its_device_was_down():
    table, listener = fib()
    table.set([SetRoute(LEFT, (NEAR,)), SetRoute(RIGHT, (NEAR,))])
    route = f"ip route replace {{}} proto {RTPROT_WEFT} src 10.0.0.0 via 10.0.1.0 dev h0-eth0 onlink"
    told = [
        "ip neighbour replace 10.0.1.0 lladdr 02:00:00:01:00:00 dev h0-eth0 nud permanent",
        route.format("10.0.1.0/24"),
        route.format("10.0.2.0/24"),
    ]
    assert listener.requests == [told]
    table.device_down(1)
    table.set([SetRoute(LEFT, (NEAR,))])
    assert len(listener.requests[-1]) == 1
    table.device_down(0)
    table.set([SetRoute(LEFT, (NEAR,))])
    assert len(listener.requests[-1]) == 2


def test_what_is_installed_is_what_is_forwarded_to_somebody():
    table, listener = fib()
    for change, installed in (
        (SetRoute(LEFT, (NEAR,)), 1),
        (SetRoute(LEFT, (NEAR, FAR)), 1),
        (SetRoute(RIGHT, (FAR,)), 2),
        (SetRoute(LEFT, ()), 1),
        (SetRoute(LEFT, ()), 1),
        (SetRoute(LEFT, (FAR,)), 2),
    ):
        table.set([change])
        assert table.installed == installed == sum(1 for hops in table.wanted.values() if hops)
    table.set([SetRoute(RIGHT, ())])
    assert "unreachable 10.0.2.0/24" in listener.requests[-1][0]
