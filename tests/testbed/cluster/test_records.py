"""Messages of another machine are records, whatever bytes it sends."""

import os
import pickle
import struct
from argparse import Namespace
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from weft.testbed.cluster.measures import RECORDS, Failure, Measures, receive
from weft.testbed.linux import clock
from weft.testbed.measure.outage import Gap, Outage
from weft.testbed.measure.ping import Ping, ProbeBatch
from weft.testbed.traffic.flow_results import Flow
from weft.testbed.traffic.flows import FlowOptions
from weft.topologies.core.link import LinkSpec

LINK = LinkSpec(rate_bps=8000, queue_packets=1)


def text(words: str) -> bytes:
    """Return the instruction that puts `words` on the reader's stack."""
    return b"\x8c" + bytes([len(words)]) + words.encode()


def named(module: str, name: str) -> bytes:
    """Return the instructions that put the class of a module on the stack."""
    return text(module) + text(name) + b"\x93"


FLOW = named(Flow.__module__, "Flow")
SLOTS = b"N}" + text("size_bytes") + text("ours") + b"s\x86"  # attributes for setattr()
FIELDS = b"}" + text("size_bytes") + text("ours") + b"s"


@pytest.mark.parametrize(
    "hostile",
    [
        os.system,
        Path,
        partial(print, 1),
        clock.wait_until,
        ProbeBatch,
        Namespace(),
        ValueError,
        LINK,
    ],
)
def test_a_message_of_another_machine_can_only_be_records(hostile):
    near, far = Pipe()
    row = Flow(0.0, 1, 2, 3)
    near.send(("flows", ([row], FlowOptions(deadline_s=1, congestion_control="cubic")), {}))
    assert receive(far)[1][0] == [row]
    near.send(("ping", (hostile,), {}))
    with pytest.raises(pickle.UnpicklingError, match="is no record"):
        receive(far)


def test_a_name_that_leads_out_of_its_module_is_no_record():
    near, far = Pipe()
    near.send_bytes(b"\x80\x04\x8c\x1dweft.testbed.cluster.measures\x8c\x0bPath.unlink\x93.")
    with pytest.raises(pickle.UnpicklingError, match=r"Path\.unlink is no record"):
        receive(far)
    for damaged in (b"\x80\x04\x8c\x1eweft\x8c", b"\x80\x04\x8c\x01\xff."):
        near.send_bytes(damaged)
        with pytest.raises(pickle.UnpicklingError):
            receive(far)


@pytest.mark.parametrize(
    "message",
    [
        FLOW + SLOTS + b"b.",
        FLOW + FIELDS + b"b.",
        FLOW + b"\x94" + SLOTS + b"b0h\x00.",  # remembered, and read again
        b"]" + FIELDS + b"b.",
        FLOW + b"(" + text("ours") + b"e.",  # it has no extend() or append()
    ],
)
def test_a_message_changes_no_class(message):
    near, far = Pipe()
    before = dict(vars(Flow))
    near.send_bytes(b"\x80\x04" + message)
    with pytest.raises(pickle.UnpicklingError, match=r"is no record|a damaged message"):
        receive(far)
    assert vars(Flow) == before


@pytest.mark.parametrize("bytes_to_come", [(1 << 30) + 1, 1 << 62])
def test_a_message_has_no_more_than_a_gibibyte(bytes_to_come):
    """The length precedes a message, by multiprocessing.connection; none of it needs to come."""
    near, far = Pipe()
    os.write(near.fileno(), struct.pack("!iQ", -1, bytes_to_come))
    with pytest.raises(pickle.UnpicklingError, match="a message of more than 1024 MiB"):
        receive(far)


def test_records_arrive_as_they_are():
    near, far = Pipe()
    ping, outage = Ping(0, 1, sent=2), Outage(0, 1, 2, 3, (Gap(0.5, None, 4),))
    near.send([ping, outage, {"n": (b"data", 1e400)}])
    assert receive(far) == [ping, outage, {"n": (b"data", 1e400)}]


def classes_in(hint):
    """Yield the classes of weft in the type of a field."""
    if getattr(hint, "__module__", "").startswith("weft."):
        yield hint
    for part in get_args(hint):
        yield from () if isinstance(part, list) else classes_in(part)


def test_a_record_has_fields_of_records():
    hints = [hint for record in RECORDS.values() for hint in get_type_hints(record).values()]
    assert {kind for hint in hints for kind in classes_in(hint)} <= {*RECORDS.values()}


@pytest.mark.parametrize("kind", ["SystemExit", "", ["OSError"]])
def test_a_failure_of_an_unknown_kind_is_one_of_the_system(kind):
    near, far = Pipe()
    measures = Measures.__new__(Measures)
    measures._peers, measures.run = [far], SimpleNamespace(parts=[])
    near.send(Failure(kind, "no"))
    error = measures._receive(0)
    assert (type(error), str(error)) == (OSError, "no")
