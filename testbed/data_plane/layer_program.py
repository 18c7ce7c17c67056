"""Loader of layers.bpf.c, by which hosts choose layers: loaded once, attached at every host's port.

    attach(net, registry.rule("fatpaths:layers=9").hosts)
    with closing(LayerProgram.open(net)) as program:
        program.set({"layers": 9, "trigger": Trigger.CUT, ...})
        program.counters()

The filters hold the program.  layer_choice.h says when a flow changes its layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from weft.daemons.routing.route_addresses import MOST_LAYERS
from weft.testbed.data_plane.port_programs import (
    CounterMap,
    PortFilter,
    attach_at_ports,
    program_at,
)
from weft.testbed.linux import btf, libbpf, tc_filters
from weft.testbed.runs.network_handle import NetworkHandle

PROGRAM = "layers.bpf.o"
LEAVE, ARRIVE = "leave", "arrive"
# of the filters: at ingress after those that drop packets in a silent failure and that measure
# reordering, before the one that delays packets
PRIORITY = 6
FLOWS_PER_HOST, LEAST_FLOWS, MOST_FLOWS = 1 << 10, 1 << 14, 1 << 20
LAYERS = 64  # in struct counters
COUNTERS = LAYERS + 8
# struct key: addresses and ports in network order, and of the protocol the octet that is not 0
KEY = "!IIHHBxxx"
BATCH = 1 << 12


class LayerCounts(NamedTuple):
    """Counters of all hosts since the program was attached.

    packets: sent packets, by layer.
    flows: flows begun.
    gaps, cuts, echoes, errors, drains, cells, repeats: draws of another layer for a flow, by
        reason; repeats: of acknowledgements, as data came again.
    """

    packets: tuple[int, ...]
    flows: int
    gaps: int
    cuts: int
    echoes: int
    errors: int
    drains: int
    cells: int
    repeats: int


def attach(net: NetworkHandle, settings: Mapping[str, int]) -> None:
    """Load the program with `settings` and attach it at the ports of every host of `net`.

    Raises:
        BpfError: the kernel refused the program.
    """
    hosts = [node for node in net.local_nodes if node < net.topology.servers]
    entries = {"flows": max(LEAST_FLOWS, min(len(hosts) * FLOWS_PER_HOST, MOST_FLOWS))}
    with libbpf.Object(libbpf.DIRECTORY / PROGRAM, entries=entries) as program:
        _set(program.map("all_settings", "=I", f"={_layout().size}s"), settings)
        filters = [
            PortFilter(ARRIVE, program.program_fd(ARRIVE), tc_filters.INGRESS_HOOK),
            PortFilter(LEAVE, program.program_fd(LEAVE), tc_filters.EGRESS_HOOK),
        ]
        for node in hosts:
            attach_at_ports(net, node, filters, PRIORITY)


def _layout() -> btf.StructLayout:
    """Return the layout of struct settings; BpfError if the program is not compiled."""
    return btf.layouts(libbpf.DIRECTORY / PROGRAM)["settings"]


def _set(entries: libbpf.Map, settings: Mapping[str, int]) -> None:
    if settings.get("layers", 0) > MOST_LAYERS:
        raise ValueError(
            f"hosts choose among at most {MOST_LAYERS} layers, got {settings['layers']}"
        )
    entries[0,] = (_layout().pack(settings),)


def program_of(net: NetworkHandle) -> int | None:
    """Return the id of the program attached at the hosts of `net`, None without one."""
    if net.topology.server_centric:
        return None
    host = net.local_nodes[0]  # a machine with nodes of a fabric has hosts, or no such program
    port, *_ = net.topology.ports(host)[0]
    return program_at(net, host, port, PRIORITY, tc_filters.EGRESS_HOOK)


class FlowKey(NamedTuple):
    """A flow at its hosts: addresses of servers, protocol, and ports (0 but for TCP and UDP)."""

    source: int
    destination: int
    source_port: int
    destination_port: int
    protocol: int


class LayerProgram:
    """The program at the hosts of a network, until close()."""

    def __init__(self, program: int) -> None:
        """Open the maps of the program with this id; BpfError if there is none."""
        self._maps = libbpf.Attached(program)
        self._layout = _layout()
        self._settings = self._maps.map("all_settings", "=I", f"={self._layout.size}s")
        self._counted = CounterMap(self._maps, "counted", COUNTERS)
        self._flow = btf.layouts(libbpf.DIRECTORY / PROGRAM)["flow"]
        self._flows = self._maps.map("flows", KEY, f"={self._flow.size}s")

    @classmethod
    def open(cls, net: NetworkHandle) -> LayerProgram:
        """Open the program attached at the hosts of `net`; ValueError if there is none."""
        program = program_of(net)
        if program is None:
            raise ValueError(
                f"the hosts of run {net.identity.id} choose no layers: `weft up --routing "
                f"fatpaths` lets them"
            )
        return cls(program)

    def close(self) -> None:
        """Close the maps."""
        self._maps.close()

    def set(self, settings: Mapping[str, int]) -> None:
        """Set the hosts' settings; missing ones are 0, and with 0 layers packets stay unchanged.

        Raises:
            ValueError: too many layers.
        """
        _set(self._settings, settings)

    def settings(self) -> dict[str, int]:
        """Return the hosts' settings, by name."""
        return {name: value for name, (value,) in self._layout.unpack(*self._settings[0,]).items()}

    def counters(self) -> LayerCounts:
        """Return the sum of all hosts' counters."""
        sums = self._counted.sums()
        return LayerCounts(tuple(sums[:LAYERS]), *sums[LAYERS:])

    def layers_of_flows(self) -> dict[FlowKey, int]:
        """Return the layer of each flow of all hosts; a full map drops its oldest flows."""
        entries = self._flows.batch(BATCH)
        return {FlowKey(*key): self._flow.unpack(value)["layer"][0] for key, (value,) in entries}


def counted(net: NetworkHandle) -> dict[str, Any] | None:
    """Return the counters of the hosts of `net` for JSON; None if they choose no layers."""
    if program_of(net) is None:
        return None
    with closing(LayerProgram.open(net)) as program:
        counts = program.counters()._asdict()
        layers = program.settings()["layers"]
    return {**counts, "packets": list(counts["packets"][:layers])}
