import os
from pathlib import Path

import pytest

from weft.testbed.linux import netns


@pytest.fixture
def names():
    made = [f"weft.test.{os.urandom(4).hex()}" for _ in range(5)]
    yield made
    netns.forget(made)


@pytest.mark.kernel
def test_every_name_leads_to_a_namespace_of_its_own(names):
    made: list[netns.Netns] = []
    netns.create(names, lambda i: {"ipv4/ip_forward": str(i % 2)}, made)
    assert [space.name for space in made] == names
    inodes = [os.stat(netns.NAMES / name).st_ino for name in names]
    assert inodes == [os.fstat(space.fd).st_ino for space in made]
    assert len({*inodes, os.stat(netns.OWN).st_ino}) == len(names) + 1
    for i, space in enumerate(made):
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
    made: list[netns.Netns] = []
    with pytest.raises(FileExistsError, match=names[taken]):
        netns.create(names, lambda i: {}, made)
    assert made == []
    assert os.stat(netns.NAMES / names[taken]).st_ino == os.fstat(holder[0].fd).st_ino
    holder[0].close()


@pytest.mark.kernel
def test_names_are_made_where_files_cannot_be_linked(names, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    made: list[netns.Netns] = []
    netns.create(names, lambda i: {}, made)
    assert [os.stat(netns.NAMES / name).st_ino for name in names] == [os.fstat(space.fd).st_ino for space in made]
    for space in made:
        space.close()
