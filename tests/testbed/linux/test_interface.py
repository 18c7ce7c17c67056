"""Messages that make, address and set up interfaces, against the `ip` commands that they quote."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from weft.testbed.linux import fib, interface, netlink, netns
from weft.testbed.linux.interface import NamedDevice
from weft.topologies.core.address import EVERYTHING, Prefix

MAC = bytes.fromhex("020000010002")
NEAR, FAR = NamedDevice(51, "near"), NamedDevice(52, "far")
GATEWAY = 0x0A000002
ADDRESS = Prefix(0x0A000001, 24)


@pytest.fixture
def two_spaces() -> Iterator[list[netns.Netns]]:
    """Two empty namespaces."""
    spaces: list[netns.Netns] = []
    names = [f"weft.test.{os.urandom(4).hex()}" for _ in range(2)]
    netns.create(names, lambda position: {}, spaces)
    yield spaces
    for space in spaces:
        space.close()
    netns.forget(names)


def messages(space: netns.Netns) -> list[netlink.NetlinkMessage]:
    """Return messages of every kind, of which some undo others."""
    near = interface.veth_side(NEAR, MAC, up=True)
    near = near.extended(netlink.u32(interface.IFLA_MTU, 1400), "mtu 1400")
    return [
        interface.set_up(interface.LOOPBACK),
        interface.new(NamedDevice(50, "bridge"), "bridge"),
        interface.new(NamedDevice(0, "other"), "bridge", up=False),
        interface.veth(near, interface.veth_side(FAR), space.fd, space.name),
        interface.set_up(FAR),
        interface.add_address(NEAR, ADDRESS),
        fib.static_route(Prefix(GATEWAY, 32), NEAR),
        fib.static_route(EVERYTHING, NEAR, gateway=GATEWAY, source=ADDRESS.network, table=77),
        interface.set_up(interface.LOOPBACK, False),
    ]


def state(space: netns.Netns) -> object:
    """Return the links, addresses and routes of a namespace as `ip` shows them."""
    ip = ["ip", "-n", space.name, "-j"]
    output = []
    for words in (["-d", "address"], ["route", "show", "table", "all"]):
        text = subprocess.run([*ip, *words], capture_output=True, text=True, check=True).stdout
        entries = json.loads(text)
        for entry in entries:
            if entry.get("ifname") != NEAR.dev:
                entry.pop("address", None)  # the kernel draws it
            entry.pop("linkinfo", None)
        output.append([entry for entry in entries if not str(entry.get("dst")).startswith("fe80")])
    return output


def state_without_ipv6(entries: object) -> str:
    """Return the state without addresses that the kernel generates a moment later."""
    assert isinstance(entries, list)
    for entry in entries[0]:
        entry["addr_info"] = [info for info in entry["addr_info"] if info["family"] == "inet"]
        entry.pop("operstate")
        entry.pop("flags")
    routes = [route for route in entries[1] if ":" not in str(route["dst"])]
    return json.dumps([entries[0], [r for r in routes if r["dst"] != "multicast"]], indent=1)


@pytest.mark.kernel
def test_a_message_does_what_its_command_does(two_spaces: list[netns.Netns]) -> None:
    by_netlink, by_ip = two_spaces
    by_netlink.netlink.request(messages(by_netlink))
    for message in messages(by_ip):
        program, *words = message.command.split()
        subprocess.run([program, "-n", by_ip.name, *words], check=True)
    assert state_without_ipv6(state(by_netlink)) == state_without_ipv6(state(by_ip))


@pytest.mark.kernel
def test_the_state_of_interfaces_is_read_back(two_spaces: list[netns.Netns]) -> None:
    space = two_spaces[0]
    space.netlink.request(messages(space)[:-1])
    states = interface.interfaces(space.netlink)
    assert {state.name for state in states.values()} >= {"lo", "bridge", "other", "near", "far"}
    assert states[1].up
    assert states[50].up
    assert (states[51].name, states[51].up, states[51].mtu) == ("near", True, 1400)
    assert states[52].mtu == 1500
    (other,) = (state for state in states.values() if state.name == "other")
    assert not other.up
    space.netlink.request([interface.set_up(interface.LOOPBACK, False)])
    assert not interface.interfaces(space.netlink)[1].up


def test_a_command_names_the_index_if_it_is_chosen() -> None:
    assert interface.new(NamedDevice(0, "b"), "bridge").command == "ip link add b up type bridge"
    planned = interface.new(NamedDevice(7, "b"), "bridge", b"", " mcast_snooping 0")
    assert planned.command == "ip link add b up index 7 type bridge mcast_snooping 0"
