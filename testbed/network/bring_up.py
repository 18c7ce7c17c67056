"""The stages of bringing a network up.

In order: namespaces, links, queues, addresses, routes, offloads, the read-back of all this, the
programs of the data plane, and the daemons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.daemons.core.contract import IN_TRANSIT, REWRITES
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane import layer_program, transit_rewrite
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.linux import clock, netlink, netns
from weft.testbed.linux.interface import Offloads
from weft.testbed.linux.process import allow_descriptors
from weft.testbed.machine import doctor, machine
from weft.testbed.network import outside, read_back, status
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import control, sealed_channel
from weft.testbed.node_daemon.daemon_files import Daemons
from weft.testbed.plan.network_plan import (
    BRIDGE_FILTER_SYSCTL,
    SEED_SYSCTL,
    NetworkPlan,
    node_interfaces,
)
from weft.testbed.plan.part import PlanPart
from weft.testbed.plan.plane_selection import Planes, planes
from weft.testbed.runs import hosts_file, node_command, run
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

# up to so many have a process each; switching between more takes longer than their work
DAEMONS_PER_PROCESSOR = 16
Stage = tuple[str, Callable[[], object]]


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    packed: the number of processes that share the daemons; 0: one for each daemon; None: see
        daemon_processes().
    detached: the run outlives this process; its supervisor keeps it.
    authenticated: daemons accept messages from daemons of this run only; see SECURITY.md.
    restart: start daemons again that die.
    outwards: servers reach the machine's network; see outside.py.
    part: of this machine, of a network over several.
    key: of all daemons of such a network; None: a new one.
    progress: called with the name of each stage as it begins.
    """

    packed: int | None = None
    detached: bool = False
    authenticated: bool = True
    restart: bool = True
    outwards: bool = False
    part: PlanPart | None = None
    key: bytes | None = None
    progress: Callable[[str], None] = lambda stage: None


def kernel_properties() -> dict[str, bool]:
    """Return the arguments of NetworkPlan that describe this kernel, by name."""
    sysctls = {"seeded": SEED_SYSCTL, "bridge_filter": BRIDGE_FILTER_SYSCTL}
    return {
        **{name: Path("/proc/sys/net", path).exists() for name, path in sysctls.items()},
        "virtual": clock.is_virtual(),
    }


def with_hop_cost(link: LinkSpec | None) -> LinkSpec | None:
    """Return `link` with the processor time of a hop under the virtual clock."""
    return replace(link, hop_ns=clock.hop_ns()) if link and clock.hop_ns() else link


def prepared(
    topology: Topology,
    link: LinkSpec | None,
    host_link: LinkSpec | None,
    own_links: Mapping[int, LinkSpec] | None,
    scheme: str,
    options: RunOptions,
) -> tuple[NetworkPlan, Planes]:
    """Return the plan of a network whose run has no name yet, and how `scheme` routes it.

    Args: see RunningNetwork.create().

    Raises:
        ValueError: no such network can be built, or this kernel lacks a feature for it.
    """
    link = with_hop_cost(link)
    host_link = with_hop_cost(host_link)
    specs = topology.own_links if own_links is None else own_links
    own_links = {number: spec for number in specs if (spec := with_hop_cost(specs[number]))}
    how = planes(topology, scheme, link, host_link=host_link, own_links=own_links)
    plan = NetworkPlan(
        run.UNNAMED,
        topology,
        link,
        static=how.static,
        ipv6=how.ipv6,
        host_link=host_link,
        own_links=own_links,
        part=options.part,
        **kernel_properties(),
    )
    require_features(plan, scheme, how, outwards=options.outwards)
    here = {node: how.configs[node] for node in plan.nodes if node in how.configs}
    return plan, how._replace(configs=here)


def require_processes(packed: int | None) -> None:
    """Raise ValueError unless `packed` processes can share the daemons."""
    if packed is not None and packed < 0:
        raise ValueError(
            f"daemons are shared by 1 process or more (0: one for each node), not by {packed}"
        )


def daemon_processes(packed: int | None, daemons: int) -> int:
    """Return how many processes serve `daemons` daemons.

    Args:
        packed: the number of processes to share the daemons; 0: one for each daemon.  None: one
            for each processor where that is more than DAEMONS_PER_PROCESSOR daemons per processor,
            else one for each daemon.
        daemons: the number of daemons.
    """
    if packed is None:
        processors = len(os.sched_getaffinity(0))
        packed = processors if daemons > DAEMONS_PER_PROCESSOR * processors else 0
    return min(packed or daemons, daemons)


def processes_with_room(plan: NetworkPlan, how: Planes, packed: int | None) -> int:
    """Return how many processes serve the daemons of `how`; see daemon_processes().

    Raises:
        ValueError: this machine has no room for them and `plan`, or `packed` is negative.
    """
    require_processes(packed)
    processes = daemon_processes(packed, len(how.configs))
    sizes = {"namespaces": len(plan.nodes), "links": len(plan.links) + len(plan.cut_ends)}
    machine.require_room(plan.topology.spec, **sizes, processes=processes)
    return processes


def require_features(
    plan: NetworkPlan, scheme: str, how: Planes, *, outwards: bool = False
) -> None:
    """Raise ValueError if this kernel lacks a feature that `scheme` or the links of `plan` need.

    With `outwards`, also if hosts cannot get a way out.
    """
    if outwards:
        outside.require_way_out(plan.names, plan.topology.servers)
    needed = ["rewriting"] if how.needs & REWRITES else []
    # the kernel for virtual time has them, and looking would change its random numbers
    balanced = how.balancing and not plan.virtual
    if balanced or how.needs & IN_TRANSIT or how.hosts:
        needed += ["clsact and cls_bpf", "bpf", "libbpf"]
    needed += ["ipv6"] if plan.ipv6 else []
    for feature in needed:
        doctor.require(feature, f"scheme {scheme}")
    for link in plan.link_specs:
        if link.delay_us and not plan.virtual:
            for feature in ("netem", "ifb"):
                doctor.require(feature, f"a delay of {link.delay_us} us")


def perform(stages: list[Stage], progress: Callable[[str], None]) -> dict[str, float]:
    """Run each stage after a call of `progress` with its name; return seconds by stage."""
    durations_s = {}
    for stage, work in stages:
        progress(stage)
        began_s = clock.monotonic()
        work()
        durations_s[stage] = clock.monotonic() - began_s
    return durations_s


def all_stages(
    network: Handle, how: Planes, processes: int, lock: int | None, options: RunOptions
) -> list[Stage]:
    """Return all stages, from the namespaces to the daemons.

    Args:
        network: the network.
        how: how its scheme routes.
        processes: the number of processes that share the daemons.
        lock: descriptor of the run's lock if the run is to outlive this process; its supervisor
            holds it, also where there are no daemons.
        options: of the run.
    """
    stages = kernel_stages(network) + program_stages(network, how)
    if options.outwards:
        stages.append(("way out", partial(outside.connect_servers, network)))
    if how.configs or lock is not None:
        supervision = {"processes": processes, "keep": lock, "restart": options.restart}
        stages.append(("daemons", partial(_launch, network, how.configs, **supervision)))
    if how.configs:
        stages.append(("neighbours", partial(status.wait_for_neighbours, network)))
        stages.append(("convergence", partial(status.wait_until_converged, network)))
    return stages


def kernel_stages(network: Handle) -> list[Stage]:
    """Return the stages that make what the plan says, and read it back."""
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
    """Return the stages that attach the eBPF programs of `how`."""
    stages: list[Stage] = []
    if how.balancing:
        stages.append(("data plane", partial(_attach_data_plane, network, how.balancing)))
    if how.needs & IN_TRANSIT:
        stages.append(("transit", partial(transit_rewrite.attach, network)))
    if how.hosts:
        stages.append(("hosts", partial(layer_program.attach, network, how.hosts)))
    return stages


def make_credentials(network: Handle, options: RunOptions) -> None:
    """Write the keys and sequence numbers by which daemons authenticate each other's messages."""
    plan = network.plan
    nodes = network.topology.nodes
    counts = ([len(plan.one_hop(node, port)) for port in plan.ends[node]] for node in range(nodes))
    sealed_channel.create_keys(
        network.run.directory, authenticated=options.authenticated, key=options.key
    )
    sealed_channel.create_sequences(
        network.run.directory, nodes, max(map(sealed_channel.row_words, counts))
    )


def _launch(network: Handle, configs: Mapping[int, NodeConfig], **supervision: Any) -> None:
    programs = program_of(network), network.topology.servers, transit_rewrite.program_of(network)
    daemons = Daemons(node_interfaces(network.plan, configs), configs, *programs)
    control.launch(network.run, daemons, nodes=network.topology.nodes, **supervision)


def _attach_data_plane(network: Handle, scheme: str) -> None:
    """Attach the data plane's program; the filters keep it when its descriptors are closed."""
    link = network.plan.link
    trim_bytes = link.trim_packets * link.frame_bytes if link else 0
    with DataPlane.load(network, scheme, routes=False, trim_bytes=trim_bytes) as plane:
        plane.attach()


def _make_namespaces(network: Handle) -> None:
    plan = network.plan
    allow_descriptors(3 * len(plan.nodes) + 200)
    names = [plan.namespace(node) for node in plan.nodes]
    created: list[netns.Netns] = []
    try:
        netns.create(names, lambda position: plan.sysctls(plan.nodes[position]), created)
    finally:
        network.spaces = dict(zip(plan.nodes, created, strict=False))
    _write_names(network)
    node_command.write_remote_shell(network.run)


def _write_names(network: Handle) -> None:
    """Write the file by which every node resolves the names and labels of all others."""
    plan = network.plan
    naming = network.topology.naming
    entries = []
    for node, name in enumerate(plan.names):
        if not network.topology.is_crossbar(node):
            names = list(dict.fromkeys([name, naming.label(node)]))
            address = plan.address(node)
            entries += [(family.address(address), names) for family in plan.families]
    hosts_file.write(network.run.directory, entries)
    hosts_file.link(network.run.directory, map(plan.namespace, plan.nodes))


def _make_links(network: Handle) -> None:
    plan = network.plan
    messages = {node: plan.devices(node) for node in plan.nodes}
    for link in plan.links:
        near, _, far, _ = plan.orientation(link)
        messages[near].append(plan.veth(link, network.spaces[far].fd))
    _request_each(network, messages.__getitem__)
    with closing(netlink.Socket()) as underlay:
        tunnels = (
            plan.tunnel(node, port, network.spaces[node].fd) for node, port, _ in plan.cut_ends
        )
        underlay.request(tunnels)


def _request_each(network: Handle, messages: Callable[[int], list[netlink.NetlinkMessage]]) -> None:
    """Send the requests `messages(node)` in the namespace of each node."""
    for node, space in network.spaces.items():
        space.netlink.request(messages(node))
        clock.let_kernel_work()


def _turn_offloads_off(network: Handle) -> None:
    if not network.plan.link_specs:
        return

    servers = [node for node in network.local_nodes if node < network.topology.servers]

    def work() -> None:
        for node in servers:
            netns.enter(network.spaces[node].fd)
            offloads = Offloads()
            for end in network.plan.ends[node].values():
                offloads.turn_off(end.dev)
            offloads.close()

    netns.in_thread(work)
