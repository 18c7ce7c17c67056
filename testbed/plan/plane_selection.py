"""What carries a scheme out on the kernel: fixed routes, daemons, the data plane of a switch
fabric, or the last two together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from weft.daemons.core import registry
from weft.daemons.core.capabilities import Capability
from weft.daemons.core.node_config import NodeConfig, Options
from weft.daemons.core.scheme import UNSHAPED_KBPS, Scheme
from weft.daemons.core.selection_rule import KERNEL, NO_QUEUES
from weft.testbed.linux import clock
from weft.testbed.plan.network_plan import require_indexes
from weft.topologies.core.grammar import parse, unknown, unparse
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

NONE = "none"  # no routes at all


class Planes(NamedTuple):
    """static: whether routes are fixed.  configs: what each daemon starts from, by node; empty:
    there are none.
    balancing: the spec of the data plane, "" for none.  needs: the capabilities that the daemons
        need.
    hosts: what hosts do to choose among layers, see SelectionRule; empty: nothing."""

    static: bool = False
    configs: Mapping[int, NodeConfig] = {}
    balancing: str = ""
    needs: frozenset[type[Capability]] = frozenset()
    hosts: Mapping[str, int] = {}


def planes(
    topology: Topology, spec: str, link: LinkSpec | None, *, host_link: LinkSpec | None = None
) -> Planes:
    """What carries out the scheme `spec` (none: nothing does) on `topology` with links like `link`,
    those of hosts like `host_link`.

    ValueError says in one line what is wrong with the scheme or its parameters, or why it does not
    go with such a network.
    """
    require_indexes(topology)  # before a configuration of each of its nodes is made
    if spec == NONE:
        return Planes()
    if parse(spec)[0] not in registry.schemes():
        raise ValueError(unknown("scheme", parse(spec)[0], {NONE, *registry.schemes()}))
    scheme, options = registry.checked(topology, spec)
    if link is None:
        check_without_rate(scheme, spec, options)
    elif link.trim_packets:
        check_trims(scheme, spec)
    link_kbps = link.rate_bps // 1000 if link else UNSHAPED_KBPS
    delayed = any(each and each.delay_us for each in (link, host_link)) and not clock.is_virtual()
    configs = registry.configure(topology, spec, link_kbps=link_kbps)
    rule = scheme.rule(options)
    return Planes(
        not scheme.machine,
        configs,
        balancing(scheme, spec, delayed),
        scheme.needs,
        rule.hosts if rule else {},
    )


def told_of_links(
    topology: Topology, link: LinkSpec | None, own: Mapping[int, LinkSpec]
) -> LinkSpec | None:
    """What a scheme is told that links are like, where some have `own` specs: `link`, or the
    slowest if every one has its own; with the longest delay of all, for schemes that cannot do with
    any."""
    found = link
    if own and len(own) == len(topology.links):
        found = min(own.values(), key=lambda each: each.rate_bps)
    longest = max((each.delay_us for each in own.values()), default=0)
    return replace(found, delay_us=max(found.delay_us, longest)) if found else None


def check_without_rate(scheme: Scheme, spec: str, options: Options) -> None:
    """ValueError if `spec` asks for what only links with a rate have: queues, or a rate to be
    compared with."""
    chosen = balancing(scheme, spec, delayed=False)
    if chosen and registry.rule(chosen).asks_queues:
        raise ValueError(f"{spec}: {NO_QUEUES}")
    if options.get("rate_kbps"):
        raise ValueError(
            f"{spec}: links have no rate of which rate_kbps could find them short; give them one"
        )


def check_trims(scheme: Scheme, spec: str) -> None:
    """ValueError unless switches that carry out `spec` can trim packets: those that choose ports
    themselves."""
    chosen = balancing(scheme, spec, delayed=False)
    if not chosen or registry.rule(chosen).rule == KERNEL:
        raise ValueError(
            f"{spec} leaves packets to the kernel, which trims none; take a scheme such as "
            f"vlb or rps"
        )


def balancing(scheme: Scheme, spec: str, delayed: bool) -> str:
    """What of `spec` is for the data plane; "" if the scheme has none, or if the kernel's own
    routes do.

    delayed: whether links hold packets back, which the data plane's program would miss; ValueError
        unless routes do.
    """
    if not scheme.selection:
        return ""
    name, given = parse(spec)
    own = {key: value for key, value in given.items() if key in scheme.selection.parameters}
    chosen = unparse(name, own)
    if delayed:
        if registry.rule(chosen).rule == KERNEL:
            return ""
        raise ValueError(
            f"scheme {spec} and a delay exclude each other: what a delay holds back misses "
            f"the program"
        )
    return chosen


def is_static(spec: str) -> bool:
    """Whether the routes of `spec` are fixed."""
    return spec != NONE and registry.scheme(spec)[0].machine is None


def has_daemons(spec: str) -> bool:
    """Whether daemons route by `spec`."""
    return spec != NONE and registry.scheme(spec)[0].machine is not None
