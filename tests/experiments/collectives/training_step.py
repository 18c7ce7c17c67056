"""Write the trace `training-step`: python -m tests.experiments.collectives.training_step.

Each of 16 workers computes its loss, then the gradients of four groups of layers.  The gradients of
a group are all-reduced while those of the next are computed, one all-reduce after the other.
"""

from __future__ import annotations

from weft.experiments.collectives.collectives import TRACES
from weft.testbed.schedules import goal
from weft.testbed.schedules.collectives import collective
from weft.testbed.schedules.goal import Kind, Operation, Schedule

WORKERS, GROUPS, GROUP_BYTES = 16, 4, 1 << 19
LOSS_NS, GRADIENTS_NS, UPDATE_NS = 1_000_000, 600_000, 100_000


def training_step() -> Schedule:
    """Return the schedule of one step."""
    reduction = collective("all-reduce", "rabenseifner", WORKERS, GROUP_BYTES)
    return [worker(own) for own in reduction]


def worker(reduction: list[Operation]) -> list[Operation]:
    """Return the operations of a worker, from its own of one all-reduce."""
    waited_for = {number for operation in reduction for number in operation.requires}
    last = [number for number in range(len(reduction)) if number not in waited_for]
    operations = [Operation(Kind.CALC, LOSS_NS)]
    computed, reduced = 0, []
    for group in range(GROUPS):
        operations.append(Operation(Kind.CALC, GRADIENTS_NS, requires=(computed,)))
        computed = len(operations) - 1
        first = len(operations)
        for operation in reduction:
            earlier = tuple(first + number for number in operation.requires)
            requires = earlier or (computed, *reduced)
            own = operation._replace(tag=group, requires=requires, begins_after=())
            operations.append(own)
        reduced = [first + number for number in last]
    operations.append(Operation(Kind.CALC, UPDATE_NS, requires=(computed, *reduced)))
    return operations


if __name__ == "__main__":
    TRACES["training-step"].write_text(goal.written(training_step()))
