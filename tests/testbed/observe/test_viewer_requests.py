from types import SimpleNamespace
from typing import Any, cast

import pytest

from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.viewer_requests import Actions
from weft.topologies import build


@pytest.mark.kernel
def test_paths_of_a_pair_have_shares_that_follow_failed_links():
    network = RunningNetwork.create(build("fattree:k=4"), None, scheme="ecmp")
    try:
        actions = Actions(network)

        def paths():
            reply = actions.do({"do": "path", "src": "h0", "dst": "h15"})
            cores = [
                next(node for node in path["nodes"] if node[0] == "c") for path in reply["paths"]
            ]
            return dict(zip(cores, (path["share"] for path in reply["paths"]), strict=True))

        assert paths() == {"c0": 0.25, "c1": 0.25, "c2": 0.25, "c3": 0.25}
        assert actions.do({"do": "fail", "what": "a0.0-c0", "silent": True}) == {}
        assert paths() == {"c1": 0.25, "c2": 0.5, "c3": 0.25}
        assert "paths" not in actions.do({"do": "path", "src": "h0", "dst": "h1"})
        assert "paths" not in actions.do({"do": "path", "src": "h0", "dst": "e3.1"})
    finally:
        network.down()


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "degrade", "link": True, "rate": "1mbit"},
        {"do": "fail", "what": "h0-r0", "silent": "yes"},
        {"do": ["fail"], "what": "h0-r0"},
        {"do": "fail", "what": {}},
    ],
)
def test_an_argument_of_another_type_is_refused_and_ends_no_view(request_: dict[str, Any]) -> None:
    network = SimpleNamespace(topology=build("star:n=2"), change_scheme=None)
    reply = Actions(cast(RunningNetwork, network)).do(request_)
    assert reply["error"].startswith("unknown request; known are fail, ")
