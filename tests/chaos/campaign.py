"""Campaigns of random faults, as a state machine of hypothesis, which shrinks what fails.

Each rule is a fault or a repair, `after_s` after the one before.  At most a third of the links and
a third of the routers are broken at a time, so that a prediction remains.  When the last rule has
run, the network must be as predicted; then everything is repaired, and all pairs must reach each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import SearchStrategy, booleans, integers, runner, sampled_from

from tests.chaos.faulty_network import FaultyNetwork

GAPS_S = (0.0, 0.002, 0.03, 0.15, 0.5)
PERIODS_S = (0.02, 0.1, 0.25, 0.4)
STALLS_MS = (20, 150, 400, 1500)
CLOCK_STEPS_S = (-0.2, 0.2, -3600.0, 3600.0)
ALTERATIONS = (
    *({"loss_fraction": fraction} for fraction in (0.05, 0.2, 0.6)),
    *({"duplicate_fraction": fraction} for fraction in (0.2, 1.0)),
    *({"corrupt_fraction": fraction} for fraction in (0.002, 0.05, 0.3)),
    *({"replay_fraction": fraction} for fraction in (0.05, 0.5)),
    *({"delay_s": seconds} for seconds in (0.001, 0.02, 0.12)),
    *({"jitter_s": seconds} for seconds in (0.001, 0.02, 0.12)),
)
ALL = "all"
STEPS = 12
STORE = DirectoryBasedExampleDatabase(".hypothesis/examples")


def any_name(names: Callable[[FaultCampaign], list[Any]]) -> SearchStrategy[Any]:
    """Return a strategy for one of the `names` that the campaign has when the rule runs."""
    return runner().flatmap(lambda campaign: sampled_from(names(campaign)))


def fault(names: Callable[[FaultCampaign], list[Any]], **arguments: SearchStrategy[Any]) -> Any:
    """Return a decorator: a rule for one of `names`, which may run while there are any."""

    def decorate(method: Callable[..., None]) -> Any:
        def run(self: FaultCampaign, after_s: float, **values: Any) -> None:
            self.sound = False
            self.network.wait(after_s)
            method(self, **values)
            self.sound = True

        run.__name__ = method.__name__
        run.__doc__ = method.__doc__
        place = method.__code__.co_varnames[1]
        strategies = {place: any_name(names), "after_s": sampled_from(GAPS_S), **arguments}
        return precondition(lambda self: bool(names(self)))(rule(**strategies)(run))

    return decorate


class FaultCampaign(RuleBasedStateMachine):
    """The faults of one campaign.  Links and nodes have their names, so that a report is legible.

    create: returns a converged network for a seed.
    network: the one of this campaign.
    sound: no rule raised an exception.
    """

    create: Callable[[int], FaultyNetwork]
    network: FaultyNetwork
    sound = False

    @initialize(seed=integers(0, 2**32 - 1))
    def bring_up(self, seed: int) -> None:
        self.network = type(self).create(seed)
        self.sound = True

    # -- names from which rules draw

    def link_names(self, links: set[int]) -> list[str]:
        return [self.network.topology.link_name(link) for link in sorted(links)]

    def all_links(self) -> list[str]:
        return self.link_names(set(range(len(self.network.topology.links))))

    def broken_links(self) -> list[str]:
        return self.link_names(self.network.damage.links())

    def healthy_links(self) -> list[str]:
        """Return the links that may break: none if a third is broken."""
        broken = self.network.damage.links()
        count = len(self.network.topology.links)
        return self.link_names(set(range(count)) - broken) if 3 * len(broken) < count else []

    def healthy_link_ends(self) -> list[tuple[str, str]]:
        names = self.network.topology.naming.name
        links = map(self.network.topology.link, self.healthy_links())
        return [
            (self.network.topology.link_name(link), names(end))
            for link in links
            for end in sorted(self.network.ends(link))
        ]

    def some_or_all_links(self) -> list[str]:
        return [*self.all_links(), ALL]

    def altered_links(self) -> list[str]:
        return [*self.link_names(set(self.network.wires)), ALL]

    def node_names(self, nodes: set[int]) -> list[str]:
        return [self.network.topology.naming.name(node) for node in sorted(nodes)]

    def may_break(self, nodes: set[int]) -> bool:
        broken = self.network.damage.nodes()
        return not broken & nodes and 3 * len(broken | nodes) <= len(self.network.routers)

    def healthy_nodes(self) -> list[str]:
        """Return the routers that may break."""
        return self.node_names({node for node in self.network.routers if self.may_break({node})})

    def running_nodes(self) -> list[str]:
        return self.node_names(set(self.network.routers) - self.network.damage.nodes())

    def dead_nodes(self) -> list[str]:
        return self.node_names(self.network.damage.dead)

    def headless_nodes(self) -> list[str]:
        return self.node_names(self.network.damage.headless)

    def nodes_with_clocks(self) -> list[str]:
        return self.running_nodes() if self.network.sets_clocks else []

    def rack_members(self, switch: int) -> set[int]:
        """Return the routers that lose power with the rack of `switch`."""
        topology = self.network.topology
        servers = {node for _, node, _, _ in topology.ports(switch) if node < topology.servers}
        return servers if topology.server_centric else {switch}

    def healthy_racks(self) -> list[str]:
        topology = self.network.topology
        switches = set(topology.links[topology.level == 0][:, 2].tolist())
        return self.node_names({s for s in switches if self.may_break(self.rack_members(s))})

    # -- links

    def numbers(self, where: str) -> list[int]:
        """Return the numbers of the links at `where`: one, or all."""
        count = len(self.network.topology.links)
        return list(range(count)) if where == ALL else [self.network.topology.link(where)]

    @fault(healthy_links, silent=booleans())
    def fail_link(self, link: str, silent: bool) -> None:
        self.network.fail_link(self.network.topology.link(link), silent=silent)

    @fault(healthy_link_ends)
    def deafen(self, link_end: tuple[str, str]) -> None:
        link, end = link_end
        self.network.deafen(
            self.network.topology.link(link), self.network.topology.naming.node(end)
        )

    @fault(broken_links)
    def restore_link(self, link: str) -> None:
        self.network.restore_link(self.network.topology.link(link))

    @fault(healthy_links, silent=booleans(), period_s=sampled_from(PERIODS_S), times=integers(2, 4))
    def flap(self, link: str, silent: bool, period_s: float, times: int) -> None:
        """Let a link fail and work again `times` in a row."""
        number = self.network.topology.link(link)
        for _ in range(times):
            self.network.fail_link(number, silent=silent)
            self.network.wait(period_s)
            self.network.restore_link(number)
            self.network.wait(period_s)

    @fault(some_or_all_links, properties=sampled_from(ALTERATIONS))
    def alter(self, where: str, properties: dict[str, float]) -> None:
        self.network.alter(self.numbers(where), **properties)

    @fault(altered_links)
    def clear(self, where: str) -> None:
        self.network.clear(self.numbers(where))

    # -- nodes

    @fault(healthy_nodes, announced=booleans())
    def power_off(self, node: str, announced: bool) -> None:
        """Cut the power of a router; if `announced`, its links lose their carrier."""
        number = self.network.topology.naming.node(node)
        self.network.power_off(number)
        if announced:
            self.take_carriers(number)

    @fault(healthy_racks)
    def power_off_rack(self, switch: str) -> None:
        """Cut the power of a switch and of the servers behind it."""
        number = self.network.topology.naming.node(switch)
        for node in sorted(self.rack_members(number)):
            self.network.power_off(node)
        self.take_carriers(number)

    def take_carriers(self, node: int) -> None:
        for *_, link in self.network.topology.ports(node):
            if link not in self.network.damage.down:
                self.network.fail_link(link, silent=False)

    @fault(dead_nodes)
    def power_on(self, node: str) -> None:
        """Restore the links of a dead router, and start it with empty tables."""
        number = self.network.topology.naming.node(node)
        for *_, link in self.network.topology.ports(number):
            if link in self.network.damage.links():
                self.network.restore_link(link)
        self.network.power_on(number)

    @fault(healthy_nodes, dead_s=sampled_from(GAPS_S))
    def reboot(self, node: str, dead_s: float) -> None:
        number = self.network.topology.naming.node(node)
        self.network.power_off(number)
        self.network.wait(dead_s)
        self.network.power_on(number)

    # -- daemons

    @fault(healthy_nodes)
    def kill_daemon(self, node: str) -> None:
        self.network.kill_daemon(self.network.topology.naming.node(node))

    @fault(headless_nodes)
    def start_daemon(self, node: str) -> None:
        self.network.start_daemon(self.network.topology.naming.node(node))

    @fault(healthy_nodes, dead_s=sampled_from(GAPS_S))
    def restart_daemon(self, node: str, dead_s: float) -> None:
        number = self.network.topology.naming.node(node)
        self.network.kill_daemon(number)
        self.network.wait(dead_s)
        self.network.start_daemon(number)

    @fault(lambda campaign: [*campaign.running_nodes(), ALL], stall_ms=sampled_from(STALLS_MS))
    def stall(self, where: str, stall_ms: int) -> None:
        """Let the daemon of a node, or all daemons, not run for a time."""
        names = self.running_nodes() if where == ALL else [where]
        nodes = [self.network.topology.naming.node(name) for name in names]
        self.network.stall(nodes, stall_ms / 1000)

    @fault(nodes_with_clocks, step_s=sampled_from(CLOCK_STEPS_S))
    def step_clock(self, node: str, step_s: float) -> None:
        self.network.step_clock(self.network.topology.naming.node(node), step_s)

    def teardown(self) -> None:
        """Judge the network after the last rule."""
        try:
            if self.sound:
                self.network.judge()
        finally:
            if hasattr(self, "network"):
                self.network.close()


def campaign_on(title: str, create: Callable[[int], FaultyNetwork]) -> type[FaultCampaign]:
    """Return the campaigns on networks that `create` returns; `title` is printed with a failure."""
    return type(title, (FaultCampaign,), {"create": staticmethod(create)})


def run_campaigns(
    campaign: type[FaultCampaign],
    count: int,
    *,
    steps: int = STEPS,
    derandomize: bool = False,
    database: ExampleDatabase | None = STORE,
) -> None:
    """Run `count` random campaigns; raise the error of the smallest that fails.

    Args:
        campaign: their class, of campaign_on().
        count: campaigns.
        steps: faults and repairs of each, at most.
        derandomize: draw the same campaigns each time; `database` must be None.
        database: stores failed campaigns, which come first the next time.
    """
    run_state_machine_as_test(
        campaign,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            database=database,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.reuse, Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
        ),
    )
