import os
import subprocess

import pytest

from weft.testbed.network import clean
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import node_command, run
from weft.topologies import build

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def network():
    network = RunningNetwork.create(build("dcell:n=3,k=1"), None, scheme="static")
    yield network
    network.down()


def output(network, node, line):
    """Return what `line` prints at a node."""
    command = node_command.command(network.run, node, ["sh", "-c", line])
    environment = os.environ | node_command.environment(network.run)
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


def test_a_program_sees_its_host_name_and_the_address_of_every_name(network):
    for node, address in (("h0", "10.0.0.0"), ("h11", "10.0.3.2")):
        assert output(network, node, "hostname") == node
        assert output(network, node, "getent ahostsv4 $(hostname)").split()[0] == address
    assert output(network, "h0", "getent hosts h11").split()[0] == "10.0.3.2"


def test_a_host_has_its_address_on_its_first_port_and_no_other(network):
    addresses = output(network, "h11", "ip -4 -o address show | awk '{print $2, $4}'")
    assert addresses.splitlines() == ["lo 127.0.0.1/8", "h11-eth0 10.0.3.2/32"]


def test_programs_of_a_node_share_memory_and_those_of_two_nodes_do_not(network):
    output(network, "h1", "echo here >/dev/shm/of-h1")
    assert output(network, "h1", "cat /dev/shm/of-h1") == "here"
    assert output(network, "h2", "ls /dev/shm") == ""
    assert not os.path.exists("/dev/shm/of-h1")
    output(network, "h1", "ipcmk --shmem 4096")
    assert "4096" not in output(network, "h2", "ipcs --shmems")


def test_the_remote_shell_takes_words_as_ssh_does(network):
    line = '"$OMPI_MCA_plm_rsh_agent" h7 "A=\'of h7\';" echo "\\$(hostname)" is '
    assert output(network, "h0", line + "'\"$A\"'") == "h7 is of h7"


def test_nothing_of_a_program_remains_after_its_network_was_killed():
    network = RunningNetwork.create(build("star:n=2"), None, scheme="static")
    command = node_command.command(
        network.run, "h0", ["sh", "-c", "echo >/dev/shm/x; echo; sleep 999"]
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        assert (network.run.directory / node_command.SHARED_MEMORY / "h0/x").exists()
        network.close()
        network.run_lock.release()  # as if its process had been killed
        assert network.run.id in clean.clean(network.run.id)
        assert process.wait() < 0
    assert not network.run.directory.exists()
    assert network.run.id not in {record.id for record in run.runs()}
    with open("/proc/self/mountinfo") as mounts:
        assert str(network.run.directory) not in mounts.read()
