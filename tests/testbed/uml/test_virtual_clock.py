"""Commands under a virtual clock: computing takes no time, rates and delays are exact, and runs
repeat."""

from __future__ import annotations

import compileall
import hashlib
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

from weft.testbed.uml import uml, virtual_kernel
from weft.testbed.uml.uml import VirtualClock

FRAME_BITS = 8 * 1514
CLOCK = "print(time.clock_gettime_ns(time.CLOCK_MONOTONIC))"
CABLE = Path(__file__).with_name("cable.py")
POLLING = Path(__file__).with_name("polling.py")
virtual = pytest.mark.virtual
# of a mount namespace of its own, so that other networks keep theirs
EMPTY_LINKS = "mkdir -p /etc/netns; mount -t tmpfs tmpfs /etc/netns"


def inside(*argv: str, seed: int = 1, syscall_ns: int = 0, status: int = 0) -> str:
    """Return what a command prints under a virtual clock; print its errors if it fails."""
    out, err = io.BytesIO(), io.BytesIO()
    clock = VirtualClock(seed=seed, syscall_ns=syscall_ns)
    got = uml.run(argv, virtual=clock, timeout_s=500, stdout=out, stderr=err)
    assert got == status, err.getvalue().decode()
    return out.getvalue().decode()


@virtual
def test_an_hour_passes_at_once_and_no_longer_than_an_hour():
    begin, end = inside("sh", "-c", "cat /proc/uptime; sleep 3600; cat /proc/uptime").splitlines()
    # printed in 10 ms
    assert float(end.split()[0]) - float(begin.split()[0]) == pytest.approx(3600, abs=0.011)


@virtual
def test_a_command_that_fails_is_told():
    inside("sh", "-c", "exit 7", status=7)


@virtual
def test_what_is_random_repeats_with_the_seed_and_differs_without():
    draw = (
        "sh",
        "-c",
        "head -c 16 /dev/urandom | sha256sum; date +%s.%N; mktemp --dry-run; echo $$",
    )
    assert inside(*draw, seed=3) == inside(*draw, seed=3) != inside(*draw, seed=4)


@virtual
def test_a_kernel_that_the_host_stops_at_any_moment_does_the_same(monkeypatch):
    """A busy host does no more: nothing inside runs while the kernel waits for a processor."""
    program = ("sh", "-c", "for n in $(seq 50); do sleep 0.001; date +%s.%N; echo $$; done")
    quiet = inside(*program)
    stops = 0

    class Interrupted(uml.Console):
        def has_ended(self, wait_ms: int) -> bool:
            nonlocal stops
            ended = super().has_ended(1)
            if not ended and self.kernel is not None:
                stops += 1
                with suppress(ProcessLookupError):  # it has ended
                    signal.pidfd_send_signal(self.kernel, signal.SIGSTOP)
                    time.sleep(0.002)
                    signal.pidfd_send_signal(self.kernel, signal.SIGCONT)
            return ended

    monkeypatch.setattr(uml, "Console", Interrupted)
    assert inside(*program) == quiet
    assert stops > 50


@virtual
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to change /etc/netns for itself alone")
def test_networks_that_are_up_outside_change_no_random_numbers():
    """Their links in /etc/netns lead nowhere inside, where a run would remove them as lost."""
    inner = """
        import os
        from pathlib import Path
        from weft.testbed.runs import hosts_file
        hosts_file.unlink_lost(Path("/run/weft"))
        hosts_file.link(Path("/run/weft/own"), ["weft.own.h0", "weft.own.h1"])
        for number in range(300):  # random numbers are drawn in blocks
            Path(f"/tmp/{number}").touch()
            print(os.urandom(2).hex())
    """
    outer = """
        import sys
        from weft.testbed.uml import uml
        sys.exit(uml.run(sys.argv[1:], virtual=uml.VirtualClock()))
    """
    program = [*isolated_python(outer), *isolated_python(inner)]
    without, beside = (
        subprocess.run(
            ["unshare", "--mount", "sh", "-ec", f'{outside}; exec "$@"', "sh", *program],
            check=True,
            capture_output=True,
        ).stdout
        for outside in (EMPTY_LINKS, f"{EMPTY_LINKS}; ln -s /run/weft/up/etc /etc/netns/weft.up.h0")
    )
    assert beside == without != b""


def isolated_python(program: str) -> list[str]:
    """Return the command that runs `program` with the weft of this checkout."""
    root = f"import sys; sys.path.insert(0, {str(uml.PROJECT)!r})\n"
    return [sys.executable, "-P", "-c", root + textwrap.dedent(program)]


@virtual
def test_files_that_are_looked_for_in_vain_cost_no_time():
    """Else what the host has in its caches would change what happens."""
    few, many = (
        inside(
            sys.executable,
            "-S",
            "-c",
            f"import os, time\n[os.path.exists('/no') for _ in range({n})]\n{CLOCK}",
        )
        for n in (10, 1000)
    )
    assert few == many


@virtual
def test_bytecode_changes_no_time_of_imports_after_a_sleep(tmp_path, monkeypatch):
    """Python reads a file more where bytecode is stale, and the clock for each lock."""
    monkeypatch.chdir(tmp_path)
    names = [f"imported{number}" for number in range(50)]
    program = f"import time; time.sleep(0.01); import {', '.join(names)}; {CLOCK}"

    def clock_ns(source_s: int) -> str:
        for name in names:
            (tmp_path / f"{name}.py").write_text("import os\n")
            os.utime(tmp_path / f"{name}.py", (source_s, source_s))
        return inside(sys.executable, "-S", "-c", program)

    missing_ns = clock_ns(source_s=1)
    compileall.compile_dir(tmp_path, quiet=2)
    assert len(list(tmp_path.glob("__pycache__/*"))) == len(names)
    valid_ns, stale_ns = clock_ns(source_s=1), clock_ns(source_s=2)
    assert missing_ns == valid_ns == stale_ns


@virtual
def test_a_sleep_ends_when_it_should_and_not_when_other_timers_do():
    program = (
        "import time\ntime.sleep(0.01)  # starting takes the kernel some us\nfor ns in (1000, "
        "12_112, 10**6, 10**9):\n"
        " end = time.monotonic_ns() + ns; time.sleep(ns / 1e9); print(time.monotonic_ns() - end)"
    )
    assert max(int(late) for late in inside("python3", "-c", program).split()) < 50


@virtual
def test_a_process_that_polls_without_sleeping_does_not_stop_the_clock():
    late_ns = json.loads(inside(sys.executable, "-S", str(POLLING)))
    assert len(late_ns) == 12
    assert all(-1000 < late < 50_000 for late in late_ns.values()), late_ns


@virtual
def test_a_process_that_wakes_reads_the_clock_for_free_at_first():
    """So the place of an import, and how often Python takes a lock, change no time in a run."""
    program = (
        "import time\n"
        "for readings in (100, 900, 5000):\n"
        "    time.sleep(0.01)\n"
        "    begin = time.monotonic_ns()\n"
        "    for _ in range(readings): time.monotonic_ns()\n"
        "    print(time.monotonic_ns() - begin)"
    )
    few, many, polling = map(int, inside(sys.executable, "-S", "-c", program).split())
    assert few == many == 0 < polling


@virtual
def test_connections_that_begin_are_not_taken_for_polling():
    program = (
        "import socket, time\n"
        "listener = socket.create_server(('127.0.0.1', 0), backlog=200)\n"
        "ends = [socket.socket() for _ in range(200)]\n"
        "for end in ends: end.setblocking(False)\n"
        "begin = time.monotonic_ns()\n"
        "for end in ends: end.connect_ex(listener.getsockname())\n"
        "print(time.monotonic_ns() - begin)"
    )
    assert int(inside(sys.executable, "-S", "-c", program)) < 30_000  # 125,000 with naps


@virtual
@pytest.mark.parametrize("body", ["pass", "os.getppid()"])
def test_a_loop_that_stops_the_clock_ends_with_the_name_of_its_process(body):
    argv = [sys.executable, "-S", "-c", f"import os\nwhile True: {body}"]
    with pytest.raises(
        ChildProcessError, match=rf"stands still: .*python.*True: {re.escape(body)}"
    ):
        uml.run(argv, virtual=VirtualClock(), timeout_s=500, stall_s=2)


def test_what_a_system_call_costs_is_said_to_the_kernel_unless_it_is_nothing():
    assert "time_travel.syscall_ns=250" in VirtualClock(syscall_ns=250).arguments()
    assert "weft.hop_ns=700" in VirtualClock(hop_ns=700).arguments()
    assert not [word for word in VirtualClock().arguments() if "_ns" in word]


@virtual
def test_floating_point_registers_survive_page_faults_and_other_processes():
    """Values lie in them while pages are filled for the first time, in two processes that take
    turns."""
    program = (
        "import os, numpy\n"
        "child = os.fork()\n"
        "for _ in range(20): os.sched_yield(); values = numpy.arange(100_000, dtype=float) * 1.5\n"
        "if child: os.waitpid(child, 0)\n"
        "print(values.sum(), flush=True)\n"
        "os._exit(0)"
    )
    expected = sum(1.5 * each for each in range(100_000))
    assert [float(each) for each in inside(sys.executable, "-c", program).split()] == [
        expected,
        expected,
    ]


@virtual
def test_a_system_call_costs_whoever_makes_it_and_nobody_else():
    """Two processes that make 1,000 at the same time take as long as one."""
    program = (
        "import os, time\n"
        "begin = time.monotonic_ns()\n"
        "child = os.fork()\n"
        "for _ in range(1000): os.getppid()\n"
        "if child == 0: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(time.monotonic_ns() - begin)"
    )
    free, costly = (
        int(inside(sys.executable, "-S", "-c", program, syscall_ns=cost)) for cost in (0, 2000)
    )
    assert free < 10_000
    assert 2_000_000 < costly < 2_100_000


@virtual
@pytest.mark.parametrize("rate_bps", [10**7, 10**8, 10**9, 10**10])
def test_gaps_between_packets_are_exact_to_a_nanosecond(rate_bps):
    ideal_ns = FRAME_BITS * 10**9 / rate_bps
    for qdisc in (
        f"tbf rate {rate_bps}bit burst 1600 limit 10mb",
        f"netem rate {rate_bps}bit limit 1000",
    ):
        gaps = json.loads(inside(sys.executable, str(CABLE), str(rate_bps), *qdisc.split()))
        settled = gaps[len(gaps) // 3 :]
        assert max(abs(gap - ideal_ns) for gap in settled) <= 1, (qdisc, settled)


@virtual
@pytest.mark.parametrize(("rate_bps", "seconds"), [(10**7, 2), (10**8, 2), (10**9, 0.5)])
def test_tcp_gets_the_rate_of_its_links_and_their_delay(rate_bps, seconds):
    """There and back is over four links of 5 us, each of which sends the 74 bytes of a SYN."""
    got = json.loads(
        inside(sys.executable, str(CABLE.with_name("star.py")), str(rate_bps), "5", str(seconds))
    )
    assert got["share"] == pytest.approx(1, abs=2e-4)
    assert got["min_rtt_us"] == pytest.approx(20 + 4 * 74 * 8e6 / rate_bps, abs=1)


@virtual
def test_it_is_known_who_must_be_root_outside():
    assert inside("id", "--user") == "0\n"


def test_what_is_kept_of_the_environment():
    kept = uml.repeatable({"PATH": "/bin", "SSH_CLIENT": "1.2.3.4", "WEFT_RUN": "a"})
    assert {"PATH", "WEFT_RUN", "PYTHONHASHSEED"} <= kept.keys()
    assert "SSH_CLIENT" not in kept


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(virtual_kernel, "SYSTEM_CACHE", tmp_path / "system")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_kernel_that_is_not_what_was_built_is_not_found(cache):
    kernel = cache / f"linux-{virtual_kernel.identity()}"
    kernel.write_bytes(b"built")
    kernel.with_suffix(".sha256").write_text(hashlib.sha256(b"built").hexdigest() + "\n")
    assert virtual_kernel.find() == kernel
    kernel.write_bytes(b"changed")
    assert virtual_kernel.find() is None


@pytest.mark.parametrize("suffix", ["", ".sha256"])
def test_a_kernel_that_another_user_can_change_is_not_run(cache, suffix):
    kernel = cache / f"linux-{virtual_kernel.identity()}"
    kernel.write_bytes(b"built")
    kernel.with_suffix(".sha256").write_text(hashlib.sha256(b"built").hexdigest() + "\n")
    kernel.with_suffix(suffix).chmod(0o666)
    with pytest.raises(
        OSError, match=f"is not used: other users may write to .*{kernel.name}{suffix}; chmod go-w"
    ):
        virtual_kernel.require()


def test_no_kernel_is_built_where_another_user_can_change_it(cache):
    cache.chmod(0o1777)
    with pytest.raises(OSError, match=f"other users may write to {cache}; chmod go-w"):
        virtual_kernel._writable()


def test_folders_that_are_made_for_it_are_0755_whatever_the_umask(cache, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(cache / "one/two"))
    monkeypatch.setattr(virtual_kernel, "ROOM_BYTES", 0)
    for umask in (0, 0o077):
        before = os.umask(umask)
        try:
            folder = virtual_kernel._writable()
        finally:
            os.umask(before)
        assert [stat.S_IMODE(place.stat().st_mode) for place in (folder, folder.parent)] == [
            0o755,
            0o755,
        ]
        shutil.rmtree(cache / "one")


def test_what_is_missing_to_build_it_is_named(cache, monkeypatch):
    monkeypatch.setattr(virtual_kernel, "SOURCE", cache / "linux-source-6.12.tar.xz")
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    with pytest.raises(
        FileNotFoundError, match=r"\(linux-source-6\.12\.tar\.xz\): make uml-kernel"
    ):
        virtual_kernel.require()
    monkeypatch.setattr(
        shutil, "which", lambda tool: None if tool == "flex" else f"/usr/bin/{tool}"
    )
    with pytest.raises(FileNotFoundError, match=r"\(flex, linux-source"):
        virtual_kernel.require()


def test_a_step_that_fails_tells_its_last_words(tmp_path):
    with pytest.raises(OSError, match=r"sh -c echo one; echo two; exit 3: exit 3: one / two"):
        list(virtual_kernel._lines(["sh", "-c", "echo one; echo two; exit 3"], tmp_path))


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    written = io.StringIO()
    show = virtual_kernel.shown(written.write, terminal=False)
    for fraction in (0.0, 0.05, 0.1, 0.999, 1.0):
        show(fraction)
    assert [line.split()[-3] for line in written.getvalue().splitlines()] == [
        "0",
        "10",
        "90",
        "100",
    ]
    bar = io.StringIO()
    virtual_kernel.shown(bar.write, terminal=True)(1.0)
    assert bar.getvalue() == f"\rkernel for virtual time [{'#' * 40}] 100%\n"


MAIL = ["From", "Date", "Subject"]  # as git format-patch writes them


def test_every_patch_of_the_series_has_a_subject_and_a_reason():
    assert virtual_kernel.series()
    for path in virtual_kernel.series():
        description, *diff = path.read_text().partition("\n---\n")
        mail, reason, licence = description.split("\n\n", 2)
        number = int(path.name.partition("-")[0])
        assert f"\nSubject: [PATCH {number:02}/{len(virtual_kernel.series())}] " in mail
        assert [line.partition(":")[0] for line in mail.splitlines()[1:]] == MAIL
        assert len(reason.split()) > 5
        assert licence.endswith("SPDX-License-Identifier: GPL-2.0-only")
        assert diff


def test_a_series_is_merged_by_file_and_line_without_descriptions():
    new = b"--- /dev/null\n+++ b/a\n@@ -0,0 +1,1 @@\n+new\n"
    first = b"why\n\n--- a/b\n+++ b/b\n@@ -20,2 +20,3 @@\n later\n" + new
    second = b"because\n\n--- a/b\n+++ b/b\n@@ -3,1 +3,2 @@\n early\n"
    merged = virtual_kernel.merged([first, second])
    assert merged == virtual_kernel.merged([second, b"other words\n" + first])
    changes = b"--- a/b\n+++ b/b\n@@ -3,1 +3,2 @@\n early\n@@ -20,2 +20,3 @@\n later\n"
    assert merged == changes + new


@virtual
@pytest.mark.skipif(not virtual_kernel.SOURCE.exists(), reason="needs linux-source-6.12")
def test_the_series_applies_in_order_as_its_merged_patch_does(tmp_path):
    merged = virtual_kernel.merged(path.read_bytes() for path in virtual_kernel.series())
    (tmp_path / "merged").write_bytes(merged)
    names = re.findall(r"^--- a/(\S+)$", merged.decode(), flags=re.MULTILINE)
    extract = ["tar", "--extract", "--strip-components=1", f"--file={virtual_kernel.SOURCE}"]
    for tree in ("one", "series"):
        (tmp_path / tree).mkdir()
    members = ["--wildcards", *(f"*/{name}" for name in names)]
    subprocess.run([*extract, *members], cwd=tmp_path / "one", check=True)
    shutil.copytree(tmp_path / "one", tmp_path / "series", dirs_exist_ok=True)
    for tree, patches in (("one", [tmp_path / "merged"]), ("series", virtual_kernel.series())):
        for patch in patches:
            subprocess.run(
                [*virtual_kernel.APPLY, f"--input={patch}"], cwd=tmp_path / tree, check=True
            )
    difference = ["diff", "--recursive", "one", "series"]
    assert subprocess.run(difference, cwd=tmp_path, check=False).returncode == 0
