"""Databases joined by hand: what is sent at a port reaches the other end at once, unless the test
loses it."""

import random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.daemons.control.link_state import MOST_PATIENCE, Database, backoff, digest_part
from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.mixing import mixed

GAP_S, SETTLE_S = 0.002, 0.060


class Web:
    """Databases joined by `links`, each on a port of its own at either end; hellos tell the digests
    every 30 ms."""

    def __init__(self, links, draw=None, loss_fraction=0.0, **options):
        self.now, self.draw, self.loss_fraction, self.sent = 0.0, draw, loss_fraction, 0
        self.wires, ports = {}, {}
        for a, b in links:
            for one, other in ((a, b), (b, a)):
                ports.setdefault(one, {})[len(ports.get(one, {}))] = (other,)
            at_a, at_b = len(ports[a]) - 1, len(ports[b]) - 1
            self.wires[a, at_a], self.wires[b, at_b] = (b, at_b), (a, at_a)
        self.ports, self.options, self.cut = ports, options, set()
        self.nodes = {
            node: Database(node, at, incarnation=1 << 32, **options) for node, at in ports.items()
        }
        self.flying = []
        for node, database in self.nodes.items():
            self.do(node, database.start(0.0))

    def do(self, node, actions):
        for action in actions:
            assert isinstance(action, Send)
            self.sent += 1
            if (node, action.port) not in self.cut and (
                not self.draw or self.draw.random() >= self.loss_fraction
            ):
                self.flying.append((*self.wires[node, action.port], action.payload))
        while self.flying:
            to, port, payload = self.flying.pop(0)
            self.do(to, self.nodes[to].receive(wire.decode(payload), port, self.now))

    def join(self, node, port, up=True):
        """`node` says that the link at `port` is up, or not."""
        other, _ = self.wires[node, port]
        digest = self.nodes[other].digest
        self.do(node, self.nodes[node].neighbour_changed(Hop(port, other), up, digest, self.now))

    def join_all(self):
        for node, port in self.wires:
            self.join(node, port)

    def run_for(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 0.001
            for node, database in self.nodes.items():
                if database.deadline <= self.now:
                    self.do(node, database.tick(self.now))
                if round(self.now * 1000) % 30 == node % 30:
                    for port, (other,) in self.ports[node].items():
                        if (node, port) not in self.cut:
                            heard = self.nodes[other].heard_digest(
                                Hop(self.wires[node, port][1], node), database.digest, self.now
                            )
                            self.do(other, heard)

    def agree(self):
        """Return whether all have the same entries, times aside, and the digest of these."""
        said = [
            {origin: (entry.sequence, entry.links) for origin, entry in database.entries.items()}
            for database in self.nodes.values()
        ]
        right = 0
        for origin, entry in next(iter(self.nodes.values())).entries.items():
            right ^= digest_part(origin, entry)
        digests = {database.digest for database in self.nodes.values()}
        return all(one == said[0] for one in said) and digests == {right}


LINE = [(0, 1), (1, 2), (2, 3)]
RING = [(node, (node + 1) % 12) for node in range(12)]


def test_everybody_learns_every_link():
    web = Web(RING)
    web.join_all()
    web.run_for(0.050)
    assert web.agree()
    expected = {node: tuple(sorted({(node - 1) % 12, (node + 1) % 12})) for node in range(12)}
    assert all(database.graph() == expected for database in web.nodes.values())
    assert all(database.agreed() for database in web.nodes.values())


def test_a_link_counts_when_both_ends_say_so():
    web = Web(LINE)
    web.join_all()
    web.run_for(0.050)
    web.join(1, 1, up=False)
    web.run_for(0.050)
    assert web.nodes[0].graph() == {0: (1,), 1: (0,), 2: (3,), 3: (2,)}


def test_news_are_not_sent_back_where_they_came_from():
    web = Web(LINE)
    web.join_all()
    web.run_for(0.200)
    before = web.sent
    web.do(0, web.nodes[0].neighbour_changed(Hop(7, 9), True, 0, web.now))
    web.run_for(0.040)
    assert web.sent - before == 3


def test_nothing_is_sent_when_nothing_changes():
    web = Web(RING)
    web.join_all()
    web.run_for(0.200)
    before = web.sent
    web.run_for(5.0)
    assert web.sent == before


def test_what_changes_fast_is_advertised_once():
    web = Web([(0, 1)])
    web.join_all()
    web.run_for(0.100)
    sequence = web.nodes[0].entries[0].sequence
    for node in range(100, 150):
        web.do(0, web.nodes[0].neighbour_changed(Hop(5, node), True, 0, web.now))
    web.run_for(0.010)
    assert web.nodes[1].entries[0].sequence == sequence + 2
    assert len(web.nodes[1].entries[0].neighbours()) == 51


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_made_good(seed):
    web = Web(RING, random.Random(seed), loss_fraction=0.3)
    web.join_all()
    web.run_for(1.5)
    assert web.agree()
    assert all(len(database.entries) == 12 for database in web.nodes.values())


def test_a_neighbour_that_comes_up_gets_all_at_once():
    web = Web(LINE)
    for node, port in [(0, 0), (1, 0), (2, 1), (3, 0)]:
        web.join(node, port)
    web.run_for(0.100)
    assert sorted(web.nodes[0].entries) == [0, 1]
    web.join(1, 1)
    web.join(2, 0)
    web.run_for(0.005)
    assert web.agree()


def test_partition_and_heal():
    web = Web(LINE)
    web.join_all()
    web.run_for(0.100)
    web.cut = {(1, 1), (2, 0)}
    web.join(1, 1, up=False)
    web.join(2, 0, up=False)
    web.do(0, web.nodes[0].neighbour_changed(Hop(7, 9), True, 0, web.now))
    web.run_for(0.100)
    assert web.nodes[0].graph() == {0: (1,), 1: (0,), 2: (3,), 3: (2,)}
    assert len(web.nodes[3].entries[0].neighbours()) == 1
    web.cut = set()
    web.join(1, 1)
    web.join(2, 0)
    web.run_for(0.010)
    assert web.agree()
    assert len(web.nodes[3].entries[0].neighbours()) == 2


def test_one_that_starts_again_with_an_older_clock_jumps_past_itself():
    web = Web(LINE)
    web.join_all()
    web.run_for(0.100)
    old = web.nodes[3].entries[0].sequence
    web.nodes[0] = Database(0, web.ports[0], incarnation=17)
    web.do(0, web.nodes[0].start(web.now))
    web.join(1, 0, up=False)
    web.join(0, 0)
    web.join(1, 0)
    web.run_for(0.100)
    assert web.agree()
    assert web.nodes[3].entries[0].sequence > old
    assert web.nodes[3].graph()[0] == (1,)


def test_what_is_not_renewed_is_forgotten_by_all():
    web = Web(LINE, lifetime_ms=2_000)
    web.join_all()
    web.run_for(0.500)
    web.cut = {(0, 0), (1, 0)}
    web.join(1, 0, up=False)
    web.run_for(1.2)
    assert 0 in web.nodes[3].entries
    web.run_for(1.0)
    assert all(0 not in web.nodes[node].entries for node in (1, 2, 3))
    assert sorted(web.nodes[3].entries) == [1, 2, 3], "the others have renewed theirs"
    del web.nodes[0]
    assert web.agree()


def test_what_expires_is_not_brought_back_by_who_forgets_it_later():
    web = Web(LINE, lifetime_ms=300)
    stale = wire.LinkStates(1, (wire.Advertisement(77, 5, 200, wire.pack_links([(0, 1)])),))
    web.join_all()
    web.do(0, web.nodes[0].receive(stale, 0, 0.0))
    web.run_for(0.030)
    assert 77 in web.nodes[0].entries
    web.run_for(1.0)
    assert all(77 not in database.entries for database in web.nodes.values())


def answers(database, summary):
    """The origins that `database` sends when it hears `summary`."""
    messages = [wire.decode(action.payload) for action in database.receive(summary, 0, 0.1)]
    return [
        advertisement.origin for message in messages for advertisement in message.advertisements
    ]


def test_a_summary_is_answered_by_its_target_with_what_it_lacks():
    database = Database(5, {0: (1, 2)}, incarnation=10)
    database.start(0.0)
    some = tuple(wire.Advertisement(origin, 7, 9000, b"") for origin in (1, 3, 4, 8))
    database.receive(wire.LinkStates(1, some), 0, 0.05)
    assert answers(database, wire.Summary(1, 5, 0, 9, ())) == [5, 1, 3, 4, 8]
    assert answers(database, wire.Summary(1, 5, 3, 5, ())) == [5, 3, 4]
    assert answers(
        database, wire.Summary(1, 5, 0, 9, ((1, 7, 0), (3, 6, 9), (4, 8, 0), (5, 11, 0)))
    ) == [3, 8]
    assert answers(database, wire.Summary(1, 2, 0, 9, ())) == []


@pytest.mark.parametrize("heard_by", [1, 2, 3])
@pytest.mark.parametrize("preferred", [True, False])
def test_of_two_advertisements_with_one_number_all_keep_one_until_the_origin_contradicts(
    preferred, heard_by
):
    """A bit has flipped: the nodes hold other links of node 0 under one sequence number.

    All keep those with the greater check.
    """
    web = Web(LINE)
    web.join_all()
    web.run_for(0.5)
    before = web.nodes[0].entries[0]
    flips = [bytes([*before.links[:-1], before.links[-1] ^ 1 << bit]) for bit in range(8)]
    changed = next(links for links in flips if (crc32(links) > before.check) == preferred)
    web.cut = set(web.wires)  # so that nobody hears of it at once
    flipped = wire.LinkStates(
        heard_by - 1, (wire.Advertisement(0, before.sequence, 9000, changed),)
    )
    port = next(port for port, (other,) in web.ports[heard_by].items() if other == heard_by - 1)
    web.nodes[heard_by]._drop(0)
    web.do(heard_by, web.nodes[heard_by].receive(flipped, port, web.now))
    assert not web.agree()
    web.run_for(0.1)
    web.cut = set()
    web.run_for(1.0)
    assert web.agree()
    assert web.nodes[3].entries[0].links == before.links


def test_a_short_difference_is_a_hello_that_comes_late():
    database = Database(0, {0: (1,)}, incarnation=10)
    database.start(0.0)
    digest = database.digest
    (news,) = database.neighbour_changed(Hop(0, 1), True, digest, 0.010)
    assert isinstance(wire.decode(news.payload), wire.LinkStates)
    assert database.digest != digest
    assert database.heard_digest(Hop(0, 1), database.digest, 0.040) == []
    assert database.heard_digest(Hop(0, 1), digest, 0.100) == database.tick(0.159) == []
    (summary,) = database.tick(0.161)
    assert wire.decode(summary.payload) == wire.Summary(
        0, 1, 0, 0xFFFFFFFF, ((0, 12, crc32(wire.pack_links([(0, 1)]))),)
    )
    assert database.tick(0.200) == []
    assert len(database.tick(0.226)) == 1


def summary_s(late_s):
    """When node 0 sends its summary to a neighbour that differs from 0.1 s on, its ticks being so
    late."""
    database = Database(0, {0: (1,)}, incarnation=10)
    database.start(0.0)
    digest = database.digest
    database.neighbour_changed(Hop(0, 1), True, digest, 0.010)
    database.tick(database.deadline + late_s)
    database.heard_digest(Hop(0, 1), database.digest, 0.040)
    database.heard_digest(Hop(0, 1), digest, 1.0)
    return database.deadline - 1.0


def test_one_whose_ticks_are_late_waits_longer_before_it_sends_a_summary():
    assert summary_s(0.0) == pytest.approx(0.060)
    assert summary_s(0.100) == pytest.approx(0.060 + 4 * 0.100)


def hub():
    """Node 0 of two neighbours that are up and agree with it."""
    database = Database(0, {0: (1,), 1: (2,)}, incarnation=10)
    database.start(0.0)
    for port, node in ((0, 1), (1, 2)):
        database.neighbour_changed(Hop(port, node), True, database.digest, 0.010 + 0.010 * port)
    database.tick(0.100)
    for port, node in ((0, 1), (1, 2)):
        database.heard_digest(Hop(port, node), database.digest, 0.100)
    return database


def said_by_1(origin, sequence=7):
    return wire.LinkStates(
        1, (wire.Advertisement(origin, sequence, 9000, wire.pack_links([(0, 1)])),)
    )


def test_news_that_come_together_are_passed_on_together():
    database = hub()
    for origin in range(5, 15):
        assert database.receive(said_by_1(origin), 0, 0.200) == []
    assert database.deadline == 0.200
    (send,) = database.tick(0.200)
    assert send.port == 1
    assert [
        advertisement.origin for advertisement in wire.decode(send.payload).advertisements
    ] == list(range(5, 15))


def summaries(sends):
    return [send for send in sends if isinstance(wire.decode(send.payload), wire.Summary)]


def test_no_summaries_are_sent_while_news_come_but_not_for_ever():
    """Else every node that is late asks all others for what is on its way anyway, and everybody is
    late."""
    database = hub()
    digest, at_s = summaries(database.heard_digest(Hop(1, 2), 77, 0.200)), []
    for step in range(1, 110):
        now = 0.200 + 0.010 * step
        database.receive(said_by_1(5, step), 0, now)
        if any(send.port == 1 for send in summaries(database.tick(now))):
            at_s.append(now)
    assert not digest
    assert at_s == [pytest.approx(0.200 + MOST_PATIENCE * SETTLE_S, abs=0.011)]


def test_a_change_of_our_own_counts_before_it_is_advertised():
    database = Database(0, {0: (1,)}, incarnation=10)
    database.start(0.0)
    before = database.changes
    database.neighbour_changed(Hop(0, 1), True, 0, 0.0001)
    database.neighbour_changed(Hop(0, 1), False, 0, 0.0002)
    assert database.changes == before + 2


def test_only_the_scope_is_kept_and_only_neighbours_are_believed():
    database = Database(0, {0: (1,)}, incarnation=1, scope=range(4))
    database.start(0.0)
    ads = (wire.Advertisement(2, 5, 1000, b""), wire.Advertisement(9, 5, 1000, b""))
    for sender, port in ((7, 0), (1, 3)):
        assert database.receive(wire.LinkStates(sender, ads), port, 0.1) == []
    assert sorted(database.entries) == [0]
    database.receive(wire.LinkStates(1, ads), 0, 0.1)
    assert sorted(database.entries) == [0, 2]


def test_absurd_sequence_numbers_are_refused():
    database = Database(0, {0: (1,)}, incarnation=1)
    database.start(0.0)
    absurd = tuple(wire.Advertisement(origin, (1 << 64) - 1, 1000, b"") for origin in (0, 2))
    database.receive(wire.LinkStates(1, absurd), 0, 0.1)
    assert sorted(database.entries) == [0]
    assert database.entries[0].sequence < 1 << 63


def test_renewing_is_no_change():
    web = Web(LINE, lifetime_ms=1_000)
    web.join_all()
    web.run_for(0.300)
    changes, digest = web.nodes[3].changes, web.nodes[3].digest
    web.run_for(3.0)
    assert web.nodes[3].changes == changes
    assert web.nodes[3].digest != digest
    assert web.agree()


@given(
    st.dictionaries(st.integers(0, 9), st.integers(1, 9), max_size=6),
    st.dictionaries(st.integers(0, 9), st.integers(1, 9), max_size=6),
)
def test_digests_are_equal_when_databases_are(one, other):
    def digest(sequences):
        count = 0
        for origin, sequence in sequences.items():
            count ^= mixed(origin, sequence)
        return count

    assert (digest(one) == digest(other)) == (one == other)


def test_what_is_done_again_and_again_is_done_at_growing_intervals():
    least_s, wait_s, since_s, waits = 0.002, 0.002, 9.0, []
    for _ in range(6):
        wait_s = backoff(wait_s, since_s, least_s)
        waits.append(wait_s)
        since_s = wait_s  # as soon as it may be
    assert waits == pytest.approx([0.002, 0.008, 0.032, 0.1, 0.1, 0.1])
    assert backoff(wait_s, 0.5, least_s) == least_s
    assert backoff(0.5, 0.1, 0.5) == 0.5  # never below the least


def test_a_machine_that_slept_does_not_wait_for_hours():
    database = Database(0, {0: [1]}, incarnation=1)
    database.start(0.0)
    database.neighbour_changed(Hop(0, 1), True, 0, 0.0)
    database.tick(3600.0)
    database.heard_digest(Hop(0, 1), 77, 3600.1)
    assert database.deadline <= 3600.1 + 4 * 1.0 + 0.060
