"""Static routes: programs reach all hosts over IPv6; switches hash labels, and ports over IPv4."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from weft.testbed.linux import netns
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.address import IPV4, IPV6

CLOS = "clos:n=2,r=2,m=2"
PACKETS = 64
IPV6_FLOWINFO_SEND = 33  # linux/in6.h
UDP_PORT = 9


def run_at(net: RunningNetwork, node: str, *argv: str) -> str:
    """Return the output of a program at `node`."""
    name = net.run.namespace(node)
    done = subprocess.run(
        ["ip", "netns", "exec", name, *argv], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.kernel
@pytest.mark.parametrize("spec", [CLOS, "dcell:n=3,k=1", "bcube:n=2,k=1", "gqstar:n=2,k=2"])
def test_all_servers_answer_by_name_and_after_a_repair(network, spec):
    net = network(spec, None, "static:ipv6=1")
    others = [net.plan.names[host] for host in range(1, net.topology.servers)]
    for name in others:
        assert f"({ipv6_text(net, name)})" in run_at(net, "h0", "ping", "-6", "-c1", name)
    link = net.topology.link_name(0)
    with closing(RunningNetwork.open(net.run.id)) as opened:  # as another process does
        opened.fail(link)
        opened.restore(link)
    for name in others:
        run_at(net, name, "ping", "-6", "-c1", "h0")


def ipv6_text(net: RunningNetwork, name: str) -> str:
    packed = socket.inet_pton(
        socket.AF_INET6, IPV6.address(net.topology.naming.address(net.node(name)))
    )
    return socket.inet_ntop(socket.AF_INET6, packed)


@pytest.mark.kernel
def test_iperf3_runs_over_ipv6(network):
    net = network(CLOS, scheme="static:ipv6=1")
    server = subprocess.Popen(
        ["ip", "netns", "exec", net.plan.namespace(3), "iperf3", "-s", "-1", "--forceflush"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout
    assert "listening" in "".join(server.stdout.readline() for _ in range(2))
    result = json.loads(run_at(net, "h0", "iperf3", "-6", "-J", "-t1", "-c", "h3"))
    server.communicate(timeout=10)
    assert result["start"]["connected"][0]["remote_host"] == ipv6_text(net, "h3")
    assert 10e6 < result["end"]["sum_received"]["bits_per_second"] < 20e6


def sent_upwards(net: RunningNetwork, send: Callable[[], None]) -> list[int]:
    """Return how many of the PACKETS of `send` each uplink of e0 sent."""
    edge = net.node("e0")
    indexes = [net.ifindex(edge, port) for port in (2, 3)]
    end_s = time.monotonic() + 5
    with net.at(edge) as requests:
        before = requests.link_counters()
        send()
        while True:
            after = requests.link_counters()
            sent = [after[index][1] - before[index][1] for index in indexes]
            if sum(sent) >= PACKETS or time.monotonic() > end_s:
                return sent


def send_labels(net: RunningNetwork, labels: Sequence[int]) -> None:
    """Send a packet of each flow label from h0 to h3."""
    with netns.inside(net.netns(0)):
        sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1)
    destination = IPV6.address(net.topology.naming.address(3))
    with sender:
        for label in labels:
            sender.sendto(b"x", (destination, UDP_PORT, label, 0))


def ask_in_vain(net: RunningNetwork, ports: Sequence[int]) -> None:
    """Ask h3, where nobody listens, for a connection to h0 from each port."""
    destination = IPV4.address(net.topology.naming.address(3))
    for port in ports:
        with netns.inside(net.netns(0)):
            sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with sender:
            sender.bind(("", port))
            assert sender.connect_ex((destination, UDP_PORT)) == errno.ECONNREFUSED


@pytest.mark.kernel
def test_a_flow_label_chooses_the_path_of_a_flow(network):
    net = network(CLOS, None, "static:ipv6=1")
    for uplink in sent_upwards(net, lambda: send_labels(net, range(1, PACKETS + 1))):
        assert uplink > PACKETS / 8
    assert sorted(sent_upwards(net, lambda: send_labels(net, [7] * PACKETS)))[1] >= PACKETS


@pytest.mark.kernel
def test_ports_and_no_hash_of_a_socket_choose_the_path_of_a_connection(network):
    net = network(CLOS, None, "static")
    for uplink in sent_upwards(net, lambda: ask_in_vain(net, range(4000, 4000 + PACKETS))):
        assert uplink > PACKETS / 8
    assert sorted(sent_upwards(net, lambda: ask_in_vain(net, [4000] * PACKETS))) == [0, PACKETS]
