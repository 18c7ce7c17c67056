"""data_plane/layers.bpf.c, loaded once and attached at every host's port, by whose filters it is
held: hosts choose layers.

    attach(net, registry.rule("fatpaths:layers=9").hosts)
    with closing(LayerProgram.open(net)) as program:
        program.set({"layers": 9, "trigger": Trigger.CUT, ...})
        program.counters()

What a flow's packets carry, and when that changes, is in the program and
daemons/fatpaths/layer_choice.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from weft.daemons.fatpaths.forwarding import MOST_LAYERS
from weft.testbed.linux import btf, libbpf, tc
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of

PROGRAM = "layers.bpf.o"
LEAVE, ARRIVE = "leave", "arrive"
# Of the filters: at ingress behind what swallows packets in a silent failure and what measures
# reordering, ahead of what delays them.
PRIORITY = 6
FLOWS_PER_HOST, LEAST_FLOWS, MOST_FLOWS = 1 << 10, 1 << 14, 1 << 20
LAYERS = 64  # in struct counters
COUNTERS = f"{LAYERS + 5}Q"
# struct key: addresses and ports in network order, and of the protocol the octet that is not 0
KEY = "!IIHHBxxx"
BATCH = 1 << 12


class LayerCounts(NamedTuple):
    """What all hosts have done since the program was attached.

    packets: that left, by layer.  flows: that began.
    gaps, cuts, echoes, errors: how often a flow drew a layer again, by the reason.
    """

    packets: tuple[int, ...]
    flows: int
    gaps: int
    cuts: int
    echoes: int
    errors: int


def attach(net: NetworkHandle, settings: Mapping[str, int]) -> None:
    """Load the program and attach it at the port of every host of `net`, which choose layers by
    `settings` from then on; BpfError if the kernel does not take it."""
    hosts = net.topology.servers
    entries = {"flows": max(LEAST_FLOWS, min(hosts * FLOWS_PER_HOST, MOST_FLOWS))}
    with libbpf.Object(libbpf.DIRECTORY / PROGRAM, entries=entries) as program:
        _set(program.map("all_settings", "=I", f"={_layout().size}s"), settings)
        for node in range(hosts):
            messages: list[NetlinkMessage] = []
            for port, *_ in net.topology.ports(node):
                index, dev = net.ifindex(node, port), device(net, node, port)
                messages.append(tc.clsact(index, dev))
                for name, hook in ((ARRIVE, tc.INGRESS_HOOK), (LEAVE, tc.EGRESS_HOOK)):
                    fd = program.program_fd(name)
                    messages.append(
                        libbpf.filter_message(index, dev, fd, name, hook=hook, priority=PRIORITY)
                    )
            with closing(netlink_of(net, node)) as socket:
                socket.request(messages)


def _layout() -> btf.StructLayout:
    """Of struct settings; BpfError if the program has not been compiled."""
    path = libbpf.DIRECTORY / PROGRAM
    if not path.exists():
        raise libbpf.missing(path)
    return btf.layouts(path)["settings"]


def _set(chosen: libbpf.Map, settings: Mapping[str, int]) -> None:
    if settings.get("layers", 0) > MOST_LAYERS:
        raise ValueError(
            f"hosts choose among at most {MOST_LAYERS} layers, got {settings['layers']}"
        )
    chosen[0,] = (_layout().pack(settings),)


def program_of(net: NetworkHandle) -> int | None:
    """The id of the program that is attached at the hosts of `net`, None if there is none."""
    if net.topology.server_centric:
        return None
    port, *_ = net.topology.ports(0)[0]
    with closing(netlink_of(net, 0)) as socket:
        return libbpf.program_at(socket, net.ifindex(0, port), PRIORITY, hook=tc.EGRESS_HOOK)


class FlowKey(NamedTuple):
    """A flow as its hosts know it: addresses of servers, and ports, which only TCP and UDP have."""

    source: int
    destination: int
    source_port: int
    destination_port: int
    protocol: int


class LayerProgram:
    """The program at the hosts of a network, until close()."""

    def __init__(self, program: int) -> None:
        """Raises BpfError if there is no program of this id."""
        self._maps = libbpf.Attached(program)
        self._layout = _layout()
        self._chosen = self._maps.map("all_settings", "=I", f"={self._layout.size}s")
        counted = self._maps.map("counted", "=I", f"={COUNTERS}")
        every = struct.Struct(f"={COUNTERS * libbpf.possible_cpus()}")
        self._counted = libbpf.Map(counted.fd, struct.Struct("=I"), every)

        self._flow = btf.layouts(libbpf.DIRECTORY / PROGRAM)["flow"]
        self._flows = self._maps.map("flows", KEY, f"={self._flow.size}s")

    @classmethod
    def open(cls, net: NetworkHandle) -> LayerProgram:
        """The program that is attached at the hosts of `net`; ValueError if there is none."""
        program = program_of(net)
        if program is None:
            raise ValueError(
                f"the hosts of run {net.identity.id} choose no layers: `weft up --routing "
                f"fatpaths` lets them"
            )
        return cls(program)

    def close(self) -> None:
        """Let go of the maps."""
        self._maps.close()

    def set(self, settings: Mapping[str, int]) -> None:
        """Let hosts choose by `settings` from now on; those that are not given are 0, and without
        layers packets leave as they are.  ValueError for more layers than there can be."""
        _set(self._chosen, settings)

    def settings(self) -> dict[str, int]:
        """What hosts choose by."""
        return {name: value for name, (value,) in self._layout.unpack(*self._chosen[0,]).items()}

    def counters(self) -> LayerCounts:
        """What hosts have done so far."""
        each, fields = self._counted[0,], LAYERS + 5
        sums = [sum(each[field::fields]) for field in range(fields)]
        return LayerCounts(tuple(sums[:LAYERS]), *sums[LAYERS:])

    def layers_of_flows(self) -> dict[FlowKey, int]:
        """The layer of each flow of all hosts; the map forgets flows when there are more than it
        holds."""
        each = self._flows.batch(BATCH)
        return {FlowKey(*key): self._flow.unpack(value)["layer"][0] for key, (value,) in each}


def counted(net: NetworkHandle) -> dict[str, Any] | None:
    """What the hosts of `net` have done, JSON-able, with packets of the layers that they choose
    among; None if they choose none."""
    if program_of(net) is None:
        return None
    with closing(LayerProgram.open(net)) as program:
        found = program.counters()._asdict()
        layers = program.settings()["layers"]
    return {**found, "packets": list(found["packets"][:layers])}
