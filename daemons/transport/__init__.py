"""The purified transport as messages, parameters and results.

It is that of FatPaths, section III-C, after NDP (Handley et al., SIGCOMM 2017).

Switches cut the payload off what their short queues cannot hold, and send on the header ahead of
everything else.  So a receiver learns of every packet that was sent to it, and takes the sender's
place in pacing: it pulls packets at the rate of its own link, fairly among senders.  Senders begin
with a window of packets at the rate of theirs.

No routing: an endpoint is a program on a host, beside whatever routes.
testbed/traffic/ndp_machine.c is the state machine.  tests/daemons/transport/ has the same in
Python, slow and plain, and tests hold the two equal, packet by packet.
"""
