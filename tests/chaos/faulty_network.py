"""The faults that both runtimes carry out, and the verdict at the end of a campaign."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.damage import Damage, all_pairs
from weft.daemons.core.node_config import routers

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


class CampaignError(AssertionError):
    """The network did not end as predicted."""


class FaultyNetwork(ABC):
    """A network of daemons with the faults of one campaign.

    seed: of the fate of packets, and of the pairs of servers that are judged.
    wires: properties of altered links, by link.
    """

    sets_clocks = True

    def __init__(self, topology: Topology, routing: str, seed: int, pairs: int) -> None:
        self.topology = topology
        self.routing = routing
        self.random = Random(seed)
        self.routers = routers(topology)
        self.damage = Damage()
        self.wires: dict[int, dict[str, float]] = {}
        self.stalled_until_s = 0.0
        every_pair = sorted(all_pairs(topology))
        count = min(pairs, len(every_pair))
        self.pairs = sorted(Random(seed).sample(every_pair, count))

    def ends(self, link: int) -> set[int]:
        """Return the two nodes of `link`."""
        return set(self.topology.links[link, [0, 2]].tolist())

    def fail_link(self, link: int, *, silent: bool) -> None:
        """Fail both directions of `link`; unless `silent`, its ends lose the carrier."""
        if silent:
            self.damage.deaf |= {(link, end) for end in self.ends(link)}
        else:
            self.damage.down.add(link)
        self._link_changed(link)

    def deafen(self, link: int, end: int) -> None:
        """Let `end` hear nothing over `link`; the other end still does."""
        self.damage.deaf.add((link, end))
        self._link_changed(link)

    def restore_link(self, link: int) -> None:
        """Repair `link`, however it failed."""
        self.damage.down.discard(link)
        self.damage.deaf -= {(link, end) for end in self.ends(link)}
        self._link_changed(link)

    def alter(self, links: Iterable[int], **properties: float) -> None:
        """Set properties of a Wire on `links`: loss, delay, corruption, ..."""
        for link in links:
            self.wires.setdefault(link, {}).update(properties)
            self._wire_changed(link)

    def clear(self, links: Iterable[int]) -> None:
        """Let packets pass `links` unaltered."""
        for link in links:
            if self.wires.pop(link, None):
                self._wire_changed(link)

    def power_off(self, node: int) -> None:
        """Cut the power of `node`; its neighbours see nothing but silence."""
        self._power_off(node)
        self.damage.dead.add(node)
        self.damage.headless.discard(node)

    def power_on(self, node: int) -> None:
        """Start `node` with empty tables and a new daemon."""
        self.damage.dead.discard(node)
        self.damage.headless.discard(node)
        self._power_on(node)

    def kill_daemon(self, node: int) -> None:
        """Kill the daemon of `node`, which forwards as before."""
        self._kill_daemon(node)
        self.damage.headless.add(node)

    def start_daemon(self, node: int) -> None:
        """Start a daemon, which finds the routes of the last one."""
        self.damage.headless.discard(node)
        self._start_daemon(node)

    def stall(self, nodes: Iterable[int], seconds: float) -> None:
        """Let the daemons of `nodes` not run for a time; their packets wait."""
        self._stall(nodes, seconds)  # on the kernel, each stall begins a little later
        self.stalled_until_s = max(self.stalled_until_s, self.now() + seconds)

    def judge(self) -> None:
        """Check the network after the last fault, and again after all repairs.

        Raises:
            CampaignError: pairs, convergence or state differ from the prediction.
        """
        self.wait(self.stalled_until_s - self.now())
        self.clear(list(self.wires))
        self.settle("after the last fault")
        for link in sorted(self.damage.links()):
            self.restore_link(link)
        for node in sorted(self.damage.dead):
            self.power_on(node)
        for node in sorted(self.damage.headless):
            self.start_daemon(node)
        self.settle("after all repairs")
        self.check_recovery()

    def close(self) -> None:  # noqa: B027
        """Undo what would outlive the campaign: nothing in the simulator."""

    @abstractmethod
    def now(self) -> float:
        """Return the time (s) of the network."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def step_clock(self, node: int, seconds: float) -> None:
        """Step the clock of `node`."""

    @abstractmethod
    def settle(self, moment: str) -> None:
        """Wait until exactly the predicted pairs reach each other."""

    @abstractmethod
    def check_recovery(self) -> None:
        """Check daemons and their state when everything is repaired."""

    @abstractmethod
    def _link_changed(self, link: int) -> None: ...

    @abstractmethod
    def _wire_changed(self, link: int) -> None: ...

    @abstractmethod
    def _power_off(self, node: int) -> None: ...

    @abstractmethod
    def _power_on(self, node: int) -> None: ...

    @abstractmethod
    def _kill_daemon(self, node: int) -> None: ...

    @abstractmethod
    def _start_daemon(self, node: int) -> None: ...

    @abstractmethod
    def _stall(self, nodes: Iterable[int], seconds: float) -> None: ...
