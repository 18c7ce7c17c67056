"""Checks of every codec of messages: garbage is Garbage, and nothing else is."""

from types import ModuleType

import pytest
from hypothesis import strategies as some

from weft.daemons.core import wire


def requires_its_length(codec: ModuleType, payload: bytes, data: some.DataObject) -> None:
    """A message that is cut anywhere, or longer by a byte, is Garbage."""
    cut = data.draw(some.integers(0, len(payload) - 1))
    for wrong in (payload[:cut], payload + b"\0"):
        with pytest.raises(wire.MalformedMessage):
            codec.decode(wrong)


def takes_anything(codec: ModuleType, payload: bytes) -> None:
    """Any bytes are Garbage, another scheme's message, or one of the codec's, which encodes to
    them."""
    try:
        message = codec.decode(payload)
    except wire.MalformedMessage:
        return
    assert message is None or codec.encode(message) == payload
