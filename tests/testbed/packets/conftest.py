"""The library of simulated packets with checks of the compiler."""

from tests.testbed.traffic.conftest import compiled as compiled
