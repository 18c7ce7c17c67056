"""Random faults, hundreds of campaigns of them: does every scheme end as predicted, whatever
happened?

In each campaign links die with and without a carrier, in one direction or both, and flap; packets
between daemons are lost, late, doubled, reordered, changed on their way and said again; routers,
switches and racks lose their power and come back with empty tables; daemons are killed, stopped,
and started beside the routes that they left; all stop at once; clocks are set.  When it is over,
exactly the pairs of servers must reach each other that the scheme's own paths, or a breadth-first
search, join over what is left; then everything is mended, and all must.  Meanwhile no state machine
raises, packets go round for no longer than the scheme allows, and no daemon keeps what grows with
what has happened.

A campaign that ends otherwise is made smaller, to a few events, and printed as a command that
repeats it.  Without a carrier's seal (SECURITY.md), as in the fabric engine, state machines are
told what a flipped bit or an old packet says; on the kernel they are only if the run is not
authenticated.
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

DRAWN = "drawn"  # for events: those that the seed draws
NETWORKS = (
    "dcell:n=3,k=1",
    "ficonn:n=4,k=1",
    "fattree:k=4",
    "clos:n=2,r=3,m=3",
    "complete:n=4,p=1",
)
# of smaller campaigns, each of which takes seconds on the kernel
MOST_TRIES, MOST_TRIES_ON_KERNEL = 400, 25
MOST_SHRUNK = 3  # campaigns of a run that are made smaller
# So that sources find their ways within the minute that there is, after whatever happened.
EAGER = {"hello_ms": 100, "probes_per_s": 50, "urgent_per_s": 50, "wakes_per_s": 200}
FORGIVING = {"most_hold_ms": 2000, "most_damp_ms": 2000}


def eager(name: str) -> str:
    """The scheme called `name` as campaigns have it by default."""
    known = registry.schemes()[name].parameters
    given = [f"{key}={value}" for key, value in {**EAGER, **FORGIVING}.items() if key in known]
    return f"{name}:{','.join(given)}"


@dataclass(frozen=True)
class Judged:
    """A campaign, what was wrong with it, and how long it took to be as predicted, in s."""

    campaign: Campaign
    findings: Sequence[Finding]
    settled_s: Sequence[float]


def in_simulator(one: Campaign) -> Judged:
    """Carry it out in the fabric engine."""
    simulated = SimulatedCampaign(one)
    return Judged(one, simulated.run(), simulated.settled_s)


def campaigns(run: Run) -> list[Campaign]:
    """Those of `run`: the one that it spells out, or as many as it says, each with a seed of its
    own."""
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
    """The events that `run` spells out."""
    return parse("" if run.text("events") == "none" else run.text("events"), common.network(run))


def kinds_on_kernel(run: Run) -> Sequence[str]:
    """What can be done to a network on this kernel: its clock is everybody's unless it is
    virtual."""
    return [kind for kind in KINDS if kind != "clock" or run.clock == "virtual"]


def measure(run: Run) -> Result:
    """Carry out all campaigns of `run`; what failed is told on standard error, made smaller."""
    judge: Callable[[Campaign], Judged] = in_simulator if run.engine == "fabric" else on_new_network
    told: dict[str, Any] = {}
    found = (
        [judge(one) for one in campaigns(run)]
        if run.engine == "fabric"
        else on_one_network(campaigns(run), told)
    )
    failed = [each for each in found if each.findings]
    commands = [repeat(each, judge, run.engine) for each in failed[:MOST_SHRUNK]]
    for each, command in zip(failed, commands, strict=False):
        print(f"chaos: {each.findings[0]}\n  {command}", file=sys.stderr, flush=True)
    return Result(
        figures={
            "events_count": sum(len(each.campaign.events) for each in found),
            "failed": len(failed),
            "passed": not failed,
            "what_failed": [str(each.findings[0]) for each in failed],
            "repeat": commands,
            "settled_s": [each.settled_s[0] for each in found if each.settled_s],
            "healed_s": [each.settled_s[1] for each in found if len(each.settled_s) > 1],
        },
        fidelity=told.pop("fidelity", None),
        circumstances=told,
    )


def on_one_network(wanted: Sequence[Campaign], told: dict[str, Any]) -> list[Judged]:
    """Carry campaigns out on a network in the kernel, one after the other, up to the first that
    fails; whether the machine kept up goes into `told`."""
    from weft.experiments.chaos.on_kernel import KernelCampaigns
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    found: list[Judged] = []
    link = common.link_with_queues(wanted[0].routing)
    # campaigns kill daemons
    net = Net(wanted[0].topology, link=link, routing=wanted[0].routing, packed=0)
    with net, Fidelity(net) as fidelity:
        carried = KernelCampaigns(net, wanted[0].routing)
        for one in wanted:
            found.append(Judged(one, carried.run(one), carried.settled_s))
            if found[-1].findings:
                break
    told |= {"fidelity": fidelity.report.verdict, "fidelity_report": fidelity.report.as_dict()}
    return found


def on_new_network(one: Campaign) -> Judged:
    """Carry it out on a network of its own in the kernel."""
    return on_one_network([one], {})[0]


def repeat(failed: Judged, judge: Callable[[Campaign], Judged], engine: str) -> str:
    """The command that repeats a campaign of few events which fails as that one does."""
    kind = failed.findings[0].kind

    def fails(smaller: Campaign) -> bool:
        return any(finding.kind == kind for finding in judge(smaller).findings)

    most_tries = MOST_TRIES_ON_KERNEL if engine == "kernel" else MOST_TRIES
    return shrink(failed.campaign, fails, most_tries=most_tries).command(engine)


def check(run: Run) -> None:
    """ValueError unless the scheme of `run` is for its network, and its events for both."""
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
    """Whether the scheme of `run` is for its network."""
    try:
        common.check_routing(run)
    except ValueError:
        return False
    return True


def plot(table: Table, figure: Figure) -> None:
    """How long after the last event all is as predicted, and after the last mending: for each
    scheme, the part of its campaigns over time."""
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
