"""Features of a kernel and its machine, each tried in an unnamed namespace that ends afterwards.

A try returns a detail, if there is one, or raises OSError with the kernel's message.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from weft.testbed.data_plane import flow_rewrite, prefix_rewrite, source_rewrite
from weft.testbed.linux import interface, libbpf, netlink, netns, nft, tc, tc_filters
from weft.testbed.linux.interface import Device, NamedDevice
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.linux.process import Closing
from weft.topologies.core.address import IPV6, SERVER_BLOCK, Prefix
from weft.topologies.core.link import LinkSpec, Mbps

BTF = Path("/sys/kernel/btf/vmlinux")
SCHED_CLS, RAW_TRACEPOINT = 3, 17
IPPROTO_MPTCP = 262
UNPRIVILEGED_UID = 65534
CLONE_NEWUSER = 0x10000000
FRR = Path("/usr/lib/frr")  # of its daemons on Debian and Ubuntu, in no PATH


class Scratch(Closing):
    """A namespace of the thread's own if `private`, with devices on demand."""

    def __init__(self, *, private: bool) -> None:
        if private and netns.libc.unshare(netns.CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"unshare: {os.strerror(code)}")
        self.private = private
        self.netlink = netlink.Socket()
        self.devices = 0

    def close(self) -> None:
        self.netlink.close()

    def device(self) -> NamedDevice:
        """Return a new veth that is up."""
        self.devices += 1
        name = f"try{self.devices}"  # its other end gets a name from the kernel
        self.netlink.request([interface.new(NamedDevice(0, name), "veth")])
        return NamedDevice(socket.if_nametoindex(name), name)


FeatureTest = Callable[[Scratch], str | None]


@dataclass(frozen=True)
class Try:
    """A feature and the way to try it.

    needed_for: its use in weft.
    attempt: the test.
    get: how to get it.
    root: the test needs root.  Without root the namespace is not private, so that other tests must
        not change anything.
    """

    name: str
    needed_for: str
    attempt: FeatureTest
    get: str
    root: bool = True


def makes(messages: Callable[[Device], list[NetlinkMessage]]) -> FeatureTest:
    """Return the test that the kernel makes these changes of a device."""

    def attempt(scratch: Scratch) -> None:
        scratch.netlink.request(messages(scratch.device()))

    return attempt


def new_interface(kind: str) -> FeatureTest:
    return makes(lambda _: [interface.new(NamedDevice(0, f"{kind}0"), kind, up=False)])


def program(scratch: Scratch) -> None:
    os.close(libbpf.trivial_program(SCHED_CLS))


def dequeue_tracepoint(scratch: Scratch) -> None:
    fd = libbpf.trivial_program(RAW_TRACEPOINT)
    try:
        os.close(libbpf.attach_raw("qdisc_dequeue", fd))
    finally:
        os.close(fd)


def btf(scratch: Scratch) -> str:
    return f"{BTF.stat().st_size} bytes"


def queue_read(scratch: Scratch) -> None:
    if b"\0bpf_rdonly_cast\0" not in BTF.read_bytes():
        raise OSError(0, "this kernel has no bpf_rdonly_cast (Linux 6.2)")


def library(scratch: Scratch) -> str:
    libbpf.library()
    return libbpf.LIBRARY


def congestion(name: str) -> FeatureTest:
    def attempt(scratch: Scratch) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())

    return attempt


def mptcp(scratch: Scratch) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP).close()


def nftables(scratch: Scratch) -> None:
    done = subprocess.run(["nft", "add table ip probe"], capture_output=True, text=True, timeout=10)
    if done.returncode:
        raise OSError(done.returncode, f"nft: {' '.join(done.stderr.split())}")


def rewriting(scratch: Scratch) -> None:
    with closing(nft.Ruleset()) as tables, closing(source_rewrite.listen(source_rewrite.LOG_GROUP)):
        for rules in (
            source_rewrite.rules(SERVER_BLOCK),
            prefix_rewrite.rules(SERVER_BLOCK, 64),
            flow_rewrite.rules(SERVER_BLOCK),
        ):
            tables.change(rules)


def real_time(scratch: Scratch) -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # of this thread, which ends soon
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def names(scratch: Scratch) -> str:
    writable = netns.NAMES if netns.NAMES.exists() else netns.NAMES.parent
    if not os.access(writable, os.W_OK):
        raise PermissionError(13, f"{writable} is not writable")
    return str(netns.NAMES)


def unprivileged(scratch: Scratch) -> None:
    """Test that an unprivileged user may make a namespace, in a child process."""
    child = os.fork()
    if not child:
        if os.geteuid() == 0:
            netns.libc.setresuid(*[UNPRIVILEGED_UID] * 3)
        os._exit(
            ctypes.get_errno() if netns.libc.unshare(CLONE_NEWUSER | netns.CLONE_NEWNET) else 0
        )
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code) if code > 0 else f"signal {-code}")


def pressure(scratch: Scratch) -> None:
    Path("/proc/pressure/cpu").read_text()  # reading fails if it is off


def schedstat(scratch: Scratch) -> None:
    Path("/proc/self/schedstat").read_text()


def command(name: str, directory: Path | None = None) -> FeatureTest:
    def attempt(scratch: Scratch) -> str:
        path = shutil.which(name, path=str(directory) if directory else None)
        if not path:
            raise FileNotFoundError(
                2, f"no {name} {f'in {directory}' if directory else 'on the PATH'}"
            )
        return path

    return attempt


def module(name: str) -> FeatureTest:
    def attempt(scratch: Scratch) -> str:
        spec = importlib.util.find_spec(name)
        if not spec:
            raise FileNotFoundError(2, f"no Python module {name}")
        return spec.origin or ""

    return attempt


def modprobe(modules: str) -> str:
    return f"modprobe {modules}"


def kernel(option: str) -> str:
    return f"a kernel with {option}"


def apt(package: str) -> str:
    return f"apt-get install {package}"


LINK = LinkSpec(rate_bps=10 * Mbps, queue_packets=100)
BTF_KERNEL = kernel("CONFIG_DEBUG_INFO_BTF, as Debian 11, Ubuntu 20.10 and later have")
TRIES = (
    Try("netns names", "networks that `ip netns exec` enters", names, "root"),
    Try("bridge", "crossbar switches", new_interface("bridge"), modprobe("bridge")),
    Try(
        "htb",
        "a link's rate",
        makes(lambda device: tc.shape(device, LINK)),
        modprobe("sch_htb"),
    ),
    Try(
        "netem",
        "a link's delay",
        makes(lambda device: [tc.delay(device, 1000)]),
        modprobe("sch_netem"),
    ),
    Try("ifb", "a link's delay", new_interface("ifb"), modprobe("ifb")),
    Try(
        "u32 and mirred",
        "a link's delay",
        makes(
            lambda device: [
                tc.clsact(device),
                tc_filters.redirect_arrivals(device, interface.LOOPBACK),
            ]
        ),
        modprobe("-a cls_u32 act_mirred"),
    ),
    Try(
        "clsact and cls_bpf",
        "silent failures, forwarding in eBPF",
        makes(lambda device: [tc.clsact(device), tc_filters.blackhole(device)]),
        modprobe("-a sch_ingress cls_bpf"),
    ),
    Try(
        "pfifo",
        "queues of so many packets",
        makes(lambda device: [tc.fifo(device, tc.ROOT, tc.FIFO, 10)]),
        kernel("CONFIG_NET_SCH_FIFO"),
    ),
    Try(
        "ipv6",
        "scheme static:ipv6=1",
        makes(lambda device: [interface.add_address(device, Prefix(SERVER_BLOCK, 32), IPV6)]),
        kernel("CONFIG_IPV6, not booted with ipv6.disable=1"),
    ),
    Try("nftables", "users' own filters", nftables, f"{apt('nftables')}; {modprobe('nf_tables')}"),
    Try(
        "rewriting",
        "proxy routing",
        rewriting,
        kernel("CONFIG_NF_TABLES, CONFIG_NFT_LOG and CONFIG_NETFILTER_NETLINK_LOG"),
    ),
    Try("bpf", "forwarding in eBPF, fidelity", program, kernel("CONFIG_BPF_SYSCALL")),
    Try("btf", "eBPF programs that fit any kernel, fidelity", btf, BTF_KERNEL, root=False),
    Try("qdisc_dequeue", "fidelity", dequeue_tracepoint, kernel("CONFIG_BPF_EVENTS")),
    Try(
        "queue length in place",
        "forwarding by queue length",
        queue_read,
        "Linux 6.2 or later",
        root=False,
    ),
    Try("libbpf", "eBPF programs", library, apt("libbpf1"), root=False),
    Try("cubic", "TCP as most hosts have it", congestion("cubic"), modprobe("tcp_cubic")),
    Try("bbr", "TCP that measures the bottleneck", congestion("bbr"), modprobe("tcp_bbr")),
    Try("dctcp", "TCP that reads marks", congestion("dctcp"), modprobe("tcp_dctcp")),
    Try("mptcp", "flows over several paths", mptcp, kernel("CONFIG_MPTCP"), root=False),
    Try("real time", "daemons in time on a busy machine", real_time, "root, or ulimit -r 10"),
    Try("psi", "fidelity", pressure, kernel("CONFIG_PSI, booted with psi=1"), root=False),
    Try("schedstat", "fidelity", schedstat, kernel("CONFIG_SCHED_INFO"), root=False),
    Try(
        "unprivileged namespaces",
        "looking into things without root; networks without root need user-mode-linux",
        unprivileged,
        "sysctl kernel.unprivileged_userns_clone=1",
        root=False,
    ),
)
# not of the kernel: they may change at any time, so their results are not stored
PROGRAMS = (
    Try(
        "mininet",
        "net.get(), the CLI, users' scripts",
        module("mininet"),
        apt("mininet"),
        root=False,
    ),
    Try("iperf3", "throughput", command("iperf3"), apt("iperf3"), root=False),
    Try("clang", "compiling eBPF programs", command("clang"), apt("clang libbpf-dev"), root=False),
    Try("ip", "looking into networks by hand", command("ip"), apt("iproute2"), root=False),
    Try(
        "frr",
        "comparisons with its OSPF, BGP and BFD",
        command("bfdd", FRR),
        apt("frr"),
        root=False,
    ),
    Try(
        "user-mode-linux",
        "features that this kernel lacks",
        command("linux.uml"),
        apt("user-mode-linux"),
        root=False,
    ),
)
