"""The agent of a machine: it applies its part of a network, watches it, and removes it.

Requests come as lines of JSON on standard input, and answers go to standard output, by ssh for
example.  A request {"do": WORD, ...} is answered by one line, {"error": TEXT} after a failure:

    facts  of this machine: weft's version, its kernel's, MTU and delay of the route to each peer
    apply  make a part by the code of one machine; answer before its daemons start
    start  let them start; answer with the part's digest when they have converged
    beat   the controller is alive, and counts; answer with the peers that are silent, the longest
           pause of this process, and the messages of peers that it dropped

An agent removes its part when its input ends, after GONE_S without a request, or after a line that
is no request.  If it is killed, `weft clean` removes the part by its journal.
"""

from __future__ import annotations

import hashlib
import json
import select
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from weft.testbed.cluster.cut_links import (
    CutLinks,
    one_way_us,
    require_address,
    route_mtu,
    start_pings,
)
from weft.testbed.cluster.leases import GONE_S, Leases, end_with_input, ignore_end_of_input
from weft.testbed.linux import clock
from weft.testbed.linux.process import need_root
from weft.testbed.network import bring_up
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.child_process import real_time
from weft.testbed.plan.network_plan import NetworkPlan, links_from
from weft.testbed.plan.part import part_from
from weft.testbed.runs.run import UNNAMED
from weft.topologies import build
from weft.topologies.core.grammar import quoted, unknown
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import parse

CONTROLLER = "controller"
TURN_S = 0.5  # of the loop, at most
# the stage that waits for all machines: daemons of one would take processors that others may share
START = "read back"
Answer = dict[str, Any]
RequestForm = Mapping[str, type]
# of a beat's answer, what the run's state keeps
NEWS: Answer = {"lost": [], "longest_pause_s": 0.0, "dropped": 0}
NETWORK: RequestForm = {"part": dict, "topology": str, "graph": str}
MADE: RequestForm = {"own_links": dict, "scheme": str, "run": str, "key": str, "options": dict}
WORDS: Mapping[str, RequestForm] = {
    "facts": NETWORK,
    "apply": {**NETWORK, **MADE},
    "start": {},
    "beat": {"count": int},
}
PART: RequestForm = {
    "machine": str,
    "address": str,
    "port": int,
    "nodes": list,
    "links": list,
    "peers": dict,
    "cut": dict,
}


def request_from(line: bytes) -> dict[str, Any]:
    """Return the request of a line.

    Raises:
        ValueError: it is none; one line says why.
    """
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(
            f'agent: a request is a line of JSON such as {{"do": "beat", "count": 1}}, '
            f"got {quoted(line.decode(errors='replace').strip())}"
        ) from None
    checked = _checked(request, {"do": str}, "a request")
    word = checked["do"]
    if word not in WORDS:
        raise ValueError(f"agent: {unknown('request', word, WORDS)}")
    if "part" in _checked(checked, WORDS[word], word):
        _checked(checked["part"], PART, "a part")
    try:
        if word == "apply":
            part_from(checked["part"]), links_from(checked), bytes.fromhex(checked["key"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"agent: apply: {error}") from None
    return checked


def _checked(document: Any, form: RequestForm, name: str) -> dict[str, Any]:
    """Return `document`; ValueError unless it has all keys of `form`, each of its type."""
    for key, kind in form.items():
        if not isinstance(document, dict) or not isinstance(document.get(key), kind):
            raise ValueError(f"agent: {name} needs {key!r} of type {kind.__name__}")
    return dict(document)


def digest(plan: NetworkPlan) -> str:
    """Return a hash of everything that `plan` makes, whatever its run is called."""
    text = "\n".join(replace(plan, run=UNNAMED).text())
    return hashlib.sha256(text.encode()).hexdigest()


def topology_from(request: Mapping[str, Any]) -> Topology:
    """Return the topology of a request: a known family's, or a user's graph that it brings."""
    return _topology(request["topology"], request["graph"])


@cache
def _topology(spec: str, graph: str) -> Topology:
    return parse(graph, suffix=".json", spec=spec) if graph else build(spec)


class Agent:
    """The agent of this process."""

    def __init__(self) -> None:
        # unbuffered: poll() sees every request that waits
        self._requests = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
        self._network: RunningNetwork | None = None
        self._is_made = False
        self._started: Answer = {}
        self._cut_links: CutLinks | None = None

    def serve(self, last: str = "") -> bool:
        """Answer requests until the end of the input, a silent controller, or the request `last`.

        Returns:
            True if `last` arrived, which has no answer yet.

        Raises:
            ValueError: a line is no request.
        """
        poll = select.poll()
        poll.register(0, select.POLLIN)
        leases = Leases(clock.monotonic(), TURN_S)
        leases.renew(CONTROLLER)
        ready: list[int] = []
        while not leases.silent(GONE_S):
            for descriptor in ready:
                if descriptor == 0:
                    line = self._requests.readline()
                    if not line:
                        return False
                    request = request_from(line)
                    if request["do"] == last:
                        return True
                    self._answer(request, poll)
                    leases.renew(CONTROLLER)
                elif self._cut_links:
                    self._cut_links.handle(descriptor)
            leases.turn(clock.monotonic())
            wait_s = self._cut_links.tick() if self._cut_links else TURN_S
            ready = [descriptor for descriptor, _ in poll.poll(max(0.0, wait_s) * 1000)]
        return False

    def _answer(self, request: Mapping[str, Any], poll: select.poll) -> None:
        try:
            match request["do"]:
                case "facts":
                    answer = self._facts(request)
                case "apply":
                    answer = self._apply(request, poll)
                case "start":
                    answer = self._started
                case "beat":
                    answer = self._beat(request["count"])
        except (ValueError, OSError, RuntimeError) as error:
            answer = {"error": f"{error}", "wrong_input": isinstance(error, ValueError)}
        _say(answer)

    def _facts(self, request: Mapping[str, Any]) -> Answer:
        need_root()
        own, peers = request["part"]["address"], request["part"]["peers"]
        require_address(own)
        pings = {name: start_pings(own, peer) for name, peer in peers.items()}
        topology_from(request)  # while packets travel; to apply the part takes it
        return {
            "code": code(),
            "kernel": bring_up.kernel_properties(),
            "mtu_bytes": {name: route_mtu(own, peer) for name, peer in peers.items()},
            "underlay_us": {
                name: one_way_us(pings[name], own, peer) for name, peer in peers.items()
            },
        }

    def _apply(self, request: Mapping[str, Any], poll: select.poll) -> Answer:
        """Make the part of `request`, answer, and return the answer to the request for its start.

        After the same request, only answer.
        """
        if self._is_made:
            return {}
        end_with_input()  # also amid what follows
        key = bytes.fromhex(request["key"])
        network = RunningNetwork.create(
            topology_from(request),
            **links_from(request),
            scheme=request["scheme"],
            name=request["run"],
            part=part_from(request["part"]),
            key=key,
            progress=self._wait_for_start,
            **request["options"],
        )
        self._network = network
        self._cut_links = CutLinks(network, key)
        for descriptor in self._cut_links.descriptors():
            poll.register(descriptor, select.POLLIN)
        real_time(True)  # neighbours of a failed link learn of it by this process
        self._started = {"digest": digest(network.plan), "stages": network.stages}
        return self._started

    def _wait_for_start(self, stage: str) -> None:
        """Answer that the part is made, before START, and serve until the controller starts it."""
        if stage != START:
            return
        self._is_made = True
        _say({})
        if not self.serve(last="start"):
            ignore_end_of_input()
            raise OSError("the controller has ended")

    def _beat(self, count: int) -> Answer:
        links = self._cut_links
        if not links:
            return {"waiting": [], **NEWS}
        links.channel.beat = count
        return {
            "waiting": sorted(links.waiting),
            "lost": sorted(links.lost),
            "longest_pause_s": round(links.leases.longest_pause_s, 1),
            "dropped": links.channel.dropped.total(),
        }

    def end(self) -> None:
        """Remove the part."""
        ignore_end_of_input()
        if self._cut_links:
            self._cut_links.close()
            self._cut_links = None
        if self._network:
            self._network.down()
            self._network = None


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def code() -> str:
    """Return a hash of weft's own files, which must be the same on all machines."""
    folder = Path(__file__).parents[2]
    content = hashlib.sha256()
    for room in ("topologies", "daemons", "testbed"):
        for path in sorted((folder / room).rglob("*.py")):
            content.update(path.read_bytes())
    return content.hexdigest()


def serve() -> None:
    """Be the agent of this machine until its controller ends."""
    agent = Agent()
    try:
        agent.serve()
    finally:
        agent.end()
