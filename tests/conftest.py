"""Run each test where it can run: here, under User-Mode Linux, or under the virtual clock.

pyproject.toml explains the markers; the Makefile says which tests each target runs.  To add a test,
write an ordinary one with ordinary fixtures, and mark it with what it needs:

    @pytest.mark.uml("sch_netem")
    def test_a_delay_is_what_was_asked(network): ...

Tests under User-Mode Linux run last, in two instances on a core each, and are reported as if they
had run here.  A system call costs 65 times as much there: keep networks small, and assert delays
but no processor time.

`pytest --clock virtual` runs the kernel tests only, under the virtual clock: each file on a kernel
of its own, so a test depends on its file alone.  FRR's daemons poll for up to a millisecond before
each of their timers, so tests with FRR run on a kernel where system calls cost time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from tests import optional_parts
from weft.testbed.linux import clock
from weft.testbed.runs import run
from weft.testbed.uml import uml, virtual_kernel

clock.wait_until.__kwdefaults__["timeout_s"] = 300.0  # on a busy machine a state comes late

REPORT = "@report "  # begins a line that brings a report out
INSTANCES = 2
TIMEOUT_S = 1800  # for all that one instance runs; each test has its own as well
MEMORY_MB = 2000  # of an instance under the virtual clock
FRR_SYSCALL_NS = 50_000  # of tests with FRR there
INSIDE = uml.INSIDE in os.environ
TELL = "WEFT_TELL_REPORTS"  # set in the environment of those that Outside starts

if not INSIDE:  # where importing takes long
    from hypothesis import HealthCheck, settings

    # The time that an example takes depends on the load of the machine.
    settings.register_profile(
        "weft", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile(
        "ci" if "CI" in os.environ else "weft"
    )  # ci is hypothesis's own: 100 examples, always the same


def lacking(item: pytest.Item) -> str | None:
    """Return what this process lacks to run the test, optional parts aside; None if nothing."""
    marks = list(item.iter_markers("uml"))
    if INSIDE or not (marks or item.get_closest_marker("kernel")):
        return None
    if os.geteuid() != 0:
        return "root"
    missing = sorted(
        {module for mark in marks for module in mark.args if not optional_parts.has_module(module)}
    )
    return f"{', '.join(missing)} in the kernel, or {uml.KERNEL} installed" if missing else None


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "of the kernel under the kernel tests; virtual: they alone run, computing takes "
        "no time, no root needed"
    )
    parser.addoption("--clock", choices=("real", "virtual"), default="real", help=text)
    parser.addoption("--times", type=int, help="repetitions of tests that draw at random")
    text = "hide an optional part, as if it were not there, and expect no test that needs it"
    names = sorted(optional_parts.PARTS)
    parser.addoption("--without", action="append", choices=names, default=[], help=text)


def pytest_configure(config: pytest.Config) -> None:
    # a shell ignores SIGINT for background processes; fixtures must remove networks after both
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # processes that tests fork have no fixtures: SIGTERM ends them
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    if TELL in os.environ:
        config.pluginmanager.register(Inside(config))
    for name in config.getoption("without"):
        config.add_cleanup(optional_parts.do_without(name))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason why tests were skipped, and how many were."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if os.geteuid() == 0 and (left := run.left_behind(run.runs())):
        terminalreporter.write_line(left)  # of tests that were killed, these or earlier ones


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Let a file that importorskip() leaves out fail where a test would."""
    report = yield
    if report.skipped and not optional_parts.may_skip(str(report.longrepr)):
        report.outcome = "failed"
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("clock") == "virtual":
        return run_in_virtual_time(config, items)
    if not clock.is_virtual():
        keep(
            config, items, [item for item in items if not item.get_closest_marker("virtual_clock")]
        )
    away = (
        [item for item in items if item.get_closest_marker("uml") and lacking(item)]
        if uml.installed()
        else []
    )
    if away:
        there = set(away)
        items[:] = [item for item in items if item not in there] + away
        shares = [away[position::INSTANCES] for position in range(INSTANCES)]
        config.pluginmanager.register(Outside(config, [(share, []) for share in shares if share]))


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Deselect all of `items` but those `kept`."""
    these = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in these])
    items[:] = kept


def pytest_collection_finish() -> None:
    """Look for garbage neither among what has been imported and collected, which stays to the end,
    nor after every few objects: it took a tenth of the time of the tests."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def run_in_virtual_time(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the kernel tests, and have them run there."""
    virtual_kernel.require()
    on_kernel = [
        item
        for item in items
        if item.get_closest_marker("kernel") or item.get_closest_marker("uml")
    ]
    keep(config, items, on_kernel)
    files: dict[tuple[object, bool], list[pytest.Item]] = {}
    for item in on_kernel:
        files.setdefault((item.path, bool(item.get_closest_marker("frr"))), []).append(item)
    options = ["--clock", "virtual", "--memory-mb", str(MEMORY_MB)]
    costly = [*options, "--syscall-ns", str(FRR_SYSCALL_NS)]
    shares = [(items, costly if polls else options) for (_, polls), items in files.items()]
    config.pluginmanager.register(Outside(config, shares))


def only_in_real_time(item: pytest.Item) -> str | None:
    """Why a test cannot pass under the virtual clock, if so."""
    mark = item.get_closest_marker("real_clock")
    return mark.args[0] if mark else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if clock.is_virtual() and (why := only_in_real_time(item)):
        pytest.skip(f"real clock only: {why}")
    for name in optional_parts.PARTS:
        if item.get_closest_marker(name):
            optional_parts.require(name)
    if missing := lacking(item):
        optional_parts.refuse(missing)


@pytest.fixture
def times(pytestconfig: pytest.Config) -> int | None:
    """Return the repetitions that the user asks for; None for those of the test."""
    return pytestconfig.getoption("--times")


@pytest.fixture
def part(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> bool:
    """Return whether the part of `with_and_without` is there."""
    name, there = request.param
    optional_parts.change(name, there, monkeypatch, tmp_path_factory.mktemp(name))
    return there


@pytest.fixture
def run_name() -> Iterator[str]:
    """Return a run id that no other process uses; remove what is left of that run afterwards."""
    from weft.testbed.network import clean

    name = f"t-{os.urandom(3).hex()}"
    yield name
    for left in run.runs():
        if left.id == name:
            clean.remove(left)


class Inside:
    """Prints what became of each test for Outside to read."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.config.get_terminal_writer().write(f"\n{REPORT}{json.dumps(data)}\n", flush=True)


class Outside:
    """Has tests run under User-Mode Linux, from when the first is due, and reports each in its
    turn.

    shares: tests, and what `weft uml` is given for them; each on an instance of its own, as many at
        a time as there are cores, INSTANCES at most.
    """

    def __init__(
        self, config: pytest.Config, shares: Sequence[tuple[list[pytest.Item], Sequence[str]]]
    ) -> None:
        self.config = config
        self.without = [f"--without={name}" for name in config.getoption("without")]
        self.away = {item.nodeid for share, _ in shares for item in share}
        self.shares: SimpleQueue[tuple[list[str], Sequence[str]]] = SimpleQueue()
        self.started = self.over = False
        self.processes: set[subprocess.Popen[str]] = set()
        self.reports: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
        # a report, or a share and how it ended
        self.news: SimpleQueue[str | tuple[list[str], str]] = SimpleQueue()
        self.ended: dict[str, str] = {}  # last words of the instance, by test
        for share, options in shares:
            self.shares.put(([item.nodeid for item in share], options))
            for item in share:
                # it has its time inside, and waits for it here
                item.add_marker(pytest.mark.timeout(0), append=False)

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if item.nodeid not in self.away:
            return None
        if not self.started:
            self.started = True
            for core in sorted(os.sched_getaffinity(0))[:INSTANCES]:
                threading.Thread(target=self.work, args=[core], daemon=True).start()
        while not self.done(item):
            self.take(self.news.get())
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self.reports[item.nodeid]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def work(self, core: int) -> None:
        """Run one share after the other on `core`."""
        with contextlib.suppress(Empty):
            while not self.over:
                self.run(core, *self.shares.get_nowait())

    def run(self, core: int, share: list[str], options: Sequence[str]) -> None:
        weft = [sys.executable, "-m", "weft.experiments.cli.cli", "uml", *options]
        limits = ["--core", str(core), "--timeout-s", str(TIMEOUT_S)]
        process = subprocess.Popen(
            [*weft, *limits, "--", sys.executable, "-m", "pytest", *self.without, *share],
            cwd=self.config.rootpath,
            env=os.environ | {TELL: "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.add(process)
        said: deque[str] = deque(maxlen=30)
        for line in process.stdout:
            if line.startswith(REPORT):
                self.news.put(line.removeprefix(REPORT))
            else:
                said.append(line)
        self.news.put(
            (share, f"User-Mode Linux ended with status {process.wait()}:\n{''.join(said)}")
        )

    def take(self, news: str | tuple[list[str], str]) -> None:
        """Take in what became of a test, or that an instance has ended."""
        if not isinstance(news, str):
            share, words = news
            self.ended |= dict.fromkeys(share, words)
            return
        report = self.config.hook.pytest_report_from_serializable(
            config=self.config, data=json.loads(news)
        )
        # where something was skipped, which JSON knows no tuple for
        if isinstance(report.longrepr, list):
            report.longrepr = tuple(report.longrepr)
        self.reports[report.nodeid].append(report)

    def done(self, item: pytest.Item) -> bool:
        """Return whether a test has ended; it has failed if its instance ended first."""
        reports = self.reports[item.nodeid]
        if any(report.when == "teardown" for report in reports):
            return True
        if item.nodeid not in self.ended:
            return False
        words = self.ended[item.nodeid]
        reports.append(pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call"))
        return True

    def pytest_unconfigure(self) -> None:
        self.over = True
        for process in self.processes:
            process.terminate()  # unless it has ended
            process.wait()
