"""The agent of a machine: it applies its part of a network, watches it, and removes it.

Requests come as lines of JSON on standard input, and answers go to standard output, by ssh for
example.  A request {"do": WORD, ...} is answered by one line, {"error": TEXT} after a failure:

    facts  of this machine: weft's version, its kernel's, MTU and delay of the route to each peer
    apply  make a part by the code of one machine; answer before its daemons start
    start  let them start; answer with the part's digest when they have converged
    beat   the controller is alive; answer with the peers that are silent

An agent removes its part when its input ends, or after CONTROLLER_S without a request.  If it is
killed, `weft clean` removes the part by its journal.
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

from weft.testbed.cluster.cut_links import CutLinks, one_way_us, route_mtu, start_pings
from weft.testbed.cluster.end_of_input import end_with_input, ignore_end_of_input
from weft.testbed.linux import clock
from weft.testbed.linux.process import need_root
from weft.testbed.network import bring_up
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.child_process import real_time
from weft.testbed.plan.network_plan import NetworkPlan, links_from
from weft.testbed.plan.part import part_from
from weft.testbed.runs.run import UNNAMED
from weft.topologies import build
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import parse

CONTROLLER_S = 10.0
# the stage that waits for all machines: daemons of one would take processors that others may share
START = "read back"
Answer = dict[str, Any]


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
        """
        poll = select.poll()
        poll.register(0, select.POLLIN)
        heard_s = clock.monotonic()
        ready = [0]
        while True:
            now_s = clock.monotonic()
            for descriptor in ready:
                if descriptor == 0:
                    line = self._requests.readline()
                    if not line:
                        return False
                    request = json.loads(line)
                    if request["do"] == last:
                        return True
                    self._answer(request, poll)
                    heard_s = now_s = clock.monotonic()
                elif self._cut_links:
                    self._cut_links.handle(descriptor)
            if now_s - heard_s > CONTROLLER_S:
                return False
            wait_s = CONTROLLER_S
            if self._cut_links:
                if now_s >= self._cut_links.deadline:
                    self._cut_links.tick(now_s)
                wait_s = self._cut_links.deadline - clock.monotonic()
            ready = [descriptor for descriptor, _ in poll.poll(max(0.0, wait_s) * 1000)]

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
                    answer = self._beat()
                case word:
                    answer = {"error": f"no request {word!r}"}
        except (ValueError, OSError, RuntimeError) as error:
            answer = {"error": f"{error}"}
        _say(answer)

    def _facts(self, request: Mapping[str, Any]) -> Answer:
        need_root()
        own, peers = request["part"]["address"], request["part"]["peers"]
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

    def _beat(self) -> Answer:
        links = self._cut_links
        waiting, lost = (sorted(links.waiting), sorted(links.lost)) if links else ([], [])
        return {"waiting": waiting, "lost": lost}

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
    end_with_input()
    agent = Agent()
    try:
        agent.serve()
    finally:
        agent.end()
