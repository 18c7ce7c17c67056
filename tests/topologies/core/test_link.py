import pytest

from weft.topologies.core.link import Gbps, LinkSpec, Mbps, delay_us, rate_bps


def test_units_are_read():
    assert [rate_bps(text) for text in ("20mbit", "1gbit", "800kbit", "9600", "1.5Gbit")] == [
        20 * Mbps, Gbps, 800_000, 9600, 1_500_000_000,
    ]  # fmt: skip
    assert [delay_us(text) for text in ("1ms", "250us", "1s", "0.5ms", "3000ns")] == [
        1000,
        250,
        1_000_000,
        500,
        3,
    ]


@pytest.mark.parametrize(
    "text", ["", "20", "fast", "20mbps", "mbit", "-1mbit", "1..5mbit", "nanbit", "0.3bit"]
)
def test_what_is_no_rate_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^rate: .*(write it as in 20mbit|whole number of bit)$"):
        rate_bps(text)


def test_a_frame_is_a_packet_behind_an_ethernet_header():
    assert LinkSpec(rate_bps=Mbps, queue_packets=1, mtu_bytes=2_000).frame_bytes == 2_000 + 14


@pytest.mark.parametrize("change", [{"rate_bps": 2.5 * Mbps}, {"queue_packets": "100"}])
def test_a_link_has_integers(change):
    (name,) = change
    with pytest.raises(ValueError, match=f"^link: {name} must be an integer, got"):
        LinkSpec(**{"rate_bps": Mbps, "queue_packets": 100, **change})


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("rate_bps", 8_000, 1_000 * Gbps),
        ("queue_packets", 1, 2**32 - 1),
        ("delay_us", 0, 3_600 * 10**6),
        ("trim_packets", 0, 2**20),
        ("header_packets", 1, 2**32 - 1),
        ("hop_ns", 0, 10**9),
        ("loss_ppb", 0, 10**9),
        ("mtu_bytes", 1_500, 9_216),
    ],
)
def test_an_impossible_link_is_refused(name, least, most):
    plain = {"rate_bps": Mbps, "queue_packets": 2**20}
    for value in (least, most):
        assert getattr(LinkSpec(**{**plain, name: value}), name) == value
    with pytest.raises(ValueError, match=f"^link: {name} must be at least {least}, got"):
        LinkSpec(**{**plain, name: least - 1})
    with pytest.raises(ValueError, match=f"^link: {name} must be at most {most}, got"):
        LinkSpec(**{**plain, name: most + 1})
