import math
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.fidelity import FAIL, PASS, WARN, Fidelity
from weft.testbed.measure.outage import Gap, Outage, OutageProbe, OutageTable, gaps
from weft.testbed.measure.prober import Prober


def naive_gaps(answers: list[float], begin_s: float) -> list[Gap]:
    """For each run of lost requests: the answers before and after it, looked up anew."""
    found = []
    for i in range(len(answers)):
        if answers[i] or (i and not answers[i - 1]):
            continue
        end = next((j for j in range(i, len(answers)) if answers[j]), None)
        before = max([begin_s, *(at for at in answers[:i] if at)])
        after = None if end is None else max(answers[end], before)
        found.append(Gap(before, after, (len(answers) if end is None else end) - i))
    return found


@given(st.lists(st.one_of(st.just(0.0), st.floats(1.0, 9.0))))
def test_gaps_are_the_runs_of_lost_requests(answers):
    assert list(gaps(answers, 0.5)) == naive_gaps(answers, 0.5)


def test_the_longest_gap_is_found_though_it_has_no_end():
    ended, open_ = Gap(1.0, 2.0, 9), Gap(3.0, None, 5)
    table = OutageTable(
        (Outage(0, 1, 50, 41, (ended,)), Outage(0, 2, 50, 45, (open_,))),
        0.0,
        4.5,
        0.01,
        0.001,
        True,
    )
    assert table.longest() == (table.outages[1], 1.5)
    assert OutageTable((), 0.0, 1.0, 0.01, 0.0, True).longest() is None


def test_a_late_prober_does_not_pass():
    verdicts = [
        OutageTable((), 0.0, 1.0, 0.01, late_s, True).lateness().verdict
        for late_s in (0.019, 0.05, 0.2)
    ]
    assert verdicts == [PASS, WARN, FAIL]


@pytest.mark.kernel
def test_how_late_a_prober_was_is_part_of_the_verdict_on_the_run(network):
    net = network("dcell:n=3,k=1")
    with Fidelity(net) as fidelity:
        for pairs in ([(0, 4)], [(1, 2)]):
            with OutageProbe(net, pairs) as probe:
                pass
    late = [component for component in fidelity.report.components if component.name == "late pings"]
    assert len(late) == 2
    assert late[1] == probe.table.lateness()
    with Fidelity(net) as fidelity:
        pass
    assert "late pings" not in {component.name for component in fidelity.report.components}


@pytest.mark.kernel
def test_a_pair_that_is_back_before_the_end_has_no_open_outage(network):
    net = network("dcell:n=4,k=1")
    net.fail("h0-h4", silent=True)
    with OutageProbe(net, [(0, 4)], interval_ms=300) as probe:
        net.restore("h0-h4")  # most likely between the first request and the second
    (outage,) = probe.table.outages
    assert all(gap.end_s is not None for gap in outage.gaps)
    assert outage.received


@pytest.mark.kernel
def test_an_outage_is_as_long_as_the_silence_and_begins_and_ends_with_it(network):
    net = network("dcell:n=4,k=1")
    over, beside = (0, 4), (1, 2)
    with OutageProbe(net, [over, beside], interval_ms=5) as probe:
        assert probe._process
        pid = probe._process.pid
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert f"WEFT_PROCESS_OF={net.identity.id}".encode() in environment
        time.sleep(0.1)
        began = time.monotonic()
        net.fail("h0-h4", silent=True)
        failed = time.monotonic()
        time.sleep(0.25)
        mending = time.monotonic()
        net.restore("h0-h4")
        mended = time.monotonic()
        time.sleep(0.1)
    table = probe.table
    assert not os.path.exists(f"/proc/{pid}")
    slack = table.interval_s + table.late_s + 0.02
    hit, spared = table.outages
    assert not spared.gaps
    assert spared.sent == spared.received
    (gap,) = hit.gaps
    assert gap.lost == hit.sent - hit.received
    assert began - slack <= gap.begin_s <= failed
    assert gap.end_s is not None
    assert mending <= gap.end_s <= mended + slack
    assert table.longest() == (hit, gap.end_s - gap.begin_s)
    expected = (table.end_s - table.begin_s) / table.interval_s
    assert math.floor(expected) <= hit.sent <= math.ceil(expected) + 1


@pytest.mark.kernel
def test_a_pair_that_never_answers_is_out_from_begin_to_end(network):
    net = network("dcell:n=3,k=1")
    net.fail("h0-w0", silent=True)
    with OutageProbe(net, [(0, 1)]) as probe:
        time.sleep(0.1)
    (outage,) = probe.table.outages
    assert outage.sent > 0
    assert (outage.received, outage.gaps) == (0, (Gap(probe.table.begin_s, None, outage.sent),))


@pytest.mark.kernel
def test_the_prober_ends_with_its_standard_input_and_says_how_it_died(network):
    net = network("dcell:n=3,k=1")
    probe = OutageProbe(net, [(0, 1)])
    probe.start()
    process = probe._process
    assert process
    assert process.stdin
    process.stdin.close()  # as when this process is killed
    wait_until("the prober ends", lambda: process.poll() == 0)
    process.stdin = None
    probe.stop()
    probe.start()
    assert probe._process
    os.kill(probe._process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="died"):
        probe.stop()


@pytest.mark.kernel
def test_a_prober_that_cannot_start_says_why(network, tmp_path, monkeypatch):
    net = network("dcell:n=3,k=1")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(RuntimeError, match="could not start: no such thing"):
        OutageProbe(net, [(0, 1)]).start()


def test_more_than_one_process_can_send_is_refused():
    with pytest.raises(ValueError, match="interval of 19 ms"):
        OutageProbe(None, [(0, 1)] * 380)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one pair"):
        OutageProbe(None, [])  # type: ignore[arg-type]


def test_a_prober_that_is_too_slow_still_comes_back_to_hear_that_it_is_to_stop():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsendable:
        prober = Prober([(os.dup(unsendable.fileno()), 0)] * 3, 0.03)
        begin_s = time.monotonic() - 3600
        next_s = prober.send_due(begin_s)
        assert len(prober.answers) == 3
        assert next_s == begin_s + 0.03
        assert prober.late_s > 3599
        for opened in prober.sockets.values():
            opened.close()
