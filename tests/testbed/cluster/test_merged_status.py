"""The status of the machines of a network as one."""

from weft.testbed.cluster.spread_run import _merged


def test_counts_are_added_rows_are_joined_and_words_are_those_of_the_first():
    first = {"scheme": "dr", "live": True, "routes": {"sent": 3, "h0": 1}, "nodes": ["h0"]}
    other = {"scheme": "dr", "live": True, "routes": {"sent": 4, "h1": 2}, "nodes": ["h1", "h2"]}
    assert _merged([first, None, other]) == {
        "scheme": "dr",
        "live": True,
        "routes": {"sent": 7, "h0": 1, "h1": 2},
        "nodes": ["h0", "h1", "h2"],
    }
    assert _merged([None, None]) is None
