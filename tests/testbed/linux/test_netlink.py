import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.testbed.linux import netlink, netns
from weft.testbed.linux.netlink import NetlinkMessage

KINDS = st.integers(1, 0x3FFF)


@given(st.dictionaries(KINDS, st.binary(max_size=40)))
def test_attributes_come_back_as_they_were_packed(values):
    packed = b"".join(netlink.attribute(kind, payload) for kind, payload in values.items())
    assert len(packed) % 4 == 0
    assert netlink.attributes(packed) == values


@given(st.binary(max_size=200))
def test_garbage_never_hangs_the_parser(data):
    assert isinstance(netlink.attributes(data), dict)


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_messages_come_back_as_they_were_packed(bodies):
    data = b""
    for number, body in enumerate(bodies, 1):
        data += netlink.HEADER.pack(16 + len(body), 17, 2, number, 0) + body + bytes(-len(body) % 4)
    assert [body for *_, body in netlink.split(data)] == bodies


def test_a_message_shorter_than_its_header_is_refused():
    with pytest.raises(netlink.NetlinkError):
        list(netlink.split(bytes(16)))


def dummy_route(ifindex: int) -> NetlinkMessage:
    body = struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 254, 177, 0, 1, 0) + netlink.attribute(
        1, bytes([10, 0, 0, 9])
    )
    return NetlinkMessage(
        netlink.RTM_NEWROUTE,
        netlink.REPLACE,
        body + netlink.u32(4, ifindex),
        f"ip route add dev {ifindex}",
    )


@pytest.mark.kernel
def test_an_error_says_what_was_asked_and_what_the_kernel_answered(spare_netns):
    with pytest.raises(netlink.NetlinkError, match=r"ip route add dev 4711: .+") as caught:
        spare_netns.netlink.request([dummy_route(4711)])
    assert caught.value.errno in (errno.ENODEV, errno.EINVAL)


@pytest.mark.kernel
def test_the_first_of_several_errors_in_a_batch_is_the_one_that_is_raised(spare_netns):
    lo_up = NetlinkMessage(
        netlink.RTM_NEWLINK, 0, struct.pack("=BxHiII", 0, 0, 1, 1, 1), "ip link set lo up"
    )
    with pytest.raises(netlink.NetlinkError, match="4711"):
        spare_netns.netlink.request([lo_up, dummy_route(4711), dummy_route(4712), lo_up])
    spare_netns.netlink.request([lo_up])  # and the socket is in step again


@pytest.mark.kernel
def test_an_errno_may_be_tolerated(spare_netns):
    with pytest.raises(netlink.NetlinkError) as caught:
        spare_netns.netlink.request([dummy_route(4711)])
    spare_netns.netlink.request([dummy_route(4711)], tolerate=frozenset({caught.value.errno}))


@pytest.mark.kernel
def test_a_namespace_is_gone_when_we_are_told_so(tmp_path):
    spaces: list[netns.Netns] = []
    names = [f"weft.test-{tmp_path.name}.{i}" for i in range(20)]
    netns.create(names, lambda i: {"ipv4/ip_forward": "1"}, spaces)
    try:
        assert [space.name for space in spaces] == names
        with netns.inside(spaces[7].fd), open("/proc/sys/net/ipv4/ip_forward") as value:
            assert value.read() == "1\n"
        # A veth from one of them into a namespace that stays: it ends when the other end's
        # namespace does.
        home = spaces.pop()
        link = struct.pack("=BxHiII", 0, 0, 77, 0, 0) + netlink.u32(28, home.fd)
        info = netlink.nested(
            18, netlink.text(1, "veth"), netlink.nested(2, netlink.attribute(1, link))
        )
        message = NetlinkMessage(
            netlink.RTM_NEWLINK,
            netlink.CREATE,
            struct.pack("=BxHiII", 0, 0, 78, 0, 0) + info,
            "veth",
        )
        spaces[0].netlink.request([message])
        assert 77 in indexes(home.netlink)
        for space in spaces:
            space.close()
        spaces.clear()
        netns.forget(names[:-1])
        netns.wait_until_gone()
        assert 77 not in indexes(home.netlink)
        home.close()
    finally:
        for space in spaces:
            space.close()
        netns.forget(names)
    assert not [name for name in names if (netns.NAMES / name).exists()]


def indexes(socket: netlink.Socket) -> set[int]:
    return {
        struct.unpack_from("=i", body, 4)[0] for body in socket.dump(netlink.RTM_GETLINK, bytes(16))
    }


@pytest.mark.kernel
def test_a_name_that_is_taken_is_refused(spare_netns):
    with pytest.raises(FileExistsError):
        netns.create([spare_netns.name], lambda i: {}, [])


@pytest.mark.kernel
def test_a_sysctl_that_is_refused_is_named(tmp_path):
    spaces: list[netns.Netns] = []
    name = f"weft.test-{tmp_path.name}"
    try:
        with pytest.raises(
            OSError, match=r"sysctl net\.ipv4\.ip_default_ttl=999: Invalid argument"
        ):
            netns.create([name], lambda i: {"ipv4/ip_default_ttl": "999"}, spaces)
    finally:
        for space in spaces:
            space.close()
        netns.forget([name])
