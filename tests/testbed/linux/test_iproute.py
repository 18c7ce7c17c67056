import os
import re
import threading

import pytest

from weft.testbed.linux.iproute import Namespace, encoded, iproute
from weft.testbed.linux.netlink import NetlinkError

pytestmark = pytest.mark.kernel


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> str:
    task = f"/proc/self/task/{threading.get_native_id()}/children"
    with open(task) as file:
        return file.read()


def test_an_iproute_is_in_the_namespace_and_leaves_nothing(spare_netns):
    before = descriptors(), threading.active_count(), children()
    with Namespace(spare_netns.name) as node:
        assert [link.get("ifname") for link in node.ip.get_links()] == ["lo"]
        node.ip.link("add", ifname="near", kind="veth", peer={"ifname": "far"})
        assert node.ip.link_lookup(ifname="far")
        assert threading.active_count(), children() == before[1:]
    assert (descriptors(), threading.active_count(), children()) == before
    with Namespace(spare_netns.name) as again:
        assert again.ip.link_lookup(ifname="near")


def test_a_refusal_has_the_words_of_the_kernel(spare_netns):
    import pyroute2

    with Namespace(spare_netns.name) as node:
        (index,) = node.ip.link_lookup(ifname="lo")
        node.ip.link("set", index=index, state="up")
        with pytest.raises(pyroute2.NetlinkError, match="Nexthop has invalid gateway"):
            node.ip.route("add", dst="192.0.2.0/24", gateway="198.51.100.1", oif=index)


def test_another_thread_is_refused_and_does_not_change_its_own_namespace(spare_netns):
    raised = []
    with Namespace(spare_netns.name) as node:
        assert node.ip.link_lookup(ifname="lo")

        def work() -> None:
            try:
                list(node.ip.get_links())
            except RuntimeError as error:
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert "from another thread" in str(raised[0])


def test_the_calling_thread_stays_in_its_namespace(spare_netns):
    own = os.stat("/proc/thread-self/ns/net").st_ino
    with_socket = iproute(spare_netns.fd)
    with_socket.close()
    assert os.stat("/proc/thread-self/ns/net").st_ino == own


def test_a_namespace_that_there_is_not_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"weft\.none\.h0"):
        _ = Namespace("weft.none.h0").ip


def test_a_change_that_pyroute2_encodes_is_quoted_when_the_kernel_refuses_it(spare_netns):
    changes = [encoded("rule", "add", priority=100 + i, table=6330) for i in range(2)]
    spare_netns.netlink.request(changes)
    with Namespace(spare_netns.name) as node:
        rules = {rule.get("priority"): rule.get("table") for rule in node.ip.get_rules(family=2)}
        assert (rules[100], rules[101]) == (6330, 6330)
    quoted = re.escape('ip.rule("add", priority=101, table=6330): ')
    with pytest.raises(NetlinkError, match=f"{quoted}.*exists"):
        spare_netns.netlink.request(changes[1:])
