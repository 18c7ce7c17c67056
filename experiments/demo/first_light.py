"""All of weft once: a network of routing daemons on the kernel, beside what the graph predicts.

A network comes up, every pair pings, every packet takes the computed path, and TCP gets the rate of
the links.  Then a link dies, once announced by its carrier and once silently.  Each time exactly
the predicted pairs lose each other, and reach each other again when the link is back.  Then the
same links die under schemes with detours: the predicted pairs still ping, and a TCP flow goes on.
Every step is printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from weft.experiments.demo.failover_demo import prefix, run_failover, survivors
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.routes import PairSet, find, lost_pairs
from weft.experiments.report.panels import Bars, melted
from weft.experiments.runner.console import duration, say, step
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer
from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import ORDER, Fidelity, FidelityReport, judged
from weft.testbed.measure.outage import OutageProbe
from weft.testbed.measure.traceroute import differences, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs.network_handle import all_pairs
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies.core.failures import draw, fail_links
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

# TCP payload in a full frame of Ethernet, IP, and TCP with timestamps
PAYLOAD_FRACTION = 1448 / 1514
# of the payload that the links could carry; a loaded machine costs a few hundredths
LEAST_GOODPUT_FRACTION = 0.9
SLOWER = 10  # part of the rate that is proposed to a machine that is too slow for all of it
KEPT_UP = {"PASS": "yes", "WARN": "just about", "FAIL": "no"}
# while a link is dead: pairs, the time between pings of each, and the most that they may be of what
# the machine can carry, because pings in real time come before all else
MOST_WATCHED, WATCH_MS = 20, 10.0
WATCH_FRACTION = 1 / 3


@dataclass
class Story:
    """The network of a run, and the figures of its steps up to now."""

    net: RunningNetwork
    figures: Row = field(default_factory=dict)
    passed: bool = True
    pings_per_s: float = math.inf  # what the machine can carry

    @property
    def topology(self) -> Topology:
        return self.net.topology

    def all_ping(self) -> None:
        pairs = self.topology.servers * (self.topology.servers - 1)
        with step("every pair pings") as outcome:
            begin_s = clock.monotonic()
            table = reachability.pinged(self.net)
            self.pings_per_s = pairs / (clock.monotonic() - begin_s)
            reached = pairs - len(table.lost)
            rtt_us = table.percentile_us(50)
            self.figures |= {"pairs": pairs, "pairs_reached": reached, "rtt_median_us": rtt_us}
            text = f"{reached} of {pairs}, round trip {rtt_us or 0:.0f} µs (median)"
            outcome.says(text, self.holds(reached == pairs))

    def paths_are_computed_ones(self) -> None:
        with step("every packet takes the path that DR computes") as outcome:
            traces = trace(self.net, all_pairs(self.net))
            others = differences(traces, self.computed, self.topology.naming.name)
            equal = len(traces) - len(others)
            self.figures["paths_equal"] = equal
            first = f"; {others[0]}" if others else ""
            outcome.says(f"{equal} of {len(traces)}{first}", self.holds(not others))

    def computed(self, src: int, dst: int) -> list[int]:
        paths = find("dr", self.topology, src, dst)
        return list(paths[0].nodes) if paths else []

    def tcp_gets_its_rate(self, rate_bps: int, seconds: int) -> None:
        src, dst = 0, self.topology.servers - 1
        name = self.topology.naming.name
        reports: list[FidelityReport] = []
        with step(f"iperf3 from {name(src)} to {name(dst)}") as outcome:
            spec = IperfSpec(seconds=seconds, omit_s=1)
            with judged(self.net, reports.append):
                goodput_bps = iperf(self.net, src, dst, spec).goodput_bps
            share = goodput_bps / (rate_bps * PAYLOAD_FRACTION)
            self.figures |= {"goodput_bps": goodput_bps, "goodput_fraction": share}
            text = f"{goodput_bps / Mbps:.2f} Mbit/s, {share:.1%} of what a link can carry"
            if share < LEAST_GOODPUT_FRACTION and any(report.too_slow for report in reports):
                outcome.mark = "WARN"
                outcome.result = too_slow(rate_bps, text, reports[0])
            else:
                outcome.says(text, self.holds(share >= LEAST_GOODPUT_FRACTION))

    def link_dies(self, link: int, *, silent: bool) -> None:
        """Let `link` die and come back, and compare the lost pairs with the prediction."""
        how = "silent" if silent else "announced"
        name = self.topology.link_name(link)
        predicted = lost_pairs("dr", fail_links(self.topology, [link]))
        count, interval_ms = watch_plan(self.pings_per_s)
        watched = sorted(predicted)[:count]
        with OutageProbe(self.net, watched, interval_ms=interval_ms) as probe:
            with step(f"{name} dies, {how}") as outcome:
                lost, noticed_s = self.fail(link, predicted, silent=silent)
                notice = "not noticed" if noticed_s is None else f"noticed in {duration(noticed_s)}"
                text = f"{notice}; pairs lost: {agreement(lost, predicted)}"
                outcome.says(text, self.holds(lost == predicted and noticed_s is not None))
            with step(f"{name} is back") as outcome:
                restored_s, healed = self.restore(name, probe)
                text = f"every pair pings again; the last answered after {duration(restored_s)}"
                outcome.says(text, self.holds(healed))
        self.figures |= {
            f"{how}_link": name,
            f"{how}_predicted_pairs": len(predicted),
            f"{how}_lost_pairs": len(lost),
            f"{how}_exact": lost == predicted,
            f"{how}_noticed_ms": None if noticed_s is None else 1000 * noticed_s,
            f"{how}_restored_ms": 1000 * restored_s,
        }

    def fail(self, link: int, predicted: PairSet, *, silent: bool) -> tuple[PairSet, float | None]:
        """Fail `link`; return the lost pairs, and the time (s) until every daemon noticed."""
        failed_ns = clock.monotonic_ns()
        self.net.fail(self.topology.link_name(link), silent=silent)
        nodes = reachability.around(self.topology, link)
        noticed_s = reachability.wait_for_notice(self.net, nodes, failed_ns)
        reachability.wait_for_routes(self.net, predicted)
        return reachability.lost(reachability.pinged(self.net)), noticed_s

    def restore(self, name: str, probe: OutageProbe) -> tuple[float, bool]:
        """Restore a link.

        Return the time (s) until the last watched pair answered, and whether every pair pings.
        """
        begin_s = clock.monotonic()
        self.net.restore(name)
        self.net.wait_until_converged()
        reached = not reachability.pinged(self.net).lost
        probe.stop()
        gaps = [gap for outage in probe.table.outages for gap in outage.gaps]
        ends_s = [gap.end_s for gap in gaps if gap.begin_s < begin_s]
        last_s = max((end_s for end_s in ends_s if end_s), default=begin_s)
        return last_s - begin_s, reached and None not in ends_s

    def holds(self, passed: bool) -> bool:
        """Return whether a step passed; a failed one fails the run."""
        self.passed = self.passed and passed
        return passed


def watch_plan(pings_per_s: float) -> tuple[int, float]:
    """Return how many pairs to ping, and how often (ms), where so many pings can be carried."""
    most_per_s = WATCH_FRACTION * pings_per_s
    pairs = int(min(max(1, most_per_s * WATCH_MS / 1000), MOST_WATCHED))
    return pairs, max(WATCH_MS, 1000 * pairs / most_per_s)


def agreement(lost: PairSet, predicted: PairSet) -> str:
    """Return in words how the lost pairs compare with the predicted ones."""
    if lost == predicted:
        return f"exactly the {len(predicted)} that the graph predicts"
    missing = len(predicted - lost)
    return f"{len(lost - predicted)} unpredicted, {missing} predicted but not lost"


def measure(run: Run) -> Result:
    """Measure the story of one network, and print its steps on standard error."""
    topology = run.topology
    link = links_of(run)
    announced, silent = links_to_kill(topology, run.generator())
    story = bring_up(topology, link, run.text("routing"))
    reports = [survive_dr(story, run, link, announced, silent)]
    for survivor in survivors():
        figures, passed, report = run_failover(
            topology, link, survivor, {announced: False, silent: True}
        )
        story.figures |= figures
        story.holds(passed)
        reports.append(report)
    report = max(reports, key=lambda report: ORDER.index(report.verdict))
    tell_fidelity(report, story.passed)
    stages_s = dict(story.net.stages)
    return Result(
        {"up_s": sum(stages_s.values()), **story.figures, "passed": story.passed},
        fidelity=report.verdict,
        circumstances={"stages_s": stages_s, "fidelity_report": report.as_dict()},
    )


def bring_up(topology: Topology, link: LinkSpec, routing: str) -> Story:
    """Bring up the network of the story."""
    size = f"{topology.servers} servers, {topology.switches} switches, {len(topology.links)} links"
    with step(f"{topology.spec} comes up: {size}") as outcome:
        net = RunningNetwork.create(topology, link, scheme=routing)
        outcome.says(", ".join(f"{stage} {duration(s)}" for stage, s in net.stages.items()))
    return Story(net)


def survive_dr(
    story: Story, run: Run, link: LinkSpec, announced: int, silent: int
) -> FidelityReport:
    """Carry out the steps under DR, take the network down, and return its fidelity."""
    try:
        with Fidelity(story.net) as fidelity:
            story.all_ping()
            story.paths_are_computed_ones()
            story.tcp_gets_its_rate(link.rate_bps, run.integer("iperf_s"))
            story.link_dies(announced, silent=False)
            story.link_dies(silent, silent=True)
    finally:
        with step("everything is taken down again"):
            story.net.down()
    return fidelity.report


def tell_fidelity(report: FidelityReport, passed: bool) -> None:
    """Print the verdict on the emulation; if it is FAIL, also its meaning for the steps."""
    question = "whether the machine kept up"
    if report.clock == "virtual":
        question = "whether every link was exact"
    with step(f"fidelity, {question}") as outcome:
        outcome.mark = report.verdict
        outcome.result = f"{KEPT_UP[report.verdict]}; worst is {report.worst}"
    if report.verdict == "FAIL":
        say(distrust(report, passed))


def too_slow(rate_bps: int, goodput: str, report: FidelityReport) -> str:
    """Return in words that this machine, not the network, is the reason for a low goodput."""
    return (
        f"this machine is too slow for {rate_bps / Mbps:g} Mbit/s: {goodput} ({report.overload}); "
        f"try --set rate_bps={rate_bps // SLOWER}"
    )


def distrust(report: FidelityReport, passed: bool) -> str:
    """Return why the times of a run that failed fidelity are wrong, and what to run instead."""
    worst = report.worst
    limit = worst.pass_limit if worst.warn_limit is None else worst.warn_limit
    steps = "Every step passed" if passed else "The steps marked FAIL did not pass"
    late = f"{worst}, and at most {limit:.3g} {worst.unit}".rstrip()
    if report.clock == "virtual":
        return f"{steps}, but do not trust their times: a link was not exact ({late} is allowed)."
    return (
        f"{steps}, but do not trust their times: "
        f"this machine did not keep up ({late} is allowed).\n"
        "Run it on a quieter machine, or in exact time on any: weft run first_light --clock virtual"
    )


def check(run: Run) -> None:
    """Raise ValueError unless DR runs on the network of `run`."""
    common.refuse_others(
        run.text("routing"), ["dr"], "first_light shows what DR loses and others save"
    )
    common.check_routing(run)


def links_of(run: Run) -> LinkSpec:
    return LinkSpec(rate_bps=run.integer("rate_bps"), queue_packets=run.integer("queue_packets"))


def links_to_kill(topology: Topology, generator: np.random.Generator) -> tuple[int, int]:
    """Return a random link of the highest level, and one between a server and its switch.

    Only hellos detect a failure of the latter.
    """
    top = np.flatnonzero(topology.level == topology.level.max())
    bottom = np.flatnonzero(topology.level == 0)
    high = draw(top, count=1, generator=generator)
    low = draw(bottom, count=1, generator=generator)
    return int(high[0]), int(low[0])


DURATIONS = {
    "up_ms": "comes up, with daemons",
    "announced_noticed_ms": "announced failure noticed",
    "silent_noticed_ms": "silent failure noticed",
    "announced_restored_ms": "pings again, DR, link restored, announced",
    "silent_restored_ms": "pings again, DR, link restored, silent",
    **{
        f"{prefix(survivor, how)}_tcp_stall_ms": f"TCP stalls, {how} failure, {survivor}"
        for survivor in survivors()
        for how in ("announced", "silent")
    },
}


def durations(table: Table) -> Table:
    """Return a row for each duration of each run."""
    rows = [{**row, "up_ms": 1000 * row["up_s"]} for row in table]
    steps = {key: label for key, label in DURATIONS.items() if key in rows[0]}
    return melted([{**dict.fromkeys(steps), **row} for row in rows], steps, "step", "time_ms")


EXPERIMENT = Experiment(
    name="first_light",
    question=(
        "Does a network of routing daemons on the kernel behave as the graph predicts, also when "
        "links fail?"
    ),
    source="DCell, SIGCOMM 2008; CCRDN, section 3 and definition 4.1",
    engines=("kernel",),
    clock="real",
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1"),
        "routing": common.ROUTING.over("dr"),
        "rate_bps": Integer(
            "rate of every link", unit="bit/s", least=8000, most=100_000_000_000
        ).over(20 * Mbps),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "iperf_s": Integer("time during which TCP is measured", unit="s", least=1, most=3600).over(
            3
        ),
    },
    columns={
        "up_s": "time to bring the network up, until its daemons have converged",
        "pairs": "ordered pairs of servers",
        "pairs_reached": "pairs that have an answer",
        "rtt_median_us": "median round-trip time of their pings",
        "paths_equal": "pairs whose packets take the path that DR computes, by traceroute",
        "goodput_bps": "payload that iperf3 carries between the first and the last server",
        "goodput_fraction": "of the payload that a link can carry",
        "*_link": "the link that died, announced (its carrier goes) or silent (packets vanish)",
        "*_predicted_pairs": (
            "pairs that the graph predicts to be lost or, for other schemes, saved where DR "
            "loses them"
        ),
        "*_lost_pairs": "pairs that did not ping while it was dead",
        "*_exact": "whether these were the predicted ones",
        "*_noticed_ms": "until the last affected daemon noticed; null if one never did",
        "*_restored_ms": "from the link's return to the last answer of a watched pair",
        "*_saved_pairs": (
            "of the pairs that DR loses, those that still ping under the scheme "
            "that the name begins with"
        ),
        "*_tcp_stall_ms": "longest time without data in a TCP flow over the failed link",
        "*_tcp_after_bps": "its goodput afterwards",
        "passed": "whether every step went as it must",
    },
    seeds=1,
    takes_s=21,
    measure=measure,
    plot=Bars(
        columns={"time_ms": ""},
        by=("step",),
        facet=("topology", "routing", "rate_bps", "queue_packets"),
        rows=durations,
    ),
    check=check,
    must_hold=("passed",),
    version=2,
    always_measures=True,
)
