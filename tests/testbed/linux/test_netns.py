import os
from pathlib import Path

import pytest

from weft.testbed.linux import netns


@pytest.fixture
def names():
    spaces = [f"weft.test.{os.urandom(4).hex()}" for _ in range(5)]
    yield spaces
    netns.forget(spaces)


@pytest.mark.kernel
def test_every_name_leads_to_a_namespace_of_its_own(names):
    spaces: list[netns.Netns] = []
    netns.create(names, lambda i: {"ipv4/ip_forward": str(i % 2)}, spaces)
    assert [space.name for space in spaces] == names
    inodes = [os.stat(netns.NAMES / name).st_ino for name in names]
    assert inodes == [os.fstat(space.fd).st_ino for space in spaces]
    assert len({*inodes, os.stat(netns.OWN).st_ino}) == len(names) + 1
    for i, space in enumerate(spaces):
        with netns.inside(space.fd):
            assert Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == str(i % 2)
        space.close()
    netns.forget(names[:1])  # the others' files were links to its own
    assert [(netns.NAMES / name).exists() for name in names] == [False, True, True, True, True]
    assert [os.stat(netns.NAMES / name).st_ino for name in names[1:]] == inodes[1:]


@pytest.mark.kernel
@pytest.mark.parametrize("taken", [0, 3])
def test_a_name_that_is_taken_is_refused_and_what_holds_it_stays(names, taken):
    holder: list[netns.Netns] = []
    netns.create([names[taken]], lambda i: {}, holder)
    spaces: list[netns.Netns] = []
    with pytest.raises(FileExistsError, match=names[taken]):
        netns.create(names, lambda i: {}, spaces)
    assert spaces == []
    assert os.stat(netns.NAMES / names[taken]).st_ino == os.fstat(holder[0].fd).st_ino
    holder[0].close()


@pytest.mark.kernel
def test_names_are_made_where_files_cannot_be_linked(names, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    spaces: list[netns.Netns] = []
    netns.create(names, lambda i: {}, spaces)
    assert [os.stat(netns.NAMES / name).st_ino for name in names] == [
        os.fstat(space.fd).st_ino for space in spaces
    ]
    for space in spaces:
        space.close()


# -- settings

FORWARDING, HASHING = "ipv4/ip_forward", "ipv4/fib_multipath_hash_policy"


@pytest.fixture
def spaces(monkeypatch):
    monkeypatch.setattr(netns, "SYSCTL_NAMESPACES", 2)
    names = [f"weft.test.{os.urandom(4).hex()}" for _ in range(7)]
    made: list[netns.Netns] = []
    try:
        netns.create(names, lambda i: {FORWARDING: str(i % 2), HASHING: str(i % 3)}, made)
        yield made
    finally:
        for space in made:
            space.close()
        netns.forget(names)


def sysctl_values(space: netns.Netns) -> list[str]:
    with netns.inside(space.fd):
        return [Path(netns.SYSCTLS, path).read_text().strip() for path in (FORWARDING, HASHING)]


@pytest.mark.kernel
def test_every_namespace_has_its_own_whichever_file_system_it_was_looked_up_in(spaces):
    assert [sysctl_values(space) for space in spaces] == [
        [str(i % 2), str(i % 3)] for i in range(7)
    ]
    with netns.inside(spaces[0].fd):
        netns.write_sysctl(FORWARDING, "1")
    assert [sysctl_values(space)[0] for space in spaces] == ["1", "1", "0", "1", "0", "1", "0"]


@pytest.mark.kernel
def test_a_file_system_that_is_looked_into_is_not_the_machines_and_is_mounted_nowhere():
    mounts = Path("/proc/self/mountinfo").read_text()
    descriptors = len(os.listdir("/proc/self/fd"))
    folder = netns.own_sysctls()
    assert os.fstat(folder).st_dev != os.stat(netns.SYSCTLS).st_dev
    assert {"core", "ipv4"} <= set(os.listdir(folder))
    assert Path("/proc/self/mountinfo").read_text() == mounts
    os.close(folder)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.kernel
def test_where_none_can_be_mounted_the_machines_is_looked_into(monkeypatch):
    monkeypatch.setattr(netns, "_mounted_proc", lambda: -1)
    folder = netns.own_sysctls()
    assert os.fstat(folder).st_dev == os.stat(netns.SYSCTLS).st_dev
    os.close(folder)


@pytest.mark.parametrize("libc", [object(), type("Libc", (), {"fsopen": lambda *_: -1})()])
def test_a_c_library_or_a_kernel_without_the_call_is_no_error(monkeypatch, libc):
    monkeypatch.setattr(netns, "libc", libc)
    assert netns._mounted_proc() == -1


@pytest.mark.kernel
def test_what_the_kernel_refuses_is_named():
    def work():
        netns.check(netns.libc.unshare(netns.CLONE_NEWNET), "unshare")
        own = netns.Sysctls()
        own.enter()
        try:
            with pytest.raises(
                OSError, match=r"^\[Errno 22\] sysctl net.ipv4.ip_forward=no: Invalid argument$"
            ):
                own.set({FORWARDING: "no"}, {})
            with pytest.raises(OSError, match=r"sysctl net.ipv4.ip_forwards=1: No such file"):
                own.set({"ipv4/ip_forwards": "1"}, {"ipv4/ip_forwards": "0"})
            assert own.read(FORWARDING) in ("0", "1")
        finally:
            own.close()

    netns.in_thread(work)
    with pytest.raises(OSError, match=r"sysctl net.ipv4.none=1: No such file"):
        netns.write_sysctl("ipv4/none", "1")
