"""Where a test runs, and whether it may.

Plain tests need nothing.  `@pytest.mark.kernel` makes namespaces and needs root.  `@pytest.mark.uml("sch_netem",
...)` is a kernel test that also needs these kernel modules (names as in testbed/host/modules.txt): as root on a kernel
that has them it runs like any other; else it runs under User-Mode Linux, where one is root and the modules are
loaded.  `@pytest.mark.frr` needs Debian's package frr.  `@pytest.mark.virtual` starts User-Mode Linux with a virtual
clock, for which our own kernel must have been built.

To add one, write an ordinary test with ordinary fixtures, and mark it with what it needs:

    @pytest.mark.uml("sch_netem")
    def test_a_delay_is_what_was_asked(network): ...

Such tests come last, shared by two instances on a core each; each one's outcome is told as if it had run here.  A
system call costs 65 times as much inside, so keep networks small there, and assert delays and never CPU time.  A test
that cannot run is skipped with the reason, but fails where CI is set: nothing may be missing there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict, deque
from functools import cache
from queue import SimpleQueue

import pytest

from testbed.host import uml, virtual_kernel
from testbed.host.features import FRR

REPORT = "@report "  # begins a line that brings a report out
INSTANCES = 2
TIMEOUT_S = 1800  # for all that one instance runs; each test has its own as well
INSIDE = uml.INSIDE in os.environ
TELL = "WEFT_TELL_REPORTS"  # set in the environment of those that Outside starts


@cache
def has_module(name: str) -> bool:
    """Whether this kernel has the module: loaded, built in, or to be loaded."""
    try:
        return subprocess.run(["modprobe", "--dry-run", "--quiet", name], check=False).returncode == 0
    except FileNotFoundError:
        return False


def lacking(item: pytest.Item) -> str | None:
    """What this process lacks to run the test, if anything."""
    if item.get_closest_marker("virtual") and virtual_kernel.find() is None:
        return "the kernel for virtual time: make uml-kernel"
    marks = list(item.iter_markers("uml"))
    if INSIDE or not (marks or item.get_closest_marker("kernel")):
        return None
    if os.geteuid() != 0:
        return "root"
    if item.get_closest_marker("frr") and not FRR.exists():
        return "frr, which our daemons are compared with: apt-get install frr"
    missing = sorted({module for mark in marks for module in mark.args if not has_module(module)})
    return f"{', '.join(missing)} in the kernel, or {uml.KERNEL} installed" if missing else None


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # whoever runs the tests in the background has set that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if TELL in os.environ:
        config.pluginmanager.register(Inside(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    away = [item for item in items if item.get_closest_marker("uml") and lacking(item)] if uml.installed() else []
    if away:
        items[:] = [item for item in items if item not in away] + away
        config.pluginmanager.register(Outside(config, away))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if missing := lacking(item):
        refuse = pytest.fail if "CI" in os.environ else pytest.skip
        refuse(f"needs {missing}")


class Inside:
    """Prints what became of each test for Outside to read."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.config.get_terminal_writer().write(f"\n{REPORT}{json.dumps(data)}\n", flush=True)


class Outside:
    """Has tests run under User-Mode Linux, from when the first is due, and reports each in its turn."""

    def __init__(self, config: pytest.Config, away: list[pytest.Item]) -> None:
        self.config = config
        self.away = away
        self.processes: dict[str, subprocess.Popen[str]] = {}  # by the test it runs
        self.reports: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
        self.said: defaultdict[subprocess.Popen[str], deque[str]] = defaultdict(lambda: deque(maxlen=30))
        self.lines: SimpleQueue[tuple[subprocess.Popen[str], str | None]] = SimpleQueue()  # None: no more
        self.ended: set[subprocess.Popen[str]] = set()
        for item in away:
            item.add_marker(pytest.mark.timeout(0), append=False)  # it has its time inside, and waits for it here

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if item not in self.away:
            return None
        if not self.processes:
            self.start()
        while not self.done(item):
            self.take(*self.lines.get())
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self.reports[item.nodeid]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def start(self) -> None:
        """Start the instances, each on its core with its share of the tests."""
        cores = sorted(os.sched_getaffinity(0))[:INSTANCES]
        for position, core in enumerate(cores):
            if not (share := [item.nodeid for item in self.away[position :: len(cores)]]):
                break
            weft = [
                sys.executable,
                "-m",
                "experiments.commands.cli",
                "uml",
                "--core",
                str(core),
                "--timeout-s",
                str(TIMEOUT_S),
            ]
            command = [*weft, "--", sys.executable, "-m", "pytest", *share]
            process = subprocess.Popen(
                command,
                cwd=self.config.rootpath,
                env=os.environ | {TELL: "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.processes |= dict.fromkeys(share, process)
            threading.Thread(target=self.listen, args=[process], daemon=True).start()

    def listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout:
            self.lines.put((process, line))
        self.lines.put((process, None))

    def take(self, process: subprocess.Popen[str], line: str | None) -> None:
        """Take in what an instance said."""
        if line is None:
            self.ended.add(process)
        elif line.startswith(REPORT):
            data = json.loads(line.removeprefix(REPORT))
            report = self.config.hook.pytest_report_from_serializable(config=self.config, data=data)
            if isinstance(report.longrepr, list):  # where something was skipped, which JSON knows no tuple for
                report.longrepr = tuple(report.longrepr)
            self.reports[report.nodeid].append(report)
        else:
            self.said[process].append(line)

    def done(self, item: pytest.Item) -> bool:
        """Whether everything is known about a test; it has failed if its instance ended before it did."""
        reports, process = self.reports[item.nodeid], self.processes[item.nodeid]
        if any(report.when == "teardown" for report in reports):
            return True
        if process in self.ended:
            words = f"User-Mode Linux ended with status {process.wait()}:\n{''.join(self.said[process])}"
            reports.append(pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call"))
        return process in self.ended

    def pytest_unconfigure(self) -> None:
        for process in set(self.processes.values()):
            process.terminate()  # unless it has ended
            process.wait()
