"""Change the rate or the burst of links of an open network.

A lower rate models a link that has lost some of its lanes.
"""

from __future__ import annotations

from weft.daemons.core import registry
from weft.testbed.linux import clock, tc
from weft.testbed.network.handle import Handle
from weft.testbed.network.impair import Impairment, impair
from weft.testbed.network.scheme_change import routing
from weft.testbed.node_daemon import daemon_files
from weft.testbed.node_daemon.daemon import DEGRADED
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import LinkSpec


def set_rate(network: Handle, name: str, rate_bps: int) -> None:
    """Set the rate of the link called `name`, h0-w0, in both directions; its queues stay.

    Raises:
        ValueError: no such link or rate, or links have no rate in this network.
        OSError: the kernel holds another rate after the change.
    """
    planned(network, network.topology.link(name))  # raises if there is no rate to change
    impair(network, name, Impairment(rate_bps=rate_bps))


def degrade(network: Handle, name: str, rate_bps: int, *, tell: bool = False) -> None:
    """Set the rate of a link; with `tell`, report it, as healthy at its planned rate.

    Raises:
        ValueError: as set_rate() and report(); nothing has changed.
        OSError: the kernel holds another rate after the change.
    """
    if tell:
        _reportable(network, name)
    set_rate(network, name, rate_bps)
    if tell:
        link = planned(network, network.topology.link(name))
        report(network, name, degraded=rate_bps < link.rate_bps)


def report(network: Handle, name: str, *, degraded: bool = True) -> None:
    """Report the link called `name` as degraded, or as healthy again, to the daemons at both ends.

    Raises:
        ValueError: no such link, a link to a host, or a scheme that treats all links alike.
    """
    for node, port, _ in network.both_ends(_reportable(network, name)):
        daemon_files.ask(
            network.run.directory,
            network.topology.naming.name(node),
            f"{DEGRADED} {port} {int(degraded)}",
        )


def _reportable(network: Handle, name: str) -> int:
    """Return the link called `name`; ValueError if daemons make no use of a report about it."""
    scheme, _ = parse(routing(network.run.journal))
    able = [name for name, entry in registry.schemes().items() if entry.handles_degraded_links]
    if scheme not in able:
        raise ValueError(
            f"scheme {scheme} treats degraded links as any other; bring the network up with "
            f"{' or '.join(able)}"
        )
    link = network.topology.link(name)
    if network.topology.level[link] == 0:
        raise ValueError(f"{name} leads to a host: there is no other way to it")
    return link


def one_at_a_time(network: Handle) -> None:
    """Set the burst of every link to one packet, so that packets are serialized as on a wire.

    With larger bursts, hardly any queue forms at low loads.  Links lose a few per cent of their
    rate if they are slow, because a bucket this small does not make up for a late timer.  Under the
    virtual clock no link has bursts.
    """
    if clock.is_virtual():
        return
    for node in network.local_nodes:
        with network.at(node) as socket:
            for end in network.plan.ends[node].values():
                link = planned(network, end.link)
                # HTB sends while the bucket is not overdrawn, so one byte passes one packet
                socket.request(tc.classes(end, link, burst=1, flags=0))


def planned(network: Handle, link: int) -> LinkSpec:
    """Return the specification of `link` when the network came up.

    Raises:
        ValueError: links have no rate in this network.
    """
    spec = network.plan.link_spec(link)
    if spec is None:
        raise ValueError("the links of this network have no rate")
    return spec
