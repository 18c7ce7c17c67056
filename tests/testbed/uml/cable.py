"""Started under a virtual clock: UDP packets over a shaped cable, and how far apart they arrive.

    cable.py RATE_BPS QDISC...

QDISC is what `tc qdisc add dev end root` is given.  Prints the gaps between arrivals, in ns, as a
JSON list.
"""

import json
import os
import socket
import struct
import subprocess
import sys
from itertools import pairwise

PACKETS, PAYLOAD_BYTES = 60, 1472
SO_TIMESTAMPNS = 35


def run(command: str) -> str:
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


def within(name: str) -> socket.socket:
    """A UDP socket in the namespace called `name`."""
    libc = __import__("ctypes").CDLL(None)
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
    assert libc.setns(fd, 0x40000000) == 0
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def main(rate_bps: int, qdisc: str) -> None:
    for name in ("one", "other"):
        run(f"ip netns add {name}")
    run("ip link add end netns one type veth peer name end netns other")
    for host, name in enumerate(("one", "other"), start=1):
        run(f"ip -n {name} address add 10.0.0.{host}/24 dev end")
        run(f"ip -n {name} link set end up")
        run(f"ip netns exec {name} ethtool -K end tso off gso off gro off")
    run(f"tc -n one qdisc add dev end root {qdisc}")
    run("ip netns exec one ping -c 1 10.0.0.2")  # addresses are known after it
    receiver, sender = within("other"), within("one")
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.settimeout(5)
    receiver.bind(("", 7))
    sender.connect(("10.0.0.2", 7))
    for _ in range(PACKETS):
        sender.send(bytes(PAYLOAD_BYTES))
    stamps = []
    for _ in range(PACKETS):
        _, about, _, _ = receiver.recvmsg(2000, 100)
        seconds, ns = struct.unpack("qq", about[0][2][:16])
        stamps.append(seconds * 10**9 + ns)
    print(json.dumps([after - before for before, after in pairwise(stamps)]))


main(int(sys.argv[1]), " ".join(sys.argv[2:]))
