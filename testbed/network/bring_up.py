"""The stages of bringing a network up.

In order: namespaces, links, queues, addresses, routes, offloads, the read-back of all this, the
programs of the data plane, and the daemons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from weft.daemons.core.capabilities import IN_TRANSIT, REWRITES
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane import layer_program, transit_program
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.linux import clock, netlink, netns
from weft.testbed.linux.ethtool import Offloads
from weft.testbed.linux.process import allow_descriptors
from weft.testbed.machine import doctor, machine
from weft.testbed.network import nat, read_back, status
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import control, keys, sequence_file
from weft.testbed.node_daemon.daemon_set import Daemons
from weft.testbed.plan.network_plan import (
    BRIDGE_FILTER_SYSCTL,
    SEED_SYSCTL,
    NetworkPlan,
    node_interfaces,
)
from weft.testbed.plan.plane_selection import Planes, planes, told_of_links
from weft.testbed.runs import hosts_file, run
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

# with a process of their own; switching between more takes longer than their work
DAEMONS_PER_PROCESSOR = 16
# in the environment: what the processor takes for each packet that arrives, in ns
HOP_NS = "WEFT_HOP_NS"
Stage = tuple[str, Callable[[], None]]


def kernel_properties() -> dict[str, bool]:
    """What a plan must know of this kernel: `seeded`, `bridge_filter` and `virtual`, as Plan has
    them."""
    found = {"seeded": SEED_SYSCTL, "bridge_filter": BRIDGE_FILTER_SYSCTL}
    return {
        **{what: Path("/proc/sys/net", path).exists() for what, path in found.items()},
        "virtual": clock.is_virtual(),
    }


def with_hop_cost(link: LinkSpec | None) -> LinkSpec | None:
    """`link` with the processor time that a hop is to take in this environment; ValueError if that
    is no time."""
    text = os.environ.get(HOP_NS) or "0"
    if not text.isdecimal():
        raise ValueError(f"${HOP_NS}: {text!r} is no number of nanoseconds")
    return replace(link, hop_ns=int(text)) if link and int(text) else link


def own_links(topology: Topology, given: Mapping[int, LinkSpec] | None) -> dict[int, LinkSpec]:
    """What links that differ from the others are like, with the cost of a hop: what is `given`, or
    the graph's."""
    made = {
        at: with_hop_cost(link)
        for at, link in (topology.own_links if given is None else given).items()
    }
    return {at: link for at, link in made.items() if link}


def draft(
    topology: Topology,
    link: LinkSpec | None,
    host_link: LinkSpec | None,
    own: Mapping[int, LinkSpec],
    how: Planes,
) -> NetworkPlan:
    """The plan of a run that has no name yet."""
    held = kernel_properties()
    return NetworkPlan(
        run.UNNAMED, topology, link, static=how.static, host_link=host_link, own_links=own, **held
    )


def prepared(
    topology: Topology,
    link: LinkSpec | None,
    host_link: LinkSpec | None,
    own: Mapping[int, LinkSpec] | None,
    scheme: str,
    *,
    outwards: bool,
) -> tuple[NetworkPlan, Planes]:
    """The plan of such a network (see Network.create), without a name yet, and what carries
    `scheme` out.

    ValueError if there can be none, or if this kernel cannot do what it needs.
    """
    link, host_link = (with_hop_cost(each) for each in (link, host_link))
    own = own_links(topology, own)
    how = planes(topology, scheme, told_of_links(topology, link, own), host_link=host_link)
    made = draft(topology, link, host_link, own, how)
    require_features(made, scheme, how, outwards=outwards)
    return made, how


def require_processes(packed: int | None) -> None:
    """Raise ValueError unless `packed` processes can share the daemons."""
    if packed is not None and packed < 0:
        raise ValueError(
            f"daemons are shared by 1 process or more (0: one for each node), not by {packed}"
        )


def daemon_processes(packed: int | None, daemons: int) -> int:
    """Return how many processes serve `daemons` daemons.

    Args:
        packed: the number of processes that was asked for, 0 for one for each daemon.  None: as
            many as there are processors, where more than DAEMONS_PER_PROCESSOR daemons share each;
            else one for each daemon.
    """
    if packed is None:
        processors = len(os.sched_getaffinity(0))
        packed = processors if daemons > DAEMONS_PER_PROCESSOR * processors else 0
    return min(packed or daemons, daemons)


def processes_with_room(topology: Topology, how: Planes, packed: int | None) -> int:
    """Return how many processes serve the daemons of `how`; see daemon_processes().

    Raises:
        ValueError: this machine has no room for them and `topology`, or `packed` is negative.
    """
    require_processes(packed)
    processes = daemon_processes(packed, len(how.configs))
    sizes = {"namespaces": topology.nodes, "links": len(topology.links)}
    machine.require_room(topology.spec, **sizes, processes=processes)
    return processes


def require_features(
    plan: NetworkPlan, scheme: str, how: Planes, *, outwards: bool = False
) -> None:
    """ValueError unless this kernel can do what `scheme`, carried out like `how`, and the links of
    `plan` need, and hosts can be given a way out if they are to have one (`outwards`)."""
    if outwards:
        nat.require(plan.names, plan.topology.servers)
    needed = ["rewriting"] if how.needs & REWRITES else []
    needed += ["clsact and cls_bpf", "bpf", "libbpf"] if how.needs & IN_TRANSIT or how.hosts else []
    for feature in needed:
        doctor.require(feature, f"scheme {scheme}")
    for link in plan.link_specs:
        if link.delay_us:
            for feature in ("netem", "ifb"):
                doctor.require(feature, f"a delay of {link.delay_us} us")


def perform(stages: list[Stage], progress: Callable[[str], None]) -> dict[str, float]:
    """Do the work of each stage after telling `progress` its name; how many seconds each took."""
    took = {}
    for stage, work in stages:
        progress(stage)
        began_s = clock.monotonic()
        work()
        took[stage] = clock.monotonic() - began_s
    return took


def all_stages(
    network: Handle,
    how: Planes,
    processes: int,
    keep: int | None,
    *,
    restart: bool,
    outwards: bool = False,
) -> list[Stage]:
    """Everything from the namespaces to the daemons; see daemon_stages() for the arguments.

    outwards: whether servers reach the machine's network.
    """
    made = kernel_stages(network) + program_stages(network, how)
    made += [("way out", partial(nat.make, network))] if outwards else []
    return made + daemon_stages(network, how.configs, processes, keep, restart=restart)


def kernel_stages(network: Handle) -> list[Stage]:
    """Everything that the plan says, and its read-back."""
    plan = network.plan
    return [
        ("namespaces", partial(_make_namespaces, network)),
        ("links", partial(_make_links, network)),
        ("queues", partial(_request_each, network, plan.ports)),
        ("addresses", partial(_request_each, network, plan.addresses)),
        ("routes", partial(_request_each, network, plan.routes)),
        ("offloads", partial(_turn_offloads_off, network)),
        ("read back", partial(read_back.check, network)),
    ]


def program_stages(network: Handle, how: Planes) -> list[Stage]:
    """Attach the eBPF programs that `how` needs."""
    stages: list[Stage] = []
    if how.balancing:
        stages.append(("data plane", partial(_attach_data_plane, network, how.balancing)))
    if how.needs & IN_TRANSIT:
        stages.append(("transit", partial(_attach_transit, network)))
    if how.hosts:
        stages.append(("hosts", partial(layer_program.attach, network, how.hosts)))
    return stages


def make_credentials(network: Handle, *, authenticated: bool) -> None:
    """What the network's daemons need to believe each other, also those that are started by hand
    later."""
    plan, nodes = network.plan, network.topology.nodes
    counts = ([len(plan.one_hop(node, port)) for port in plan.ends[node]] for node in range(nodes))
    keys.create(network.run.directory, authenticated=authenticated)
    sequence_file.create(network.run.directory, nodes, max(map(sequence_file.words, counts)))


def daemon_stages(
    network: Handle,
    configs: Mapping[int, NodeConfig],
    processes: int,
    keep: int | None,
    *,
    restart: bool,
) -> list[Stage]:
    """Start the daemons and wait for them; a detached run without daemons has a supervisor that
    only keeps it."""
    if not configs and keep is None:
        return []
    stages: list[Stage] = [
        ("daemons", partial(_launch, network, configs, processes, keep, restart))
    ]
    if configs:
        stages.append(("neighbours", partial(status.wait_for_neighbours, network)))
        stages.append(("convergence", partial(status.wait_until_converged, network)))
    return stages


def _launch(
    network: Handle,
    configs: Mapping[int, NodeConfig],
    processes: int,
    keep: int | None,
    restart: bool,
) -> None:
    programs = program_of(network), network.topology.servers, transit_program.program_of(network)
    daemons = Daemons(node_interfaces(network.plan, configs), configs, *programs)
    nodes = network.topology.nodes
    control.launch(
        network.run, daemons, nodes=nodes, processes=processes, keep=keep, restart=restart
    )


def _attach_data_plane(network: Handle, scheme: str) -> None:
    """Let the eBPF program choose ports; the filters hold it after its descriptors are closed."""
    link = network.plan.link
    trim_bytes = link.trim_packets * link.frame_bytes if link else 0
    with DataPlane.load(network, scheme, routes=False, trim_bytes=trim_bytes) as plane:
        plane.attach()


def _attach_transit(network: Handle) -> None:
    """Let the eBPF program rewrite the destinations of transit packets, as the servers' daemons
    will say."""
    transit_program.attach(network)


def _make_namespaces(network: Handle) -> None:
    plan, nodes = network.plan, network.topology.nodes
    allow_descriptors(3 * nodes + 200)
    netns.create([plan.namespace(node) for node in range(nodes)], plan.sysctls, network.spaces)
    _name_nodes(network)


def _name_nodes(network: Handle) -> None:
    """Let every node find the others by their names and labels."""
    plan, naming = network.plan, network.topology.naming
    known = []
    for node, name in enumerate(plan.names):
        if not network.topology.is_crossbar(node):
            known.append(
                (dotted(plan.address(node)), list(dict.fromkeys([name, naming.label(node)])))
            )
    hosts_file.write(network.run.directory, known)
    hosts_file.link(network.run.directory, map(plan.namespace, range(network.topology.nodes)))


def _make_links(network: Handle) -> None:
    plan = network.plan
    messages = [plan.devices(node) for node in range(network.topology.nodes)]
    for link in range(len(network.topology.links)):
        near, _, far, _ = plan.orientation(link)
        messages[near].append(plan.veth(link, network.spaces[far].fd))
    _request_each(network, messages.__getitem__)


def _request_each(network: Handle, messages: Callable[[int], list[netlink.NetlinkMessage]]) -> None:
    """Make the changes that `messages` gives for each node."""
    for node, space in enumerate(network.spaces):
        space.netlink.request(messages(node))
        clock.let_kernel_work()


def _turn_offloads_off(network: Handle) -> None:
    if not network.plan.link_specs:
        return

    def work() -> None:
        for node in range(network.topology.servers):
            netns.enter(network.spaces[node].fd)
            offloads = Offloads()
            for end in network.plan.ends[node].values():
                offloads.turn_off(end.dev)
            offloads.close()

    netns.in_thread(work)
