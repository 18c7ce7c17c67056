"""Started under a virtual clock: random frames over one veth, exact_link.py KIND SETTINGS.

KIND is the discipline: exact, or chain for HTB without bursts and netem behind an ifb.  SETTINGS is
a JSON object: fields of tc.DeviceDisciplines, and frames, seed and priorities to draw from.  Prints
as JSON for each frame: its bytes, its priority, when it was sent and when it arrived (ns, None if
it was lost).  Last comes what the discipline counted: packets, control packets, drops of data and
of headers, and the longest queue seen.
"""

import errno
import json
import random
import socket
import struct
import subprocess
import sys
from contextlib import suppress

from weft.testbed.linux import clock, interface, netlink, tc, tc_filters
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.measure import kernel_counters
from weft.testbed.measure.kernel_counters import PortCounters
from weft.testbed.measure.reference_packets import ETHERTYPE, SO_RCVBUFFORCE, SO_SNDBUFFORCE, STAMP
from weft.topologies.core.link import LinkSpec

SO_TIMESTAMPNS = 35
LEAST_BYTES, MOST_BYTES = 60, 1514


def messages(
    kind: str, near: NamedDevice, far: NamedDevice, shape: tc.DeviceDisciplines
) -> list[netlink.NetlinkMessage]:
    """Return the messages that make the link from `near` to `far`."""
    if kind == "exact":
        return [tc.exact_link(near, shape)]
    link = LinkSpec(rate_bps=shape.rate_bps, queue_packets=shape.queue_packets)
    ifb = NamedDevice(100, "delayed")
    return [
        *tc.shape(near, link),
        *tc.classes(near, link, burst=1, flags=0),
        interface.new(ifb, "ifb"),
        tc.delay(ifb, shape.delay_us),
        tc.clsact(far),
        tc_filters.redirect_arrivals(far, ifb),
    ]


def counters(requests: netlink.Socket, device: NamedDevice) -> PortCounters:
    """Return the counters of a device without those of its link."""
    no_link = (0,) * 8
    return kernel_counters._port(kernel_counters._disciplines(requests)[device.ifindex], no_link)


def main(kind: str, settings: dict) -> None:
    frames, seed, priorities = (settings.pop(key) for key in ("frames", "seed", "priorities"))
    shape = tc.DeviceDisciplines(**settings)
    draw = random.Random(seed)
    subprocess.run(["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"], check=True)
    near, far = (NamedDevice(socket.if_nametoindex(name), name) for name in ("near", "far"))
    for name in ("near", "far"):  # without packets of IPv6
        subprocess.run(f"ip link set {name} addrgenmode none".split(), check=True)
    requests = netlink.Socket()
    requests.request(messages(kind, near, far, shape))
    requests.request([interface.set_up(near), interface.set_up(far)])
    clock.sleep(0.1)  # until both have a carrier
    receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    receiver.bind(("far", ETHERTYPE))
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.setblocking(False)
    senders = {}
    for priority in priorities:
        senders[priority] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        senders[priority].setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 28)
        senders[priority].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
    frame_ns = 8e9 * MOST_BYTES / (shape.rate_bps or 10**9)
    sent = []
    longest = 0
    while len(sent) < frames:
        # bursts that fill the queue now and then, and pauses that empty it
        clock.sleep(draw.choice([0.3, 3, 30]) * frame_ns * draw.random() / 1e9)
        at_ns = clock.wall_ns()
        for _ in range(draw.choice([1, 1, 2, 5, 2 * (shape.queue_packets or 1)])):
            size, priority = draw.randint(LEAST_BYTES, MOST_BYTES), draw.choice(priorities)
            header = bytes(12) + struct.pack(">HI", ETHERTYPE, len(sent))
            try:
                senders[priority].sendto(header.ljust(size, b"\0"), ("near", ETHERTYPE))
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
            sent.append([size, priority, at_ns, None])
        longest = max(longest, counters(requests, near).waiting_packets)
    clock.sleep(frames * frame_ns / 1e9 + (shape.delay_us or 0) / 1e3)
    with suppress(BlockingIOError):
        while True:
            frame, ancillary, _, _ = receiver.recvmsg(MOST_BYTES, 64)
            seconds, ns = STAMP.unpack_from(ancillary[0][2])
            (number,) = struct.unpack_from(">I", frame, 14)
            sent[number][3] = 10**9 * seconds + ns
    port = counters(requests, near)
    counted = [port.sent_packets, port.control_packets, port.queue_drops, port.header_drops]
    print(json.dumps([*sent, [*counted, longest]]))


main(sys.argv[1], json.loads(sys.argv[2]))
