"""The data plane's program: which variant this kernel takes, and how large its maps are for a
network."""

from __future__ import annotations

from collections.abc import Mapping

from weft.testbed.data_plane.plane_records import CACHE_SLOTS
from weft.testbed.linux import btf, libbpf
from weft.topologies.core.topology import Topology

PRIORITY = 20  # of the filter: behind what swallows packets in a silent failure
PROGRAM = "forward"
# How queue lengths are read, the better way first; none is for kernels without BTF.
READERS = {"kfunc": "select.bpf.o", "probe": "select_probe.bpf.o", "none": "select_blind.bpf.o"}
LAYOUT = "select_blind.bpf.o"  # one of them, for its structs
MOST_GROUPS, MOST_ROUTES = 1 << 17, 1 << 20  # a route takes memory only when it is set
# all switches; one switch: as many as in LetFlow
FLOWLETS_BITS, LEAST_FLOWLET_BITS, MOST_FLOWLET_BITS = 19, 10, 16

# a flow is there twice, at its first and last leaf
LEAST_FLOWS, FLOWS_PER_HOST, MOST_FLOWS = 1 << 10, 1 << 6, 1 << 18


def entries(topology: Topology, ports: int) -> dict[str, int]:
    """How many entries each map has for `topology`, whose ports are numbered below `ports`."""
    switches = topology.switches
    return {
        "ports": ports,
        "counted": ports,
        "switches": switches,
        "groups": room(topology),
        "memories": room(topology),
        **dict.fromkeys(("generations", "pending_states", "states"), switches),
        "routes": MOST_ROUTES,
        "cache": switches * CACHE_SLOTS,
        **dict.fromkeys(("flowlets", "recent_flows"), switches << flowlet_bits(switches)),
        "flows": min(MOST_FLOWS, max(LEAST_FLOWS, FLOWS_PER_HOST * topology.servers)),
    }


def room(topology: Topology) -> int:
    """How many groups the maps hold, the same number for each switch: twice one for every host, up
    to a limit."""
    return topology.switches * min(MOST_GROUPS // topology.switches, 2 * topology.servers + 32)


def flowlet_bits(switches: int) -> int:
    """How many flowlets each switch tells apart, as a power of two; none of them is another
    switch's."""
    return max(
        LEAST_FLOWLET_BITS, min(MOST_FLOWLET_BITS, FLOWLETS_BITS - (switches - 1).bit_length())
    )


FIELDS = {
    "rule",
    "seed",
    "tier",
    "reader",
    "flowlet_bits",
    "digits",
    "hosts",
}  # that every switch has, whatever its rule


def switch_layout() -> btf.StructLayout:
    """What the program holds of each switch; BpfError if it has not been compiled."""
    path = libbpf.DIRECTORY / LAYOUT
    if not path.exists():
        raise libbpf.missing(path)
    found = btf.layouts(path)["switch_"]
    if not found.fields.keys() >= FIELDS:
        raise libbpf.BpfError(
            22, f"{path} is of another version than this program: `make bpf` compiles it anew"
        )
    return found


def load(sizes: Mapping[str, int]) -> tuple[str, libbpf.Object]:
    """How queue lengths are read on this kernel, and the program loaded; BpfError if it takes no
    variant."""
    first: libbpf.BpfError | None = None
    for reader, name in READERS.items():
        try:
            return reader, libbpf.Object(libbpf.DIRECTORY / name, entries=sizes)
        except libbpf.BpfError as error:
            first = first or error
    assert first
    raise first
