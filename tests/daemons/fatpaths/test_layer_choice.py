"""When flows take another layer: packets by hand, and C against Python over random ones."""

import ctypes
import random
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.daemons.fatpaths import layer_choice
from tests.daemons.fatpaths.layer_choice import (
    Choice,
    LayerFlowState,
    begins_cell,
    comes_before,
    ends_congested_rounds,
    ends_gap,
    is_drained,
    least_marked,
    next_layer,
    note_acknowledgement,
    note_answer,
    note_echo,
    shows_cut,
    shows_lost_answers,
)

HEADER = Path(__file__).parents[3] / "testbed/data_plane/layer_choice.h"
IN_C = """
static __always_inline __u32 *marks_of(void *marks, __u32 layer) { return (__u32 *)marks + layer; }
int c_cut(struct flow *flow, __u32 seq, __u32 end, int reduced) { return shows_cut(flow, seq, end, reduced); }
int c_rounds(struct flow *flow, __u32 ack, int echo, __u32 percent, __u32 rounds)
{ struct settings set = { .ecn_percent = percent, .ecn_rounds = rounds };
  return ends_congested_rounds(flow, &set, ack, echo); }
void c_acknowledge(struct flow *flow, __u32 ack) { note_acknowledgement(flow, ack); }
void c_answer(struct flow *flow, __u32 ack) { note_answer(flow, ack); }
int c_lost(struct flow *flow, __u32 seq, __u32 end) { return shows_lost_answers(flow, seq, end); }
int c_drained(struct flow *flow) { return is_drained(flow); }
int c_cell(struct flow *flow, __u32 cell_kb, __u32 bytes) { return begins_cell(flow, cell_kb, bytes); }
int c_gap(struct flow *flow, __u32 gap_us, __u64 now_ns) { return ends_gap(flow, gap_us, now_ns); }
void c_note(__u32 *marks, __u32 layer, int echo) { note_echo(marks, layer, echo); }
__u32 c_next(__u32 *marks, __u32 word, __u32 layers, __u32 left, __u32 choice)
{ struct settings set = { .layers = layers, .choice = choice };
  return next_layer(marks, &set, left, word); }
"""  # noqa: E501
FIELDS = (
    "layer",
    "known",
    "next_seq",
    "acked",
    "recover",
    "again_seq",
    "round_end",
    "acks",
    "echoes",
    "rounds",
)
WRAP = (1 << 32) - 3000


class FlowInC(ctypes.Structure):
    _fields_ = (
        ("last_ns", ctypes.c_uint64),
        *(
            (name, ctypes.c_uint32)
            for name in (*FIELDS, "draws", "bytes", "sent_ack", "repeat_seq")
        ),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("layers") / "layer_choice.so"
    command = [
        "cc",
        "-O1",
        "-Wall",
        "-shared",
        "-fPIC",
        "-include",
        str(HEADER),
        "-xc",
        "-",
        "-o",
        str(path),
    ]
    subprocess.run(command, input=IN_C, text=True, check=True)
    library = ctypes.CDLL(str(path))
    library.c_next.restype = ctypes.c_uint32
    return library


def cuts(packets):
    """Which of these (seq, end) show a cut."""
    flow = LayerFlowState()
    return [
        at
        for at, (seq, end) in enumerate(packets)
        if shows_cut(flow, seq & 0xFFFFFFFF, end & 0xFFFFFFFF, False)
    ]


@pytest.mark.parametrize("base", [0, 1 << 31, WRAP])
def test_what_is_sent_in_order_shows_no_cut(base):
    assert cuts([(base + seq, base + seq + 1448) for seq in range(0, 14480, 1448)]) == []


@pytest.mark.parametrize("base", [0, 1 << 31, WRAP])
def test_a_recovery_is_one_cut_however_much_is_sent_again(base):
    new = [(seq, seq + 1000) for seq in range(0, 10_000, 1000)]
    again = [(2000, 3000), (4000, 5000), (7000, 8000)]
    assert cuts([(base + a, base + b) for a, b in new + again]) == [10]


def test_what_was_sent_after_a_cut_and_is_lost_is_another_cut():
    new = [(seq, seq + 1000) for seq in range(0, 5000, 1000)]
    assert cuts([*new, (2000, 3000), (5000, 6000), (6000, 7000), (5000, 6000)]) == [5, 8]


def test_the_first_packet_of_a_recovery_sent_once_more_is_another_cut():
    """A timeout."""
    assert cuts([(0, 1000), (1000, 2000), (0, 1000), (1000, 2000), (0, 1000)]) == [2, 4]


@pytest.mark.parametrize("base", [0, 1 << 31, WRAP])
def test_a_tail_loss_probe_is_no_cut_but_the_timeout_behind_it_is(base):
    sent = [(0, 1000), (1000, 2000), (2000, 3000), (2000, 3000)]
    assert cuts([(base + a, base + b) for a, b in sent]) == []
    assert cuts([(base + a, base + b) for a, b in [*sent, (2000, 3000)]]) == [4]
    # the loss that the probe's answer shows
    assert cuts([(base + a, base + b) for a, b in [*sent, (1000, 2000)]]) == [4]


def test_the_first_packet_of_a_window_sent_once_more_is_a_cut():
    assert cuts([(0, 1000), (1000, 2000), (0, 1000), (1000, 2000), (0, 1000)]) == [2, 4]


def test_a_packet_with_cwr_shows_a_cut():
    flow = LayerFlowState()
    assert not shows_cut(flow, 0, 1000, False)
    assert shows_cut(flow, 1000, 2000, True)
    assert not shows_cut(flow, 2000, 3000, False)


def test_what_was_sent_before_a_packet_with_cwr_and_is_sent_again_belongs_to_that_cut():
    """Packets that went by the new layer overtake those before them, which TCP may take for
    lost."""
    flow = LayerFlowState()
    for seq in range(0, 5000, 1000):
        assert shows_cut(flow, seq, seq + 1000, seq == 4000) == (seq == 4000)
    assert not shows_cut(flow, 2000, 3000, False)
    assert not shows_cut(flow, 5000, 6000, False)
    assert not shows_cut(flow, 3000, 4000, False)
    assert not shows_cut(flow, 6000, 7000, False)
    assert shows_cut(flow, 5000, 6000, False)


def flow_with_cwr(base, reduced_number):
    """Return a flow that has sent ten packets of 1000 bytes from `base` on, one with CWR."""
    flow = LayerFlowState()
    for number in range(10):
        is_reduced = number == reduced_number
        assert sent(flow, base + 1000 * number, reduced=is_reduced) == is_reduced
    return flow


def sent(flow, seq, reduced=False):
    return shows_cut(flow, seq & 0xFFFFFFFF, (seq + 1000) & 0xFFFFFFFF, reduced)


@pytest.mark.parametrize("base", [0, 1 << 31, WRAP])
def test_a_flow_whose_first_packet_in_its_new_layer_is_lost_moves_again(base):
    assert sent(flow_with_cwr(base, 4), base + 4000)
    flow = flow_with_cwr(base, 9)
    assert [sent(flow, base + 9000) for _ in range(4)] == [False, True, True, True]  # a probe first


@pytest.mark.parametrize("base", [0, 1 << 31, WRAP])
def test_what_was_lost_before_a_cut_moves_its_flow_if_the_new_layer_loses_it_too(base):
    flow = flow_with_cwr(base, 4)
    assert [sent(flow, base + 2000) for _ in range(3)] == [False, True, True]
    flow = flow_with_cwr(base, 4)
    again = [2000, 3000, 3000, 4000, 9000, 3000]
    assert [sent(flow, base + seq) for seq in again] == [False, False, True, False, False, True]


def test_a_probe_and_a_loss_from_before_the_cut_are_no_cut():
    flow = flow_with_cwr(0, 4)
    assert not sent(flow, 9000)
    assert not sent(flow, 2000)
    assert sent(flow, 2000)


def test_the_cwr_of_a_recovery_forgets_no_retransmission():
    flow = LayerFlowState()
    for seq in (0, 1000, 2000):
        assert not sent(flow, seq)
    assert sent(flow, 0)
    assert sent(flow, 3000, reduced=True)
    assert sent(flow, 0)


@pytest.mark.parametrize("gigabytes", [1, 2, 3, 4, 5])
def test_a_flow_that_lost_nothing_for_gigabytes_shows_its_next_cut(gigabytes):
    flow, step = LayerFlowState(), 1 << 28
    for number in range(4 * gigabytes):
        start = number * step & 0xFFFFFFFF
        assert not shows_cut(flow, start, (start + step) & 0xFFFFFFFF, False)
    seq = (4 * gigabytes - 2) * step
    assert sent(flow, seq)
    assert not sent(flow, seq + 1000)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3), st.booleans())), st.integers(1, 8))
def test_a_packet_that_is_sent_again_and_again_moves_its_flow(history, behind):
    """Whatever happened before: no flow stays in a dead layer."""
    flow, end = LayerFlowState(), 0
    for back, packets, reduced in history:
        seq = max(0, end - back)
        shows_cut(flow, seq, seq + packets, reduced and not back)
        end = max(end, seq + packets)
    seq = max(0, end - behind)
    cuts = [shows_cut(flow, seq, seq + 1, False) for _ in range(6)]
    assert all(cuts[3:])


def lost(base, events):
    """Return which of these events show lost acknowledgements: an acknowledgement number that is
    sent, or (seq, end) that come."""
    flow, places = LayerFlowState(), []
    for place, event in enumerate(events):
        if isinstance(event, int):
            note_answer(flow, base + event & 0xFFFFFFFF)
        elif shows_lost_answers(flow, *(base + number & 0xFFFFFFFF for number in event)):
            places.append(place)
    return places


FIRST, SECOND = (0, 1000), (1000, 2000)


@pytest.mark.parametrize("base", [0, 1 << 31, WRAP, (1 << 32) - 1000])
@pytest.mark.parametrize(("events", "shown"), [
    ([0, FIRST, 1000, FIRST, FIRST, FIRST], [4, 5]),
    ([0, FIRST, 1000, FIRST, 1000, FIRST], [5]),  # what is answered again
    ([0, FIRST, 1000, SECOND, 2000, SECOND, FIRST, FIRST], [7]),  # a probe, two timeouts
    ([0, FIRST, 1000, SECOND, 2000, SECOND, FIRST, SECOND, FIRST], []),  # overtaken
    ([0, FIRST, 1000, FIRST, SECOND, 2000, FIRST, FIRST], [7]),  # new data came in between
    ([0, FIRST, FIRST, FIRST, 1000], []),  # an acknowledgement waits for its timer
    ([0, SECOND, SECOND, SECOND], []),  # behind a gap
    ([2000, (500, 2000), (500, 1500), (500, 2001)], [2]),  # a part of it is new
    ([1000, (999, 999), (999, 999), (1000, 1000)], []),  # to keep the connection alive
    ([1, (0, 1), (0, 1)], [2]),  # SYN, or FIN
], ids=str)  # fmt: skip
def test_data_that_come_twice_though_acknowledged_show_lost_answers(base, events, shown):
    assert lost(base, events) == shown


def test_a_gap_is_longer_than_the_gap(library):
    flow = FlowInC()
    for idle_ns, is_gap in ((500_000, False), (500_001, True)):
        assert ends_gap(idle_ns, 500) == is_gap
        assert library.c_gap(ctypes.byref(flow), 500, flow.last_ns + idle_ns) == is_gap


def rounds(echoes, percent, wanted, window=10):
    """The acknowledgements, counted in windows, after which the flow draws; `echoes`: how many of
    each window's."""
    flow, found, seq = LayerFlowState(), [], 0
    shows_cut(flow, 0, window, False)
    for at, count in enumerate(echoes):
        shows_cut(flow, seq + window, seq + 2 * window, False)
        found += [
            at
            for ack in range(1, window + 1)
            if ends_congested_rounds(flow, seq + ack, ack <= count, percent=percent, rounds=wanted)
        ]
        seq += window
    return found


def test_congested_rounds_in_a_row_draw_another_layer():
    assert rounds([0, 10, 10, 10, 10, 10], 50, 3) == [3]
    assert rounds([10, 10, 0, 10, 10, 0, 10], 50, 3) == []
    assert rounds([4, 4, 4], 50, 1) == []
    assert len(rounds([6, 6, 6], 50, 1)) == 3


def test_least_marked_avoids_what_was_marked_and_tries_it_again():
    marks = [0] * 4
    for _ in range(40):
        note_echo(marks, 2, True)
        note_echo(marks, 0, False)
    assert marks[2] > 50_000 > marks[0] == 0
    words = random.Random(1)
    first = [least_marked(marks, 4, 4, words.getrandbits(32)) for _ in range(60)]
    assert 2 not in first[:20]
    assert set(first) == {0, 1, 3}
    later = [least_marked(marks, 4, 4, words.getrandbits(32)) for _ in range(200)]
    assert set(later) == {0, 1, 2, 3}
    for _ in range(1000):
        note_echo(marks, 1, True)
    assert marks[1] <= layer_choice.ALL_MARKED


def test_random_layers_are_taken_equally_often():
    words = random.Random(1)
    drawn = [next_layer(Choice.RANDOM, [0] * 9, 9, 9, words.getrandbits(32)) for _ in range(9000)]
    assert all(abs(drawn.count(layer) - 1000) < 120 for layer in range(9))


@pytest.mark.parametrize("choice", Choice)
def test_a_flow_that_leaves_a_layer_never_draws_it(choice):
    words = random.Random(1)
    for left in range(9):
        drawn = {next_layer(choice, [0] * 9, 9, left, words.getrandbits(32)) for _ in range(400)}
        others = set(range(9)) - {left}
        assert drawn == ({(left + 1) % 9} if choice == Choice.TURN else others)
    assert next_layer(choice, [0], 1, 0, words.getrandbits(32)) == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31 - 1))
def test_sequence_numbers_are_compared_round_the_corner(a, ahead):
    b = (a + ahead) & 0xFFFFFFFF
    assert comes_before(a, b)
    assert not comes_before(b, a)
    assert not comes_before(a, a)


def test_c_and_python_see_the_same_cuts_and_rounds(library):
    seen = [0, 0, 0]
    for seed in range(300):
        draw = random.Random(seed)
        ours, theirs, at = LayerFlowState(), FlowInC(), draw.choice([0, WRAP, 1 << 31])
        percent, wanted = draw.choice([1, 50, 100]), draw.choice([1, 2, 3])
        for _ in range(60):
            if draw.random() < 0.6:
                back = draw.choice([0, 0, 0, 1000, 3000, 7000])
                seq, size, reduced = (
                    (at - back) & 0xFFFFFFFF,
                    draw.choice([1, 1000, 2500] * 4 + [1 << 29]),
                    draw.random() < 0.05,
                )
                end = (seq + size) & 0xFFFFFFFF
                at = at if back else end
                told = shows_cut(ours, seq, end, reduced)
                assert told == bool(library.c_cut(ctypes.byref(theirs), seq, end, reduced))
                seen[0] += told
            else:
                ack, echo = (at - draw.choice([0, 1000, 5000])) & 0xFFFFFFFF, draw.random() < 0.6
                note_acknowledgement(ours, ack)
                library.c_acknowledge(ctypes.byref(theirs), ack)
                told = ends_congested_rounds(ours, ack, echo, percent=percent, rounds=wanted)
                assert told == bool(
                    library.c_rounds(ctypes.byref(theirs), ack, echo, percent, wanted)
                )
                seen[1] += told
            assert is_drained(ours) == bool(library.c_drained(ctypes.byref(theirs)))
            seen[2] += is_drained(ours)
            assert [int(getattr(ours, name)) for name in FIELDS] == [
                getattr(theirs, name) for name in FIELDS
            ]
    assert min(seen) > 300


@given(st.integers(1, 100), st.lists(st.integers(1, 65_535), max_size=60))
@example(1, [500, 500, 500])  # a full cell
def test_no_cell_is_longer_than_its_size_and_c_sees_the_same(library, cell_kb, lengths):
    flow, theirs, cells = LayerFlowState(), FlowInC(), [[]]
    for length in lengths:
        begins = begins_cell(flow, cell_kb, length)
        assert begins == library.c_cell(ctypes.byref(theirs), cell_kb, length)
        if begins:
            cells.append([])
        cells[-1].append(length)
    most = 1000 * cell_kb
    assert all(sum(cell) <= most for cell in cells if len(cell) > 1)
    assert all(sum(cell) + after[0] > most for cell, after in pairwise(cells))


NEAR = st.integers(-3, 3)
ANSWERS = st.tuples(st.just(None), NEAR)
ARRIVALS = st.tuples(NEAR, st.sampled_from([0, 1, 2, 1 << 30]))


@given(
    st.sampled_from([0, 1, 1 << 31, (1 << 32) - 1]),
    st.lists(st.one_of(ANSWERS, ARRIVALS), max_size=40),
)
def test_c_and_python_see_the_same_lost_answers(library, base, events):
    ours, theirs = LayerFlowState(), FlowInC()
    for near, size in events:
        if near is None:
            ack = base + size & 0xFFFFFFFF
            note_answer(ours, ack)
            library.c_answer(ctypes.byref(theirs), ack)
        else:
            seq, end = (base + number & 0xFFFFFFFF for number in (near, near + size))
            shows = shows_lost_answers(ours, seq, end)
            assert shows == bool(library.c_lost(ctypes.byref(theirs), seq, end))
        assert (ours.sent_ack, ours.repeat_seq) == (theirs.sent_ack, theirs.repeat_seq)


def test_c_and_python_take_the_same_layers(library):
    for seed in range(400):
        draw = random.Random(seed)
        layers = draw.randint(1, 63)
        marks = [draw.choice([0, 5, 1000, layer_choice.ALL_MARKED]) for _ in range(64)]
        theirs = (ctypes.c_uint32 * 64)(*marks)
        for _ in range(20):
            layer, echo = draw.randrange(layers), draw.random() < 0.5
            note_echo(marks, layer, echo)
            library.c_note(theirs, layer, echo)
            choice, word = draw.choice(tuple(Choice)), draw.getrandbits(32)
            left = draw.choice([layer, layers, 64])
            taken = next_layer(choice, marks, layers, left, word)
            assert taken == library.c_next(theirs, word, layers, left, choice)
            assert marks == list(theirs)
