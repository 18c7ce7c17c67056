"""Select how a scheme routes on the kernel: fixed routes, daemons, or a data plane.

The scheme of a running fabric's data plane can change, as far as its daemons' routes allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypedDict

from weft.daemons.core import registry
from weft.daemons.core.contract import Capability
from weft.daemons.core.node_config import NodeConfig, Options
from weft.daemons.core.scheme import KERNEL, NO_QUEUES, UNSHAPED_KBPS, Scheme
from weft.testbed.linux import clock
from weft.testbed.plan.network_plan import require_indexes
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

NONE = "none"  # no routes at all
MOST_ROUTES = 1 << 20  # of all switches in the data plane's maps


class Planes(NamedTuple):
    """The means by which a scheme routes on the kernel.

    static: True if routes are fixed.
    ipv6: True if the nodes have IPv6, too.
    configs: the configuration of each daemon, by node; empty without daemons.
    balancing: the spec of the data plane, "" for none.
    needs: capabilities of the daemons.
    hosts: how hosts choose among layers, see SelectionRule; empty if they do not.
    """

    static: bool = False
    ipv6: bool = False
    configs: Mapping[int, NodeConfig] = {}
    balancing: str = ""
    needs: frozenset[type[Capability]] = frozenset()
    hosts: Mapping[str, int] = {}


def check_scheme(
    topology: Topology,
    spec: str,
    link: LinkSpec | None,
    *,
    host_link: LinkSpec | None = None,
    own_links: Mapping[int, LinkSpec] | None = None,
    virtual: bool = False,
) -> None:
    """Raise what planes() raises, without configuring every daemon, which takes much longer.

    Args: see planes().
        virtual: the network will have a virtual clock.
    """
    slowest = scheme_link(topology, link, own_links or {})
    _unconfigured(topology, spec, slowest, host_link, virtual=virtual)


def planes(
    topology: Topology,
    spec: str,
    link: LinkSpec | None,
    *,
    host_link: LinkSpec | None = None,
    own_links: Mapping[int, LinkSpec] | None = None,
) -> Planes:
    """Return how the scheme `spec` routes `topology`.

    Args:
        topology: the network as it is wired.
        spec: the scheme and its options, or NONE.
        link: of every link; None: as fast as the machine.
        host_link: of links between hosts and switches; None: like all others.
        own_links: of links that differ, by link.

    Raises:
        ValueError: no such scheme or option, or it cannot route this network; one line says why.
    """
    link = scheme_link(topology, link, own_links or {})
    selected = _unconfigured(topology, spec, link, host_link, virtual=clock.is_virtual())
    if spec == NONE:
        return selected
    link_kbps = link.rate_bps // 1000 if link else UNSHAPED_KBPS
    return selected._replace(configs=registry.configure(topology, spec, link_kbps=link_kbps))


def _unconfigured(
    topology: Topology,
    spec: str,
    link: LinkSpec | None,
    host_link: LinkSpec | None,
    *,
    virtual: bool,
) -> Planes:
    """Return planes() without `configs`."""
    require_indexes(topology.size)
    if spec == NONE:
        return Planes()
    if parse(spec)[0] not in registry.schemes():
        schemes = {NONE, *registry.schemes()}
        raise ValueError(registry.unknown_scheme(parse(spec)[0], schemes))
    scheme, options = registry.checked(topology, spec)
    if link is None:
        check_without_rate(scheme, spec, options)
    elif link.trim_packets:
        check_trims(scheme, spec)
    delays_us = [each_link.delay_us for each_link in (link, host_link) if each_link]
    rule = scheme.rule(options)
    hosts = rule.hosts if rule else {}
    data_plane = balancing(scheme, spec, any(delays_us) and not virtual)
    if data_plane:
        check_routes(topology, spec, hosts.get("layers", 0))
    fixed = fixed_routes(spec)
    return Planes(**fixed, balancing=data_plane, needs=scheme.needs, hosts=hosts)


def scheme_link(
    topology: Topology, link: LinkSpec | None, own_links: Mapping[int, LinkSpec]
) -> LinkSpec | None:
    """Return the one link specification by which a scheme is configured.

    It is `link`, or the slowest of `own_links` if every link has its own, with the longest delay of
    all, because some schemes work with no delay only.
    """
    slowest = link
    if own_links and len(own_links) == len(topology.links):
        slowest = min(own_links.values(), key=lambda spec: spec.rate_bps)
    longest_us = max((spec.delay_us for spec in own_links.values()), default=0)
    return replace(slowest, delay_us=max(slowest.delay_us, longest_us)) if slowest else None


def check_without_rate(scheme: Scheme, spec: str, options: Options) -> None:
    """Raise ValueError if `spec` needs a rate of links: for queues, or to compare with."""
    data_plane = balancing(scheme, spec, delayed=False)
    if data_plane and registry.rule(data_plane).asks_queues:
        raise ValueError(f"{spec}: {NO_QUEUES}")
    if options.get("rate_kbps"):
        raise ValueError(
            f"{spec}: rate_kbps is compared with the rate of links, and these links have none; "
            f"give them one"
        )


def check_routes(topology: Topology, spec: str, layers: int) -> None:
    """Raise ValueError if the data plane has no room for the routes of all switches.

    A switch has routes to every other one with hosts and to its own hosts: in each of `layers`, and
    for addresses without a layer.
    """
    edges = {topology.edge(host) for host in range(topology.servers)}
    routes = (1 + layers) * (len(edges) * (topology.switches - 1) + topology.servers)
    if routes > MOST_ROUTES:
        advice = "take fewer layers" if layers > 1 else "take a smaller network"
        raise ValueError(
            f"{spec} on {topology.spec} needs {routes:,} routes, and switches hold "
            f"{MOST_ROUTES:,} in all; {advice}, or the engine fabric"
        )


def check_trims(scheme: Scheme, spec: str) -> None:
    """Raise ValueError unless switches choose ports themselves under `spec`, and so can trim."""
    data_plane = balancing(scheme, spec, delayed=False)
    if not data_plane or registry.rule(data_plane).rule == KERNEL:
        raise ValueError(
            f"{spec} leaves packets to the kernel, which trims none; take a scheme such as "
            f"vlb or rps"
        )


def balancing(scheme: Scheme, spec: str, delayed: bool) -> str:
    """Return the part of `spec` that configures the data plane.

    Args:
        scheme: the scheme in `spec`.
        spec: the scheme and its options.
        delayed: links delay packets; the data plane's program does not see delayed packets.

    Returns:
        "" if the scheme has no data plane, or if the kernel's own routes do its work.

    Raises:
        ValueError: links delay packets, and the kernel's routes cannot do its work.
    """
    if not scheme.selection:
        return ""
    name, texts = parse(spec)
    own_texts = {key: text for key, text in texts.items() if key in scheme.selection.parameters}
    data_plane = unparse(name, own_texts)
    if not delayed:
        return data_plane
    if registry.rule(data_plane).rule == KERNEL:
        return ""
    raise ValueError(
        f"scheme {spec} and a delay exclude each other: its program does not see delayed packets"
    )


class FixedRoutes(TypedDict):
    """The routes that the topology alone gives, as Planes and NetworkPlan take them."""

    static: bool
    ipv6: bool


def fixed_routes(spec: str) -> FixedRoutes:
    """Return which routes of the scheme `spec` the topology alone gives."""
    if spec == NONE:
        return {"static": False, "ipv6": False}
    scheme, options = registry.scheme(spec)
    return {"static": scheme.machine is None, "ipv6": bool(options.get("ipv6"))}


def is_static(spec: str) -> bool:
    """Return True if the routes of `spec` are fixed."""
    return fixed_routes(spec)["static"]


def has_daemons(spec: str) -> bool:
    """Return True if daemons route by `spec`."""
    return spec != NONE and not is_static(spec)


def daemons_scheme(journal: Mapping[str, Any]) -> str:
    """Return the scheme that the run came up with, by which its daemons still route."""
    return str(journal.get("routing", journal["scheme"]))


def with_change(journal: Mapping[str, Any], spec: str) -> dict[str, Any]:
    """Return the journal of a run after its data plane was changed to `spec`."""
    return {**journal, "scheme": spec, "routing": daemons_scheme(journal)}


def check_change(daemons_spec: str, spec: str) -> None:
    """Raise ValueError unless the routes of daemons of `daemons_spec` serve the rule of `spec`."""
    selection, options = registry.data_plane(spec)
    if selection.check_daemons is None:
        return
    advice = f"take the run down and bring it up with --routing {spec}"
    if parse(daemons_spec)[0] != parse(spec)[0]:
        raise ValueError(
            f"{spec} needs the routes of its own daemons, and those of {daemons_spec} route "
            f"here; {advice}"
        )
    try:
        selection.check_daemons(registry.scheme(daemons_spec)[1], options)
    except ValueError as error:
        raise ValueError(f"{spec}: {error}; {advice}") from None
