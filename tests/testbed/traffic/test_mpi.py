"""Programs of Open MPI and MPICH over networks."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests import optional_parts
from tests.optional_parts import with_and_without
from weft.experiments.cli.cli import main
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network import clean
from weft.testbed.runs import run
from weft.testbed.traffic import mpi
from weft.testbed.traffic.tcp import tcp_sysctls
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.placement import place_ranks

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).with_name("allreduce.c")
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]
LINK = LinkSpec(rate_bps=200 * Mbps, queue_packets=250)
NOT_COPIED = (".*", "__pycache__", "docs", "figures", "results", "tests")
REAL = pytest.mark.real_clock("compiles programs, and waits for real seconds")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Compile allreduce.c for an MPI."""

    def compile_program(package: str) -> str:
        compiler = f"mpicc.{package}"
        if not shutil.which(compiler):
            optional_parts.refuse(f"{compiler}: apt-get install lib{package}-dev")
        path = tmp_path_factory.getbasetemp() / f"allreduce.{package}"
        if not path.exists():
            subprocess.run([compiler, "-O1", "-o", path, SOURCE], check=True)
        return str(path)

    return compile_program


def lines_of(net, job: mpi.MpiJob, folder: Path) -> tuple[mpi.MpiOutcome, list[str]]:
    """Run a job; return its outcome and its output."""
    with open(folder / "out", "wb") as out:
        outcome = mpi.run(net, job, stdout=out)
    return outcome, (folder / "out").read_text().splitlines()


def processes(net) -> list[int]:
    """Return the processes of a network without daemons."""
    return clean.processes(net.run.id, net.run.journal["namespaces"])


@pytest.mark.kernel
@REAL
@pytest.mark.parametrize("package", ["openmpi", "mpich"])
@pytest.mark.parametrize(("status", "words"), [(7, "status 7"), (-signal.SIGSEGV, "SIGSEGV")])
def test_ranks_share_nothing_but_the_network_and_end_together(
    network, program, package, status, words, tmp_path
):
    """Each host sends its share of an all-reduce through its port; then rank 1 dies."""
    net = network("clos:n=4,r=2,m=2", LINK)
    hosts = place_ranks(net.topology, 4, placement="leaf")
    size_bytes = 400_000
    argv = [program(package), str(size_bytes), "1", str(status)]
    with PortCounterReader(net) as reader:
        before = reader.snapshot().ports
        outcome, _ = lines_of(net, mpi.MpiJob(argv=argv, hosts=hosts, timeout_s=300), tmp_path)
        after = reader.snapshot().ports
    assert outcome.failed_rank == 1
    assert outcome.status == (status if status > 0 else 128 - status)
    name = net.topology.naming.name(hosts[1])
    assert outcome.failure == f"rank 1 on {name} ended with {words}"
    for host in hosts:
        port = net.ifindex(host, 0)
        assert after[port].since(before[port]).sent_bytes > 3 * 1.5 * size_bytes
    assert processes(net) == []
    assert not list(net.run.directory.glob("mpi-*"))


@pytest.mark.kernel
@REAL
def test_lines_of_output_begin_with_their_rank(network, program, tmp_path):
    net = network("star:n=2", LINK)
    job = mpi.MpiJob(argv=[program("openmpi"), "4"], hosts=[0, 0, 1], tagged=True)
    _, lines = lines_of(net, job, tmp_path)
    assert {line for line in lines if "seconds" not in line} == {
        "0: rank 0 of 3 on h0: 3",
        "1: rank 1 of 3 on h0: 3",
        "2: rank 2 of 3 on h1: 3",
    }


KILLED = """
import os, signal, sys
from contextlib import ExitStack
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import mpi
mpi._limit_queued_bytes(ExitStack(), RunningNetwork.open(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.kernel
@REAL
@pytest.mark.parametrize("killed", [False, True])
def test_the_last_of_several_jobs_restores_the_setting_of_tcp(network, killed):
    net = network("star:n=2", LINK)
    sysctls = tcp_sysctls(net)
    if killed:
        command = [sys.executable, "-c", KILLED, net.run.id]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    with ExitStack() as second:
        with ExitStack() as first:
            mpi._limit_queued_bytes(first, net)
            mpi._limit_queued_bytes(second, net)
        assert tcp_sysctls(net, 1)[mpi.QUEUED_SYSCTL] == str(mpi.QUEUED_BYTES)
    assert tcp_sysctls(net) == tcp_sysctls(net, 1) == sysctls


@pytest.mark.kernel
@REAL
def test_a_job_ends_at_its_timeout_and_leaves_no_setting(network, program):
    net = network("star:n=2", LINK)
    job = mpi.MpiJob(argv=[program("openmpi"), "4", "9", "0"], hosts=[0, 1], timeout_s=1)
    sysctls = tcp_sysctls(net)
    with pytest.raises(TimeoutError, match="mpirun: not done after 1 s"):
        mpi.run(net, job)
    assert processes(net) == []
    assert tcp_sysctls(net) == sysctls


@pytest.mark.kernel
def test_hosts_without_a_path_are_named(network):
    net = network("star:n=3", LINK)
    net.fail("h2-r0")
    with pytest.raises(mpi.UnreachableHosts, match=r"h0 cannot reach h2 .*: 2 of 3 pairs"):
        mpi.run(net, mpi.MpiJob(argv=["true"], hosts=[0, 1, 2]))


def ranks(record: run.RunRecord) -> list[int]:
    """Return the processes of the jobs of a run."""
    folders = record.directory.glob("mpi-*")
    return [pid for folder in folders for pid in clean.marked(mpi.JOB, str(folder))]


@pytest.mark.kernel
@REAL
def test_ranks_end_when_weft_is_killed(program):
    job = [program("openmpi"), "4", "9", "0"]
    argv = [*WEFT, "mpirun", "star:n=2", "--routing", "static", "--", *job]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL) as weft:
        record = wait_until(
            "the run",
            lambda: [r for r in run.runs() if r.journal_or_empty().get("pid") == weft.pid],
        )[0]
        wait_until("the ranks", lambda: ranks(record))
        weft.kill()
    wait_until("the end of the ranks", lambda: not ranks(record))
    clean.clean(record.id)
    assert record.id not in {left.id for left in run.runs()}


@pytest.mark.kernel
@REAL
def test_mpi4py_runs_through_the_interface_of_mininet(tmp_path):
    from weft.testbed.mininet.net import Net

    python = "/usr/bin/python3"
    script = tmp_path / "sum.py"
    script.write_text(
        "import os\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "line = f'{world.allreduce(world.rank)} {MPI.Get_processor_name()}\\n'\n"
        "os.write(1, line.encode())\n"  # at once: ranks share the file
    )
    if subprocess.run([python, "-c", "import mpi4py"], capture_output=True).returncode:
        optional_parts.refuse("mpi4py: apt-get install python3-mpi4py")
    with Net("star:n=3", link=LINK) as net, open(tmp_path / "out", "wb") as out:
        outcome = net.mpirun([python, str(script)], 3, stdout=out)
    assert replace(outcome, fidelity=None) == mpi.MpiOutcome(0)
    assert outcome.fidelity.seconds > 0
    assert sorted((tmp_path / "out").read_text().split("\n")[:3]) == ["3 h0", "3 h1", "3 h2"]


def weft(*words: str) -> str:
    """Return what a command of weft prints."""
    argv = [*WEFT, *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.kernel
def test_hosts_prints_where_ranks_would_run_and_exec_takes_words_as_ssh_does(network):
    name = network("clos:n=4,r=2,m=2").run.id
    assert weft("hosts", "--run", name).split() == [f"h{host}" for host in range(8)]
    placed = weft("hosts", "--run", name, "-n", "5", "--per-host", "2", "--placement", "leaf")
    assert placed.split() == ["h0", "h0", "h4", "h4", "h1"]
    line = ["A='of h3';", "echo", '"$(hostname)', 'is $A"']
    assert weft("exec", "--run", name, "h3", *line) == "h3 is of h3\n"
    assert weft("exec", "--run", name, "h3", "--", "echo", "$A", "--") == "$A --\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--", "./nix"], "mpirun: ./nix is no program here"),
        (["-n", "9", "--", "true"], "9 ranks, but star:n=2 has 2 hosts with 1 each"),
        (["--routing", "nix", "--", "true"], "nix"),
        ([], "mpirun: no program; write weft mpirun TOPOLOGY -n 8 -- PROGRAM"),
    ],
)
def test_wrong_input_is_refused(options, words, capsys):
    assert main(["mpirun", "star:n=2", *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("library", "version", "name"),
    [
        ("libmpi.so.40 =>", "mpirun (Open MPI) 4.1.4", "Open MPI"),
        ("libmpich.so.12 =>", "HYDRA build details:", "MPICH"),
        ("libc.so.6 =>", "HYDRA build details:", "MPICH"),
    ],
)
def test_the_launcher_is_that_of_the_program(library, version, name, monkeypatch):
    monkeypatch.setattr(mpi.shutil, "which", lambda program: program)
    monkeypatch.setattr(mpi, "_output", lambda argv: library if argv[0] == "ldd" else version)
    assert mpi.launcher_of("/program") == mpi.Launcher(
        "mpirun", {"Open MPI": mpi.OPEN_MPI, "MPICH": mpi.MPICH}[name]
    )


def test_a_program_of_an_mpi_that_is_missing_is_refused(monkeypatch):
    monkeypatch.setattr(mpi.shutil, "which", lambda program: program)
    outputs = {"ldd": "libmpich.so.12 =>"}
    monkeypatch.setattr(mpi, "_output", lambda argv: outputs.get(argv[0], "Open MPI 4.1.4"))
    with pytest.raises(ValueError, match="needs mpirun of MPICH: apt-get install mpich"):
        mpi.launcher_of("/program")


@with_and_without("mpi")
def test_without_an_mpi_every_program_is_refused_in_a_line(part):
    if part:
        assert Path(mpi.launcher_of(sys.executable).path).exists()
        return
    with pytest.raises(ValueError, match="needs mpirun of Open MPI or MPICH: apt-get install "):
        mpi.launcher_of(sys.executable)


VIRTUAL = [pytest.mark.virtual, pytest.mark.slow]
HANG_S = 150  # of 4 to 20


def ranks_output(command: Sequence[str | Path], folder: Path) -> str:
    """Return what ranks print.

    MPICH may hang in MPI_Finalize (docs/mpi.md), under the virtual clock in a few environments: it
    depends on their length, and is the same each time.  Such a run ends, and another is tried.
    """
    for padding in ("", 37 * "x", 74 * "x"):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PADDING": padding}
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=HANG_S,
            ).stdout
    raise AssertionError("ranks hang in each environment")


@pytest.mark.parametrize(
    ("package", "clock"),
    [
        pytest.param("openmpi", "real", marks=[pytest.mark.kernel, REAL]),
        pytest.param("openmpi", "virtual", marks=VIRTUAL),
        pytest.param("mpich", "virtual", marks=VIRTUAL),
    ],
)
def test_servers_that_forward_run_ranks(program, package, clock):
    """An all-reduce of four ranks on DCell: a rank's packets pass other ranks' hosts."""
    path = Path(program(package))
    argv = ["mpirun", "dcell:n=3,k=1", "--rate", "1gbit", "--clock", clock, "-n", "4"]
    stdout = ranks_output([*WEFT, *argv, "--", f"./{path.name}", "100000"], path.parent)
    lines = sorted(line for line in stdout.splitlines() if line.startswith("rank"))
    assert lines == [f"rank {rank} of 4 on h{rank}: 6" for rank in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "clock"),
    [
        pytest.param("fattree:k=4", "real", marks=[pytest.mark.kernel, REAL]),
        pytest.param("dcell:n=3,k=1", "virtual", marks=pytest.mark.virtual),
    ],
)
def test_hpc_challenge_ends(topology, clock, tmp_path):
    if not shutil.which("hpcc"):
        optional_parts.refuse("hpcc: apt-get install hpcc")
    shutil.copy(Path(__file__).with_name("hpccinf.txt"), tmp_path)
    argv = ["mpirun", topology, "--rate", "10gbit", "--mtu", "9000", "--clock", clock, "-n", "4"]
    subprocess.run(
        [*WEFT, *argv, "--", "hpcc"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    results = (tmp_path / "hpccoutf.txt").read_text()
    assert "\nSuccess=1\n" in results
    assert "\nMPIRandomAccess_ErrorsFraction=0\n" in results
    assert "End of HPC Challenge tests" in results


@pytest.mark.virtual
@pytest.mark.slow
def test_an_all_reduce_under_the_virtual_clock_is_repeatable_and_near_its_bound(program):
    """Four ranks move 1.5 times the data each, in frames of 1,514 bytes with 1,448 of payload.

    The last run is of a copy of weft without compiled files, whose start makes other system calls.
    """
    size_bytes, rate_bps = 2_000_000, 10**9
    path = Path(program("openmpi"))
    argv = ["mpirun", "clos:n=4,r=2,m=4", "--routing", "ttc", "--rate", "1gbit", "-n", "4"]
    command = [*WEFT, *argv, "--clock", "virtual", "--placement", "leaf", "--", f"./{path.name}"]
    copy, tree = path.parent / "copy", path.parent / "weft"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    outputs = []
    for target in (ROOT, ROOT, copy):
        tree.unlink(missing_ok=True)
        # Open MPI sends its environment, so its length counts
        tree.symlink_to(target)
        done = subprocess.run(
            [*command, str(size_bytes)],
            cwd=path.parent,
            env=os.environ | {"PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout)
    assert len(set(outputs)) == 1
    seconds = [float(text) for text in re.findall(r"seconds (\S+)", outputs[0])]
    bound_s = 1.5 * size_bytes * 8 / rate_bps * 1514 / 1448
    assert len(seconds) == 3
    assert bound_s <= min(seconds)
    assert max(seconds) < 1.1 * bound_s


def test_a_job_without_a_program_is_refused():
    with pytest.raises(ValueError, match="mpirun: no program; name one"):
        mpi.run(None, mpi.MpiJob(argv=[], hosts=[0]))
