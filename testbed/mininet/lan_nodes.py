"""Mininet's hosts, switches, controllers, interfaces and links in a Lan.

Each class is the first base of a class whose second is Mininet's or a script's own; see
mininet_arguments.py.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from mininet import link as mininet_link
from mininet.log import warn

from weft.testbed.linux import cgroup, clock, netlink, netns, tc
from weft.testbed.linux.interface import NamedDevice, Offloads, interfaces, set_up
from weft.testbed.mininet.node import DirectIntf, LazyShell
from weft.testbed.network import outside
from weft.testbed.network.impair import Direction, Impairment, change_direction, from_mininet
from weft.testbed.plan.network_plan import BRIDGE_FILTER_SYSCTL

if TYPE_CHECKING:
    from weft.testbed.mininet.lan import Lan, VethEnd

FORWARDING, BLOCKING = 3, 4  # states of a bridge's port (linux/if_bridge.h)
OPENFLOW_PARAMETERS = (
    "datapath",
    "failMode",
    "inband",
    "protocols",
    "reconnectms",
    "batch",
    "dpopts",
    "verbose",
)
# programs that would change the machine's own switches
OPENFLOW_PROGRAMS = ("ovs-vsctl", "ovs-ofctl", "ovs-dpctl", "ovs-appctl", "dpctl")
QUEUE_PACKETS = 1000  # Mininet's default for a link with a rate
# parameters of TCIntf that this class lacks
UNAVAILABLE = ("use_hfsc", "enable_ecn", "enable_red", "speedup")
NO_EFFECT = ("use_htb", "use_tbf", "latency_ms", "gro", "txo", "rxo", "disable_gro")
SHAPE = ("bw", "delay", "jitter", "loss", "max_queue_size")


class LanNode(LazyShell):
    """A node that creates its own namespace."""

    lan: Lan
    sysctls: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str, *args: Any, **params: Any) -> None:
        if params.pop("inNamespace", True) is False:
            raise ValueError(f"{name}: inNamespace=False: every node has a namespace of its own")
        self.record = self.lan.run
        self.namespace = self.lan.add_node(name, self.sysctls)
        super().__init__(name, *args, **params)  # type: ignore[call-arg]  # of mininet.node.Node

    @classmethod
    def checkSetup(cls) -> None:
        """Check nothing: the programs that Mininet's classes need are not used."""

    def cmd(self, *args: Any, **params: Any) -> Any:
        """Run a command in the node's shell; setting the loopback up needs none."""
        if args == ("ifconfig lo up",):
            return ""
        return super().cmd(*args, **params)  # type: ignore[misc]

    def link_added(self, port: LanPort) -> None:
        """Handle a new link that ends at `port`."""


class LanHost(LanNode):
    """A host; a first link while the network is up gets its address at once."""

    up = False

    def link_added(self, port: LanPort) -> None:
        if self.up and self.defaultIntf() is port:
            self.configDefault()


class LanSwitch(LanNode):
    """A switch: a learning bridge without a controller.

    Args:
        stp: run a spanning tree with the other switches.
        prio: priority in the spanning tree.
    """

    controlIntf = None
    bridge: NamedDevice

    def __init__(
        self,
        name: str,
        dpid: str | None = None,
        *,
        stp: bool = False,
        prio: int | None = None,
        **params: Any,
    ) -> None:
        for parameter in OPENFLOW_PARAMETERS:
            params.pop(parameter, None)
        params.pop("inNamespace", None)
        self.stp = bool(stp)
        self.prio = prio
        self.sysctls = {BRIDGE_FILTER_SYSCTL: "0"} if self.lan.bridge_filter else {}
        super().__init__(name, dpid=dpid, **params)
        self.bridge = self.lan.add_bridge(name, stp=self.stp, priority=prio)

    def refuse_openflow(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ValueError: the switch has neither flow tables nor Open vSwitch's ports."""
        raise ValueError(
            f"{self.name}: switches here are bridges that learn, without OpenFlow and Open vSwitch"
        )

    def cmd(self, *args: Any, **params: Any) -> Any:
        """Run a command in the switch's shell; raise ValueError for one of OpenFlow."""
        if " ".join(map(str, args)).partition(" ")[0] in OPENFLOW_PROGRAMS:
            self.refuse_openflow()
        return super().cmd(*args, **params)

    def link_added(self, port: LanPort) -> None:
        self.attach(port)

    def attach(self, intf: LanPort | str) -> None:
        """Add an interface to the bridge."""
        self.lan.attach(self.intf(intf).end, self.bridge.ifindex)

    def detach(self, intf: LanPort | str) -> None:
        """Remove an interface from the bridge."""
        self.lan.attach(self.intf(intf).end, 0)

    def start(self, controllers: object) -> None:
        """Set the bridge up; a new bridge is up already."""
        self.lan.change(self.name, [set_up(self.bridge)])

    def stop(self, deleteIntfs: bool = True) -> None:
        """Set the bridge down; with `deleteIntfs`, delete its links too."""
        if self.name in self.lan.spaces:
            self.lan.change(self.name, [set_up(self.bridge, False)])
        super().stop(deleteIntfs)  # type: ignore[misc]

    def connected(self) -> bool:
        """Return True if the bridge forwards; a spanning tree needs some seconds."""
        if not self.stp:
            return True
        states = [
            port.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE")
            for port in self.ip.link("dump", master=self.bridge.ifindex)
        ]
        return all(state in (FORWARDING, BLOCKING) for state in states)


class LanController(LanNode):
    """A controller without a task: switches learn by themselves."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name)

    def start(self) -> None:
        """Do nothing: switches need no controller."""

    def stop(self, *_: Any, **__: Any) -> None:
        """End the shell."""
        self.terminate()

    def IP(self, intf: Any = None) -> str:
        return "127.0.0.1"


class LimitedHost(LanHost):
    """A host in a control group, with a share of the machine's time and cores of its own."""

    def __init__(self, name: str, *args: Any, sched: str = "cfs", **params: Any) -> None:
        if sched != "cfs":
            raise ValueError(f"{name}: sched={sched}: shares of the processor are cfs here")
        if clock.is_virtual():
            raise ValueError(
                f"{name}: no host has a share of the processor under the virtual clock, where "
                "computing takes no time"
            )
        super().__init__(name, *args, **params)
        self.group = cgroup.ControlGroup(self.namespace)

    def startShell(self, mnopts: str | None = None) -> None:
        super().startShell(mnopts)
        if self.has_shell:
            self.group.add(self.pid)

    def beside_shell(self) -> list[str]:
        # The control group is entered first, because the node has another /sys.
        words: list[str] = super().beside_shell()  # of LazyShell
        return [*self.group.entering(), *words]

    def config(self, cpu: float = -1, cores: Any = None, **params: Any) -> Any:
        """Set the host's share (-1: no limit) and cores, and Mininet's own parameters."""
        self.setCPUFrac(cpu)
        self.setCPUs(cores)
        return super().config(**params)  # type: ignore[misc]

    def setCPUFrac(self, f: float, sched: str | None = None) -> None:
        """Set the share of all processors' time; -1: no limit."""
        if sched not in (None, "cfs"):
            raise ValueError(f"{self.name}: sched={sched}: shares of the processor are cfs here")
        self.group.limit(None if f is None or f < 0 else f * (os.cpu_count() or 1))

    def setCPUs(self, cores: Any, mems: int = 0) -> None:
        """Set the cores that the host may use; None: all."""
        if cores is not None and cores != []:
            numbers = cores if isinstance(cores, list | tuple) else [cores]
            self.group.pin(",".join(map(str, numbers)), self.pid)


def processor_shares(hosts: Sequence[LimitedHost], fraction: float, seconds: int) -> list[float]:
    """Return the share of all processors (per cent) of each busy host in each second.

    The shares are in the order of the hosts, then of time, as in Mininet's runCpuLimitTest().
    """
    cores = os.cpu_count() or 1
    loops = max(1, -int(-cores * fraction // 1))
    pids = {
        host: [host.cmd("while true; do a=1; done & echo $!").split()[-1] for _ in range(loops)]
        for host in hosts
    }
    readings = {host: [_processor_time(host)] for host in hosts}
    for _ in range(seconds):
        clock.sleep(1)
        for host in hosts:
            readings[host].append(_processor_time(host))
    for host in hosts:
        host.cmd("kill -9 " + " ".join(pids[host]))
    shares = []
    for host in hosts:
        for (begin_s, before_s), (end_s, after_s) in pairwise(readings[host]):
            shares.append(100 * (after_s - before_s) / (end_s - begin_s) / cores)
    return shares


def _processor_time(host: LimitedHost) -> tuple[float, float]:
    """Return the time, and the processor time that the host has used, both in s."""
    return clock.monotonic(), host.group.used_ns() / 1e9


class LanNat(LanHost):
    """A host that translates the addresses of `subnet`.

    Raises:
        ValueError: flush, which empties the machine's own tables, or localIntf.
    """

    def __init__(self, name: str, subnet: str = "10.0.0.0/8", **params: Any) -> None:
        for refused in ("flush", "localIntf"):
            if params.pop(refused, None):
                raise ValueError(
                    f"{name}: {refused}: a NAT here changes no rules or interfaces of the machine"
                )
        params.pop("inNamespace", None)
        super().__init__(name, **params)
        self.subnet = str(ipaddress.ip_network(subnet, strict=False))
        self.connected = False

    def config(self, **params: Any) -> Any:
        """Set the address, and connect the node to the machine."""
        result = super().config(**params)  # type: ignore[misc]
        if not self.connected:
            self.connected = True
            if not outside.connect(self.lan.run, self.lan.spaces[self.name], [self.subnet]):
                warn(
                    f"*** {self.name}: this machine does not forward (net.ipv4.ip_forward=0), "
                    "so hosts reach no other machine\n"
                )
        return result


class LanPort(DirectIntf):
    """One end of a link; netlink sets its state, address and shape, without a shell."""

    lan: Lan
    ip: str | None
    mac: str | None
    link: Any
    shaped = False

    def __init__(
        self, name: str, node: Any = None, port: int | None = None, link: Any = None, **params: Any
    ) -> None:
        self.end: VethEnd = link.ends[name]
        shape = {key: params.pop(key) for key in SHAPE if key in params}
        super().__init__(name, node=node, port=port, link=link, **params)
        self.params |= shape
        link.shapes.append((self, from_mininet(**shape)))

    @property
    def socket(self) -> netlink.Socket:
        """A socket in the node's namespace."""
        return self.lan.spaces[self.node.name].netlink

    def request(self, message: netlink.NetlinkMessage) -> None:
        """Send a netlink message in the node's namespace."""
        self.lan.change(self.node.name, [message])

    def set_up(self, up: bool) -> None:
        """Set the interface up or down by netlink."""
        self.request(set_up(self.end, up))

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> str:
        """Set the interface's only address, also in the hosts files."""
        output: str = super().setIP(ipstr, prefixLen)
        if self.node.defaultIntf() is self:
            self.lan.set_address(self.node.name, self.ip)
        return output

    def delete(self) -> None:
        """Delete the interface, and with it the link."""
        if self.end.ifindex in interfaces(self.socket):  # else the other end was deleted
            self.cmd("ip link del", self.name)
        self.node.delIntf(self)
        self.link = None

    def config(self, **params: Any) -> dict[str, Any]:
        """Set Mininet's parameters of interfaces, and those of TCIntf.config on any interface.

        Raises:
            ValueError: a parameter is unavailable.
        """
        for name in UNAVAILABLE:
            if params.pop(name, None):
                raise ValueError(
                    f"{self.name}: {name} is unavailable here; {', '.join(SHAPE)} are available"
                )
        for name in NO_EFFECT:
            params.pop(name, None)
        change = from_mininet(**{key: params.pop(key) for key in SHAPE if key in params})
        result: dict[str, Any] = super().config(**params) or {}
        self.shape(change)
        return result

    def shape(self, change: Impairment) -> None:
        """Shape packets that leave from now on."""
        if change == Impairment():
            return
        far = self.far()
        far.request(tc.clsact(far.end))
        direction = Direction(self.name, self.socket, self.end, far.socket, far.end)
        change_direction(direction, change, None, QUEUE_PACKETS)
        if change.rate_bps is not None and not self.shaped:
            self._turn_off_bundles()

    def far(self) -> LanPort:
        """Return the other end of the link."""
        port: LanPort = self.link.intf2 if self.link.intf1 is self else self.link.intf1
        return port

    def _turn_off_bundles(self) -> None:
        """Turn offloads off, so that a queue holds packets, not bundles of up to 64 kB."""
        self.shaped = True
        with netns.inside(self.lan.spaces[self.node.name].fd), closing(Offloads()) as offloads:
            offloads.turn_off(self.name)
        self.cmd("ip link set", self.name, "gso_max_segs 1")


class LanLink(mininet_link.Link):  # type: ignore[misc]
    """A link between two nodes.

    Attributes:
        ends: by interface name.
        shapes: changes of the ports, made when both exist.
    """

    lan: Lan
    intf1: Any
    intf2: Any
    port_class: Callable[[Any], type[LanPort]]

    def __init__(self, node1: Any, node2: Any, **params: Any) -> None:
        self.ends: dict[str, VethEnd] = {}
        self.shapes: list[tuple[LanPort, Impairment]] = []
        kind = params.pop("intf", None)
        classes = {
            name: self.port_class(params.pop(name, None) or kind) for name in ("cls1", "cls2")
        }
        super().__init__(node1, node2, **(params | {"fast": True} | classes))
        for port, change in self.shapes:
            port.shape(change)
        for port in (self.intf1, self.intf2):
            port.node.link_added(port)

    def makeIntfPair(
        self,
        intfname1: str,
        intfname2: str,
        addr1: Any = None,
        addr2: Any = None,
        node1: Any = None,
        node2: Any = None,
        deleteIntfs: bool = True,
    ) -> tuple[str, str]:
        """Make both ends and return their names."""
        near = self.lan.new_port(node1.name, intfname1, addr1)
        far = self.lan.new_port(node2.name, intfname2, addr2)
        self.lan.join(near, far)
        self.ends = {intfname1: near, intfname2: far}
        return intfname1, intfname2

    def delete(self) -> None:
        """Delete the link from the kernel and from both its nodes."""
        for port in (self.intf1, self.intf2):
            if port is not None:
                port.delete()
        self.intf1 = self.intf2 = None

    def stop(self) -> None:
        """Do nothing: the link is removed with the run."""
