"""Commands under User-Mode Linux.  The last tests run inside it, unless this kernel can do what
they need."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from weft.testbed.linux.clock import wait_until
from weft.testbed.uml import uml
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

boots = pytest.mark.usefixtures("user_mode_linux")

# A kernel that dies as often as `deaths` says, then does as uml-init.sh would.
FAKE = """#!/bin/sh
echo "boot of $*" >>{log}
[ "$(wc -l <{log})" -le {deaths} ] && echo 'no luck' && exit 1
echo booted >>channels/status
[ {status} = none ] || echo {status} >>channels/status
"""


# ptrace of a kernel whose extended state has 4096 bytes, all 7, and which takes the whole or
# nothing.
KERNEL_CALLS = """
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
static char state[4096] = { [0 ... 4095] = 7 };
long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	va_arg(arguments, long);
	va_arg(arguments, void *);
	struct iovec *part = va_arg(arguments, struct iovec *);
	va_end(arguments);
	if (request == PTRACE_GETREGSET) {
		part->iov_len = part->iov_len < sizeof state ? part->iov_len : sizeof state;
		memcpy(part->iov_base, state, part->iov_len);
		return 0;
	}
	errno = EFAULT;
	if (part->iov_len < sizeof state)
		return -1;
	memcpy(state, part->iov_base, sizeof state);
	return 0;
}
"""

# Read 832 bytes of a process's extended state, change the first, write them back; print the state's
# first and last.
RESTORE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
def ptrace(request, state):
    part = (ctypes.c_size_t * 2)(ctypes.addressof(state), len(state))
    return libc.ptrace(request, 1, 0x202, ctypes.addressof(part))  # NT_X86_XSTATE
state, whole = ctypes.create_string_buffer(832), ctypes.create_string_buffer(4096)
ptrace(0x4204, state)  # PTRACE_GETREGSET
state[0] = 9
print(ptrace(0x4205, state), end=" ")  # PTRACE_SETREGSET
ptrace(0x4204, whole)
print(whole[0][0], whole[4095][0])
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86_64, as User-Mode Linux does")
@pytest.mark.parametrize(("preloaded", "printed"), [(False, "-1 7 7"), (True, "0 9 7")])
def test_a_partial_state_that_the_kernel_refuses_is_completed(tmp_path, preloaded, printed):
    (tmp_path / "kernel.c").write_text(KERNEL_CALLS)
    kernel = tmp_path / "kernel.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", kernel, tmp_path / "kernel.c"], check=True)
    libraries = [str(uml.PRELOADED), str(kernel)] if preloaded else [str(kernel)]
    environment = {**os.environ, "LD_PRELOAD": " ".join(libraries)}
    done = subprocess.run(
        [sys.executable, "-c", RESTORE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == printed


def fake_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch, *, deaths: int, status: str) -> Path:
    """Have weft.testbed.uml.uml start FAKE; the file has a line for each time it did."""
    log, kernel = folder / "boots", folder / "linux"
    kernel.write_text(FAKE.format(log=log, deaths=deaths, status=status))
    kernel.chmod(0o755)
    monkeypatch.setattr(uml, "KERNEL", str(kernel))
    return log


def boots_of(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_a_boot_that_dies_is_tried_once_more(tmp_path, monkeypatch):
    log = fake_kernel(tmp_path, monkeypatch, deaths=1, status="3")
    assert uml.run(["true"], cwd=tmp_path) == 3
    assert boots_of(log) == 2


def test_a_boot_that_dies_twice_tells_its_last_words(tmp_path, monkeypatch):
    log = fake_kernel(tmp_path, monkeypatch, deaths=2, status="3")
    with pytest.raises(ChildProcessError, match="no luck"):
        uml.run(["true"], cwd=tmp_path)
    assert boots_of(log) == 2


def test_a_command_is_never_run_twice(tmp_path, monkeypatch):
    log = fake_kernel(tmp_path, monkeypatch, deaths=0, status="none")
    with pytest.raises(ChildProcessError, match="died"):
        uml.run(["true"], cwd=tmp_path)
    assert boots_of(log) == 1


@pytest.mark.parametrize("name", ["run", "x=y", "-x=y", "PATH=run"])
def test_the_first_word_of_a_command_is_a_program_whatever_its_name(tmp_path, name):
    """Also with =, which makes it a value of the environment for some programs."""
    (tmp_path / name).write_text('#!/bin/sh\nprintf \'%s|\' "$GREETING" "$@"\n')
    (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GREETING": "it's"}
    for words in ([name, "a b", "c=d"], [f"./{name}", "a b", "c=d"]):
        line = uml._command(words, tmp_path, environment)
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("it's|a b|c=d|", 0)
    line = uml._command([f"no-{name}"], tmp_path, environment)
    assert subprocess.run(["sh", "-c", line], capture_output=True).returncode == 127


def test_a_core_that_is_not_ours_is_refused():
    with pytest.raises(ValueError, match="core 4096: this process may use "):
        uml.run(["true"], core=4096)


@pytest.mark.parametrize("folder", ["/", "/tmp", "/run", "/home/of a\n/etc"])
def test_a_folder_of_the_system_is_not_made_writable(folder, tmp_path, monkeypatch):
    fake_kernel(tmp_path, monkeypatch, deaths=0, status="0")
    with pytest.raises(ValueError, match=re.escape(f"cannot be {folder!r}: use one of yours")):
        uml.run(["true"], cwd=Path(folder), writable=True)


def test_a_machine_without_it_hears_where_it_is(monkeypatch):
    monkeypatch.setattr(uml, "KERNEL", "no-such-kernel")
    with pytest.raises(FileNotFoundError, match="package user-mode-linux"):
        uml.run(["true"])


def left_behind(folder: Path) -> list[str]:
    """Return the folders and processes left by a kernel whose folders are made in `folder`."""
    left = [path.name for path in folder.glob("weft-uml-*")]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes() and process.name != str(
                os.getpid()
            ):
                left.append(process.name)
    return left


def wait_until_nothing_is_left(folder: Path) -> None:
    wait_until("nothing is left", lambda: not left_behind(folder), every_s=0.02)


@boots
@pytest.mark.kernel
@pytest.mark.real_clock("boots User-Mode Linux, which does not run inside itself")
def test_a_command_has_its_folder_its_status_and_its_two_outputs(tmp_path, monkeypatch):
    out, err, folder = io.BytesIO(), io.BytesIO(), tmp_path / "a folder"
    folder.mkdir()
    (tmp_path / "hidden").touch()
    script = """
        id --user; pwd; echo "$GREETING"; hostname; seq 100000; echo to stderr >&2
        echo kept >file; echo forgotten >/etc/weft-uml-test; cat /etc/weft-uml-test; ls ..
        [ -t 1 ] || exit 7
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {"PATH": os.environ["PATH"], "GREETING": 'it\'s \n"me"'}
    status = uml.run(
        ["sh", "-c", script], cwd=folder, writable=True, env=environment, stdout=out, stderr=err
    )
    assert (status, err.getvalue()) == (7, b"to stderr\n")
    numbers = "".join(f"{i}\n" for i in range(1, 100001))
    greeting = environment["GREETING"]
    assert (
        out.getvalue().decode() == f"0\n{folder}\n{greeting}\numl\n{numbers}forgotten\na folder\n"
    )
    assert (folder / "file").read_text() == "kept\n"
    assert not Path("/etc/weft-uml-test").exists()
    assert not left_behind(tmp_path)


@boots
@pytest.mark.landlock
@pytest.mark.kernel
@pytest.mark.real_clock("boots User-Mode Linux, which does not run inside itself")
def test_a_mounted_folder_of_the_host_is_not_written_to(tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    script = f"mkdir /mnt/a && mount -t hostfs -o {other} none /mnt/a && touch own /mnt/a/file"
    err = io.BytesIO()
    assert uml.run(["sh", "-c", script], cwd=own, writable=True, stderr=err) == 1
    assert b"/mnt/a/file" in err.getvalue()
    assert (list(own.iterdir()), list(other.iterdir())) == ([own / "own"], [])


@boots
@pytest.mark.kernel
@pytest.mark.real_clock("boots User-Mode Linux, which does not run inside itself")
def test_root_is_not_needed(public_copy):
    nobody = 65534
    os.chown(public_copy, nobody, nobody)
    script = "id -u; ip netns add a && ip netns && touch mine"
    program = (
        f"import sys; from weft.testbed.uml import uml; "
        f"sys.exit(uml.run(['sh', '-c', '{script}'], writable=True))"
    )
    done = subprocess.run(
        [
            "setpriv",
            f"--reuid={nobody}",
            f"--regid={nobody}",
            "--clear-groups",
            "/usr/bin/python3",
            "-c",
            program,
        ],
        cwd=public_copy,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\na\n"), done.stderr
    assert (public_copy / "mine").stat().st_uid == nobody


@boots
@pytest.mark.kernel
@pytest.mark.real_clock("boots User-Mode Linux, which does not run inside itself")
def test_a_command_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TimeoutError, match=r"sleep 100: not done after 0\.5 s"):
        uml.run(["sleep", "100"], cwd=tmp_path, timeout_s=0.5)
    wait_until_nothing_is_left(tmp_path)


@boots
@pytest.mark.kernel
@pytest.mark.real_clock("boots User-Mode Linux, which does not run inside itself")
def test_nothing_outlives_us(tmp_path):
    # memory also in the temporary folder, so that other tests' is not looked at
    program = (
        "from weft.testbed.uml import uml;"
        "uml._folder_for_memory = lambda memory_mb: uml.tempfile.gettempdir();"
        "uml.run(['sh', '-c', 'sleep 100 & echo up; sleep 100'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(uml.PROJECT)},
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout.readline() == b"up\n"
        assert len(list(tmp_path.glob("weft-uml-*"))) == 2
        process.kill()
    wait_until_nothing_is_left(tmp_path)


def run(command: str) -> str:
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


@pytest.fixture
def cable() -> Iterator[tuple[str, str]]:
    """Two namespaces, 10.0.0.1 and 10.0.0.2, joined by a veth that both call `end`."""
    stem = f"weft.test.{os.urandom(4).hex()}"
    one, other = f"{stem}.1", f"{stem}.2"
    for name in (one, other):
        run(f"ip netns add {name}")
    run(f"ip link add end netns {one} type veth peer name end netns {other}")
    for name in (one, other):
        run(f"ip -n {name} address add 10.0.0.{name[-1]}/24 dev end")
        run(f"ip -n {name} link set end up")
    yield one, other
    for name in (one, other):
        run(f"ip netns delete {name}")


@pytest.mark.uml("sch_netem")
def test_a_delay_is_never_early(cable):
    for name in cable:
        run(f"tc -n {name} qdisc add dev end root netem delay 20ms")
    assert 40 <= quickest_ping_ms(cable[0], "10.0.0.2") < 50


@pytest.mark.uml("sch_netem", "sch_tbf")
def test_a_network_has_the_delay_of_its_links(network):
    """There and back is over four of them."""
    star = network("star:n=2", LinkSpec(rate_bps=20 * Mbps, queue_packets=250, delay_us=5000))
    far = dotted(star.topology.naming.address(1))
    assert 20 <= quickest_ping_ms(star.run.namespace("h0"), far) < 30


def quickest_ping_ms(namespace: str, address: str) -> float:
    answer = run(f"ip netns exec {namespace} ping -c 20 -i 0.02 {address}")
    return float(answer.split("min/avg/max/mdev = ")[1].split("/")[0])


@pytest.mark.uml("sch_red", "sch_tbf", "tcp_dctcp")
def test_red_marks_dctcp_and_drops_reno(cable):
    one = cable[0]
    run(f"tc -n {one} qdisc add dev end root handle 1: tbf rate 50mbit burst 5000 limit 1000000")
    red = "limit 400000 min 30000 max 90000 avpkt 1500 burst 21 probability 1 bandwidth 50mbit ecn"
    run(f"tc -n {one} qdisc add dev end parent 1:1 handle 2: red {red}")
    send(cable, "dctcp")
    after_dctcp = red_counts(one)
    send(cable, "reno")
    after_reno = red_counts(one)
    # not every packet of a DCTCP flow may be marked
    assert after_dctcp.marked > 10 * after_dctcp.dropped
    assert after_reno.dropped > after_dctcp.dropped
    assert after_reno.marked == after_dctcp.marked


def send(cable: tuple[str, str], congestion_control: str) -> None:
    """Send with TCP for a second from one end of the cable to the other."""
    # By route: DCTCP is agreed on in the first packet, by both ends, and iperf3 asks for it after
    # that.
    for name in cable:
        run(f"ip -n {name} route replace 10.0.0.0/24 dev end congctl {congestion_control}")
    one, other = cable
    listen = ["ip", "netns", "exec", other, "iperf3", "--server", "--one-off", "--forceflush"]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as server:
        assert "---" in server.stdout.readline()
        sent = run(f"ip netns exec {one} iperf3 --client 10.0.0.2 --time 1 --json")
    assert json.loads(sent)["end"]["sender_tcp_congestion"] == congestion_control


class RedCounts(NamedTuple):
    """Packets that RED has marked, and those it has dropped."""

    marked: int
    dropped: int


def red_counts(name: str) -> RedCounts:
    qdiscs = json.loads(run(f"tc -n {name} -s -j qdisc show dev end"))
    (red,) = [qdisc for qdisc in qdiscs if qdisc["kind"] == "red"]
    return RedCounts(red["marked"], red["drops"])
