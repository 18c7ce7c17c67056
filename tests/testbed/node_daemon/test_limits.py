"""Daemons on a machine that refuses something: they go on without it."""

from __future__ import annotations

import resource

import pytest

from weft.testbed.linux.clock import wait_until
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.daemon_files import Log
from weft.topologies import build


@pytest.mark.parametrize("errno", [28, 27, 5])
def test_lines_that_cannot_be_written_are_counted_in_the_next_one(tmp_path, monkeypatch, errno):
    log = Log(tmp_path, "h0")

    def refuse(fd, data):
        raise OSError(errno, "no")

    with monkeypatch.context() as full:
        full.setattr("os.write", refuse)
        log.write("lost")
        log.write("lost")
    log.write("written")
    log.write("written, too")
    log.close()
    first, second = (tmp_path / "log" / "h0.log").read_text().splitlines()
    assert first.endswith("(2 lines before this one could not be written) written")
    assert "could not" not in second


@pytest.mark.kernel
def test_daemons_whose_disk_is_full_go_on():
    """They may write no byte to a file, as where /run is full, while a link fails and comes
    back."""
    network = RunningNetwork.create(build("dcell:n=3,k=1"), None, scheme="dr")
    try:
        before = {node: row.pid for node, row in network.rows().items()}
        for pid in before.values():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
        network.fail("h0-h3")
        wait_until("it was noticed", lambda: all(network.rows()[node].losses for node in (0, 3)))
        network.restore("h0-h3")
        network.wait_until_converged()
        assert {node: row.pid for node, row in network.rows().items()} == before
        assert {(row.deaths, row.packets_failed) for row in network.rows().values()} == {(0, 0)}
    finally:
        network.down()
