"""Links that differ from the others of their network: with a lower rate, as after the failure of
some of their lanes, or without bursts."""

from __future__ import annotations

from dataclasses import replace

from weft.testbed.linux import clock, netlink, tc
from weft.testbed.network.network import RunningNetwork
from weft.testbed.network.scheme_change import routing
from weft.testbed.node_daemon import control_socket
from weft.testbed.node_daemon.daemon import DEGRADED
from weft.testbed.plan.network_plan import End
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import LinkSpec

KNOW_DEGRADED = ("lbsp",)  # schemes whose daemons treat degraded links differently


def set_rate(network: RunningNetwork, name: str, rate_bps: int) -> None:
    """Let the link called `name`, h0-w0, carry `rate_bps` in both directions from now on; its
    queues stay.

    Under the virtual clock it returns when the link may send a burst of the new rate.
    Raises ValueError if there is no such link, the rate is none, or links have no rate in this
    network.
    """
    link = network.topology.link(name)
    wanted = replace(planned(network, link), rate_bps=rate_bps)
    for node, _, end in network.both_ends(link):
        with network.at(node) as socket:
            socket.request(_changes(end, wanted, tc.burst_bytes(rate_bps, wanted.frame_bytes)))
            held = tc.shapes(socket)[end.ifindex]
        if abs((held.rate_bps or 0) - rate_bps) >= 8:
            raise OSError(f"{end.dev}: asked for {rate_bps} bit/s, the kernel has {held}")
    # where no time has passed: the buckets hold what was a burst at the old rate
    if clock.is_virtual():
        clock.sleep(held.burst_ns / 1e9)


def report(network: RunningNetwork, name: str, *, degraded: bool = True) -> None:
    """Report the link called `name` as degraded, or as sound again, to the daemons at both its
    ends, as an operator would.

    Raises ValueError if there is no such link, or its ends have no daemons of a scheme that cares
    (lbsp).
    """
    wanted, _ = parse(routing(network.run.journal))
    if wanted not in KNOW_DEGRADED:
        raise ValueError(
            f"scheme {wanted} treats degraded links as any other; "
            f"{' and '.join(KNOW_DEGRADED)} does not"
        )
    link = network.topology.link(name)
    if network.topology.level[link] == 0:
        raise ValueError(f"{name} leads to a host: there is no other way to it")
    for node, port, _ in network.both_ends(link):
        control_socket.ask(
            network.run.directory,
            network.topology.naming.name(node),
            f"{DEGRADED} {port} {int(degraded)}",
        )


def one_at_a_time(network: RunningNetwork) -> None:
    """Let every link start a packet only after the transmission time of the one before, as a wire
    does.

    Otherwise a link sends a burst after idle time, and at low loads hardly any queue forms.  It
    costs rate, a few per cent on slow links, because time lost to a late timer is not made up for.
    """
    for node in range(network.topology.nodes):
        with network.at(node) as socket:
            for end in network.plan.ends[node].values():
                socket.request(_changes(end, planned(network, end.link), 1))


def planned(network: RunningNetwork, link: int) -> LinkSpec:
    """What link number `link` carried when the network came up; ValueError if links have no rate in
    this network."""
    spec = network.plan.link_spec(link)
    if spec is None:
        raise ValueError("the links of this network have no rate")
    return spec


def _changes(end: End, link: LinkSpec, burst_bytes: int) -> list[netlink.NetlinkMessage]:
    """The changes that give the classes of an existing link their rate and burst.

    HTB sends as long as the bucket is not overdrawn, so a burst of 1 byte lets a single packet go.
    """
    made = tc.classes(end.ifindex, end.dev, link, burst=burst_bytes)
    return [
        each._replace(flags=0, command=each.command.replace("class add", "class change"))
        for each in made
    ]
