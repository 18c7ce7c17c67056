"""Rules of campaigns: what they draw, and what hypothesis repeats and shrinks."""

from __future__ import annotations

import pytest
from hypothesis import seed
from hypothesis.database import InMemoryExampleDatabase

from tests.chaos.campaign import FaultCampaign, campaign_on, run_campaigns
from tests.chaos.faulty_network import CampaignError, FaultyNetwork
from tests.chaos.schemes import NETWORKS, eager, machines, networks_of
from weft.daemons.core import registry
from weft.topologies import build

OPERATIONS = (
    "fail_link",
    "deafen",
    "restore_link",
    "alter",
    "clear",
    "power_off",
    "power_on",
    "kill_daemon",
    "start_daemon",
    "stall",
    "step_clock",
)


class Record(FaultyNetwork):
    """A network without daemons; it keeps its operations in `log`.

    log: (time, operation, arguments) of each operation.
    """

    def __init__(self, spec: str, seed: int) -> None:
        super().__init__(build(spec), "bfs", seed, pairs=5)
        self.seed = seed
        self.time_s = 0.0
        self.log: list[tuple[object, ...]] = []
        for operation in OPERATIONS:
            setattr(self, operation, self.recorded(operation))

    def recorded(self, operation: str):
        method = getattr(super(), operation, lambda *_: None)

        def call(*arguments, **options):
            self.log.append((self.time_s, operation, str(arguments), str(options)))
            method(*arguments, **options)

        return call

    def now(self) -> float:
        return self.time_s

    def wait(self, seconds: float) -> None:
        self.time_s += max(0.0, seconds)

    def settle(self, moment: str) -> None:
        assert 3 * len(self.damage.nodes()) <= len(self.routers)

    def check_recovery(self) -> None:
        assert not self.damage.links() | self.damage.nodes()
        assert not self.wires

    def step_clock(self, node: int, seconds: float) -> None: ...

    def _ignore(self, *_: object) -> None: ...

    _link_changed = _wire_changed = _power_off = _power_on = _ignore
    _kill_daemon = _start_daemon = _stall = _ignore


def records(spec: str, number: int, count: int = 100) -> list[Record]:
    """Return the networks of `count` campaigns that the seed `number` draws."""
    networks: list[Record] = []

    def create(seed_of_network: int) -> Record:
        networks.append(Record(spec, seed_of_network))
        return networks[-1]

    run_campaigns(seed(number)(campaign_on("Recorded", create)), count, database=None)
    return networks


@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "fattree:k=4"])
def test_every_operation_is_drawn_and_a_third_is_broken_at_most(spec):
    networks = records(spec, 1)
    assert {entry[1] for network in networks for entry in network.log} == set(OPERATIONS)
    assert len({network.seed for network in networks}) > 20


def test_a_seed_repeats_its_campaigns():
    logs = []
    for number in (7, 7, 8):
        networks = records("dcell:n=3,k=1", number, count=20)
        logs.append([network.log for network in networks])
    assert logs[0] == logs[1] != logs[2]


def test_clocks_are_stepped_only_where_a_network_allows_it(monkeypatch):
    monkeypatch.setattr(Record, "sets_clocks", False)
    operations = {entry[1] for network in records("dcell:n=3,k=1", 1) for entry in network.log}
    assert operations == set(OPERATIONS) - {"step_clock"}


def test_a_failure_is_shrunk_stored_and_printed_as_a_program(monkeypatch):
    """The planted failure: any campaign that kills a daemon."""

    def settle(self, moment):
        if any(entry[1] == "kill_daemon" for entry in self.log):
            raise CampaignError("a daemon was killed")

    monkeypatch.setattr(Record, "settle", settle)
    database = InMemoryExampleDatabase()
    counts = []
    for _ in range(2):
        networks: list[Record] = []

        def create(number: int, networks=networks) -> Record:
            networks.append(Record("dcell:n=3,k=1", number))
            return networks[-1]

        with pytest.raises(CampaignError) as error:
            # A seed: the shrinker draws, and may stop one rule above the least program.
            run_campaigns(seed(1)(campaign_on("Planted", create)), 200, database=database)
        counts.append(len(networks))
        steps = [line for line in error.value.__notes__ if line.startswith("state.")]
        assert steps[0].startswith("state.bring_up(seed=")
        assert steps[1].startswith(("state.kill_daemon(", "state.restart_daemon("))
        assert steps[2:] == ["state.teardown()"]
    assert counts[1] < counts[0]  # the stored example comes first


def test_every_kind_of_daemon_has_a_scheme_and_a_network():
    kinds = {scheme.machine for scheme in registry.schemes().values() if scheme.machine}
    assert {registry.schemes()[name].machine for name in machines()} == kinds
    assert len(machines()) == len(kinds)
    assert machines()[0] == "bfs"
    assert set(networks_of(eager("bfs"))) == set(NETWORKS)
    assert networks_of(eager("lbsp")) == ["fattree:k=4"]
    assert eager("dr:hello_ms=30").startswith("dr:hello_ms=30")


def test_no_campaign_is_judged_without_a_network():
    FaultCampaign().teardown()
