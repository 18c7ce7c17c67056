"""wait_until() under its former name."""

from testbed.linux.clock import wait_until as wait_until
