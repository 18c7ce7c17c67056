"""Cost of FatPaths' layers: the program at hosts, and a hop at a switch with many routes.

The program at hosts is run by the kernel on one packet after the other (BPF_PROG_TEST_RUN), each
time once, since a packet that has left in a layer is no more what it was; the median beside that of
a program that does nothing.  So every run finds what the system call left of the caches, which is
less than packets in a row would.  Packets carry their time, as those of TCP do.

The hop is measured as in forwarding.py: the kernel's own forwarding beside the data plane with the
routes of LAYERS layers to ROUTERS routers, from hosts that put packets into layers.  Run as root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import statistics
import struct
import time
from contextlib import ExitStack

from bench.forwarding import Chains, arrived, hops_ns
from bench.report import Line, arguments, show, stay_on_one_processor
from weft.daemons.core import registry
from weft.daemons.fatpaths.scheme import Trigger
from weft.daemons.routing.route_addresses import in_layer, tagged
from weft.testbed.data_plane import layer_program
from weft.testbed.linux import btf, libbpf, netns
from weft.topologies.core.address import Prefix

LAYERS, ROUTERS = 9, 50
RUNS = 4000
TEST_RUN, SYS_BPF = 10, 321 if os.uname().machine == "x86_64" else 280
CLASSIFIER = 3
TEST = struct.Struct("=IIIIQQIIIIQQIII4x")  # the part of union bpf_attr for BPF_PROG_TEST_RUN
CONTEXT = struct.Struct("=152xQ32x")  # struct __sk_buff: tstamp
SOURCE, DESTINATION, TCP = 10 << 24 | 1, 10 << 24 | 9, 6
PAYLOAD_BYTES = 1400
MOST_NS = 150


def packet(seq: int, destination: int) -> bytes:
    """Return a TCP segment in its frame, without checksums."""
    tcp = struct.pack(">HHIIBBHHH", 5000, 5201, seq & 0xFFFFFFFF, 1, 5 << 4, 0x10, 1000, 0, 0)
    length = 20 + len(tcp) + PAYLOAD_BYTES
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, length, 1, 0x4000, 64, TCP, 0, SOURCE, destination)
    return bytes(12) + b"\x08\x00" + ip + tcp + bytes(PAYLOAD_BYTES)


def run_ns(program: int, data: bytes) -> int:
    """Return the time that `program` takes for a packet; OSError if the kernel cannot run it."""
    frame = ctypes.create_string_buffer(data, len(data))
    output = ctypes.create_string_buffer(2048)
    context = ctypes.create_string_buffer(CONTEXT.pack(time.monotonic_ns()), CONTEXT.size)
    buffers = (ctypes.addressof(frame), ctypes.addressof(output))
    behind = (CONTEXT.size, 0, ctypes.addressof(context), *[0] * 4)
    fields = TEST.pack(program, 0, len(data), len(output), *buffers, 1, 0, *behind)
    attributes = ctypes.create_string_buffer(fields)
    if netns.libc.syscall(SYS_BPF, TEST_RUN, attributes, TEST.size) < 0:
        raise OSError(
            ctypes.get_errno(), f"BPF_PROG_TEST_RUN: {errno.errorcode.get(ctypes.get_errno())}"
        )
    return int(TEST.unpack(attributes.raw[: TEST.size])[7])


def median_ns(program: int, destination: int) -> float:
    """Return the median time of `program` for RUNS segments."""
    return statistics.median(
        run_ns(program, packet(PAYLOAD_BYTES * number, destination)) for number in range(RUNS)
    )


def host_costs() -> dict[str, float]:
    """Return the ns of leaving and of arriving beyond an empty program, by trigger."""
    costs = {}
    path = libbpf.DIRECTORY / layer_program.PROGRAM
    layout = btf.layouts(path)["settings"]
    with libbpf.Object(path, entries={"flows": 1 << 16}) as loaded:
        empty = libbpf.trivial_program(CLASSIFIER)
        settings = loaded.map("all_settings", "=I", f"={layout.size}s")
        leave, arrive = map(loaded.program_fd, (layer_program.LEAVE, layer_program.ARRIVE))
        for name in ("none", "gap", "cut", "gap-cut-ecn"):
            settings[0,] = (layout.pack(registry.rule(f"fatpaths:trigger={name}").hosts),)
            base_ns = median_ns(empty, DESTINATION)
            costs[f"leaving, trigger={name}"] = median_ns(leave, DESTINATION) - base_ns
            costs[f"arriving, trigger={name}"] = (
                median_ns(arrive, in_layer(DESTINATION, 2)) - base_ns
            )
        os.close(empty)
    return costs


def layered(stack: ExitStack) -> Chains:
    """Return chains whose hosts choose layers, and whose switches have the routes of all."""
    chains = Chains(stack, planes=True)
    settings = {
        **registry.rule("fatpaths").hosts,
        "layers": LAYERS,
        "trigger": Trigger.GAP | Trigger.CUT,
    }
    routers = [Prefix(10 << 24 | 1 << 16 | router << 8, 24) for router in range(ROUTERS - 1)]
    for network, plane in zip(chains.networks, chains.planes, strict=True):
        plane.set_scheme("fatpaths")
        prefixes = [Prefix(network.plan.address(1), 32), *routers]
        for node in plane.switches:
            ports = [network.ifindex(node, 1)]
            plane.groups[node].set(
                {tagged(prefix, layer): ports for prefix in prefixes for layer in range(LAYERS)}
            )
        layer_program.attach(network, settings)
    return chains


def main() -> None:
    """Print the cost of the program at hosts, and of a hop."""
    options = arguments(__doc__, packets=60_000, rounds=7)
    cpu = stay_on_one_processor()
    lines = [Line(name, ns, "ns", at_most=MOST_NS) for name, ns in host_costs().items()]
    with ExitStack() as stack:
        chains = {"plain": Chains(stack, planes=False), "layers": layered(stack)}
        hop_ns = hops_ns(chains, packets=options.packets, rounds=options.rounds, cpu=cpu)
        fraction = arrived(chains)["layers"]
    ratio = hop_ns["layers"] / hop_ns["plain"]
    lines.append(Line("the kernel's IPv4 forwarding: a hop", hop_ns["plain"], "ns"))
    lines.append(Line("layers: a hop / the kernel's", ratio, "x", at_most=1.0))
    lines.append(Line("packets that arrived / sent", fraction, "x", at_least=0.999))
    show("Layers", lines)


if __name__ == "__main__":
    main()
