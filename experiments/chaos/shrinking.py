"""A campaign made smaller as long as it still fails: delta debugging (Zeller and Hildebrandt, IEEE
TSE 28 (2), 2002).

First events are left out, halves, then quarters and so on, until none can be; then the times
between those that are left become shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.experiments.chaos.campaign import Campaign, FaultEvent

SHORTER = (0.0, 0.1, 0.5)  # what is tried of the time between two events


def shrink(
    campaign: Campaign, fails: Callable[[Campaign], bool], *, most_tries: int = 400
) -> Campaign:
    """A smaller campaign of which `fails` is true, as it is of `campaign`; at most so many are
    tried.
    """
    tries = 0

    def still(events: Sequence[FaultEvent]) -> bool:
        nonlocal tries
        tries += 1
        return tries <= most_tries and fails(replace(campaign, events=tuple(events)))

    return replace(campaign, events=tuple(shortened(fewer(campaign.events, still), still)))


def fewer(
    events: Sequence[FaultEvent], still: Callable[[Sequence[FaultEvent]], bool]
) -> Sequence[FaultEvent]:
    """Those of `events` none of which can be left out alone (ddmin, on complements)."""
    if still(()):
        return ()
    parts = 2
    while len(events) > 1:
        size = -(-len(events) // parts)
        for begin in range(0, len(events), size):
            rest = [*events[:begin], *events[begin + size :]]
            if still(rest):
                events, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(events))
    return events


def shortened(
    events: Sequence[FaultEvent], still: Callable[[Sequence[FaultEvent]], bool]
) -> Sequence[FaultEvent]:
    """`events` with as little time between them as will do."""
    for at in range(len(events)):
        before_s = events[at - 1].at_s if at else 0.0
        for fraction in SHORTER:
            less_s = (events[at].at_s - before_s) * (1 - fraction)
            if less_s <= 0:
                continue
            sooner = [replace(each, at_s=round(each.at_s - less_s, 6)) for each in events[at:]]
            if still(tried := [*events[:at], *sooner]):
                events = tried
                break
    return events
