"""Campaigns of random faults: does every scheme end as predicted, whatever happened?

In each campaign links fail with and without loss of carrier, in one direction or both, and flap.
Packets between daemons are lost, late, duplicated, reordered, corrupted and replayed.  Routers,
switches and racks lose power and return with empty tables.  Daemons are killed, stopped, and
restarted beside their old routes, one or all at once.  Clocks are set.

Then exactly the pairs must reach each other that the scheme connects over the remaining links, and
after the repair of everything all pairs.  Meanwhile no state machine raises, no packet loops longer
than the scheme allows, and no daemon's state grows with the number of events.

A campaign that ends otherwise is shrunk to a few events and printed as a command that repeats it.
The fabric engine, and an unauthenticated run on the kernel, deliver corrupted and replayed packets
to the state machines (SECURITY.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.daemons.core import registry
from weft.experiments.chaos.campaign import KINDS, MOST_PAIRS, Campaign, Finding, parse
from weft.experiments.chaos.drawing import campaign
from weft.experiments.chaos.prediction import machines
from weft.experiments.chaos.shrinking import shrink
from weft.experiments.chaos.simulated import SimulatedCampaign
from weft.experiments.demo import columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Integer, Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = "drawn"  # value of `events`: the seed draws them
NETWORKS = (
    "dcell:n=3,k=1",
    "ficonn:n=4,k=1",
    "fattree:k=4",
    "clos:n=2,r=3,m=3",
    "complete:n=4,p=1",
)
# tries of shrinking; on the kernel each takes seconds
MOST_TRIES, MOST_TRIES_ON_KERNEL = 400, 25
MOST_SHRUNK = 3  # failed campaigns of a run that are shrunk
# budgets with which sources find their paths within a minute after any events
EAGER = {"hello_ms": 100, "probes_per_s": 50, "urgent_per_s": 50, "wakes_per_s": 200}
FORGIVING = {"most_hold_ms": 2000, "most_damp_ms": 2000}


def eager(name: str) -> str:
    """Return the scheme `name` with the budgets of campaigns."""
    known = registry.schemes()[name].parameters
    settings = [f"{key}={value}" for key, value in {**EAGER, **FORGIVING}.items() if key in known]
    return f"{name}:{','.join(settings)}"


@dataclass(frozen=True)
class Judged:
    """A campaign, its findings, and the times (s) until the network was as predicted."""

    campaign: Campaign
    findings: Sequence[Finding]
    settled_s: Sequence[float]


def in_simulator(faults: Campaign) -> Judged:
    """Carry a campaign out in the fabric engine."""
    simulated = SimulatedCampaign(faults)
    return Judged(faults, simulated.run(), simulated.settled_s)


def campaigns(run: Run) -> list[Campaign]:
    """Return the campaigns of `run`: the one in `events`, or drawn ones with a seed each."""
    topology, routing = run.text("topology"), run.text("routing")
    first, steps, pairs = (run.integer(name) for name in ("campaign", "steps", "pairs"))
    if run.text("events") != DRAWN:
        return [Campaign(topology, routing, events(run), first, pairs)]
    count = run.integer("campaigns")
    kinds = KINDS if run.engine == "fabric" else kinds_on_kernel(run)
    return [
        campaign(topology, routing, seed, steps=steps, kinds=kinds, pairs=pairs)
        for seed in range(first + run.seed * count, first + (run.seed + 1) * count)
    ]


def events(run: Run) -> Any:
    """Return the events that `run` lists."""
    return parse("" if run.text("events") == "none" else run.text("events"), common.network(run))


def kinds_on_kernel(run: Run) -> Sequence[str]:
    """Return the kinds of events on this kernel; a clock is set only if it is virtual."""
    return [kind for kind in KINDS if kind != "clock" or run.clock == "virtual"]


def measure(run: Run) -> Result:
    """Carry out all campaigns of `run`; print failed ones, shrunk, on standard error."""
    judge: Callable[[Campaign], Judged] = in_simulator if run.engine == "fabric" else on_new_network
    about: dict[str, Any] = {}
    if run.engine == "fabric":
        results = [judge(faults) for faults in campaigns(run)]
    else:
        results = on_one_network(campaigns(run), about)
    failed = [result for result in results if result.findings]
    commands = [repeat(result, judge, run.engine) for result in failed[:MOST_SHRUNK]]
    for result, command in zip(failed, commands, strict=False):
        print(f"chaos: {result.findings[0]}\n  {command}", file=sys.stderr, flush=True)
    return Result(
        figures={
            "events_count": sum(len(result.campaign.events) for result in results),
            "failed": len(failed),
            "passed": not failed,
            "what_failed": [str(result.findings[0]) for result in failed],
            "repeat": commands,
            "settled_s": [result.settled_s[0] for result in results if result.settled_s],
            "healed_s": [result.settled_s[1] for result in results if len(result.settled_s) > 1],
        },
        fidelity=about.pop("fidelity", None),
        circumstances=about,
    )


def on_one_network(drawn: Sequence[Campaign], about: dict[str, Any]) -> list[Judged]:
    """Carry campaigns out on one network in the kernel, up to the first that fails.

    Args:
        about: receives the fidelity of the emulation.
    """
    from weft.experiments.chaos.on_kernel import KernelCampaigns
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    results: list[Judged] = []
    routing = drawn[0].routing
    link = common.link_with_queues(routing)
    # a process for each daemon: campaigns kill them
    net = Net(drawn[0].topology, link=link, routing=routing, packed=0)
    with net, Fidelity(net) as fidelity:
        on_kernel = KernelCampaigns(net, routing)
        for faults in drawn:
            results.append(Judged(faults, on_kernel.run(faults), on_kernel.settled_s))
            if results[-1].findings:
                break
    about |= {"fidelity": fidelity.report.verdict, "fidelity_report": fidelity.report.as_dict()}
    return results


def on_new_network(faults: Campaign) -> Judged:
    """Carry a campaign out on a new network in the kernel."""
    return on_one_network([faults], {})[0]


def repeat(failed: Judged, judge: Callable[[Campaign], Judged], engine: str) -> str:
    """Return the command of a campaign of few events that fails like `failed`."""
    kind = failed.findings[0].kind

    def fails(smaller: Campaign) -> bool:
        return any(finding.kind == kind for finding in judge(smaller).findings)

    most_tries = MOST_TRIES_ON_KERNEL if engine == "kernel" else MOST_TRIES
    return shrink(failed.campaign, fails, most_tries=most_tries).command(engine)


def check(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, and the events suit both."""
    common.check_routing(run)
    if run.text("events") != DRAWN and run.engine == "kernel" and run.clock == "real":
        if any(event.kind == "clock" for event in events(run)):
            raise ValueError(
                "chaos: this machine's clock is not only the run's: set it with --clock "
                "virtual only"
            )
    elif run.text("events") != DRAWN:
        events(run)


def goes_together(run: Run) -> bool:
    """Return whether the scheme of `run` suits its network."""
    try:
        common.check_routing(run)
    except ValueError:
        return False
    return True


def plot(table: Table, figure: Figure) -> None:
    """Draw the fraction of campaigns that are as predicted, over the time since the last event."""
    panels = figure.subplots(1, 2, sharey=True)
    figure.set_size_inches(9, 4)
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    titles = {"settled_s": "something is broken", "healed_s": "all is mended"}
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        for spec, (look, _) in looks.items():
            rows: list[Any] = [row for row in table if row["routing"] == spec]
            times = np.sort([time_s for row in rows for time_s in row[key]])
            if len(times):
                axes.step(
                    times,
                    np.arange(1, len(times) + 1) / len(times),
                    color=look.colour,
                    label=look.label,
                )
        axes.set(
            xlabel="time after the last event (s)",
            title=f"As predicted, when {title}",
            ylim=(0, 1.02),
        )
        axes.set_xlim(left=0)
    panels[0].set_ylabel("campaigns (fraction)")
    failed, count = (sum(int(str(row[key])) for row in table) for key in ("failed", "campaigns"))
    figure.suptitle(f"{count} campaigns, {failed} failed", fontsize=9)
    panels[1].legend(ncols=2, fontsize=7)


EXPERIMENT = Experiment(
    name="chaos",
    question="Does every scheme end as predicted, whatever happens to links, packets, "
    "routers and daemons?",
    source="Chaos campaigns; delta debugging, IEEE TSE 28 (2)",
    engines=("fabric", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over(*NETWORKS),
        "routing": common.ROUTING.over(*[eager(name) for name in machines()]),
        "campaigns": Integer(meaning="campaigns of each run", least=1, most=1_000_000).over(20),
        "steps": Integer(
            meaning="faults and mendings of each, a flap being one", least=0, most=1000
        ).over(10),
        "events": Spec(
            meaning="what happens: drawn by the seed; none; or what a command that repeats "
            "a campaign says",
            form="drawn, none or TIME:KIND:WHERE[:VALUE]+...",
            check=lambda text: None,
        ).over(DRAWN),
        "campaign": Integer(
            meaning="number of the first, by which its events are drawn", least=0, most=1 << 62
        ).over(0),
        "pairs": Integer(
            meaning="pairs of servers that are looked at, by which numbers decide; on the "
            "kernel, 60 at most",
            least=1,
            most=1_000_000,
        ).over(MOST_PAIRS),
    },
    columns=columns.CHAOS,
    seeds=1,
    takes_s=None,
    measure=measure,
    plot=plot,
    check=check,
    goes_together=goes_together,
    must_hold=("passed",),
)
