/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Structures and maps that select.bpf.c shares with user space, which is testbed/data_plane/.
 *
 * plane_program.py has each structure in Python; a test compares the two field by field.
 */
#pragma once
#include "packet.h"

#define CANDIDATES 64 /* in a group, a power of two */
#define CACHE_BITS 10 /* of the slot of a destination, for each switch */
#define GROUP_BITS 20
#define GENERATION_BITS 12

struct port {
	__u32 switch_number; /* of its switch, + 1; 0: no port of a switch */
	__u16 addresses[6]; /* first 12 bytes of a frame sent here: the peer's address, our own */
	__u32 number; /* within its switch */
	__u32 turn; /* of the link group whose first port this is (LBSP) */
	__u32 trim_bytes; /* of waiting data, above which packets are trimmed; 0: never */
	__u32 trimmed_as; /* code point of packets trimmed here */
};

struct prefix {
	__u32 length; /* of the address, + 32 for the switch */
	__u32 switch_number;
	__be32 address;
};

/* All CANDIDATES slots are filled: the first n repeat.  A packet that meets a group while it is
 * written finds a port of the old or of the new group. */
struct group {
	__u32 n;
	__u32 ports[CANDIDATES]; /* interface indexes; a port listed twice gets twice the share */
};

struct memory {
	__u32 turn;
	__u32 winner; /* + 1 */
};

struct flowlet_entry {
	__u64 last_ns;
	__u32 candidate;
	__u32 unused;
};

#define ANY_PROTOCOL 256 /* of no packet */

/* DAR: a flow at one switch, all fields in network order.  With source 0 and ANY_PROTOCOL: all
 * flows from hosts of this switch to one destination, which go together. */
struct flow_key {
	__be32 switch_number;
	__be32 source;
	__be32 destination;
	__be32 protocol;
	__be32 ports; /* source and destination port; 0 for a protocol without ports */
};

/* port: an interface index.  For a flow from a host of this switch: the output port, which user
 * space may change.  For any other flow: the last input port, which the program writes.  The entry
 * of a destination has only a port, its creation in last_ns and user space's change in moved_ns. */
struct flow_entry {
	__u64 last_ns; /* last packet with data */
	__u64 moved_ns; /* last change of `port`; 0: never */
	__u64 queued_ns; /* last report of the flow by a spine (struct long_queue); 0: never */
	__u64 bytes; /* of data since the entry exists */
	__u32 port;
	__u32 sequence; /* highest TCP sequence number of an incoming flow; private to the program
			 */
};

/* Report of a packet that joined a queue beyond the threshold (DAR, section 4). */
struct long_queue {
	struct flow_key flow;
	__u32 port; /* the flow's, as in struct flow_entry */
};

/* A flow that is not in the table yet: of the flows that share a slot, the one with most data. */
struct recent_flow {
	__u32 hash;
	__u32 bytes;
};

struct counters {
	__u64 packets;
	__u64 bytes;
	__u64 moved; /* by TTC away from their default, by UGAL or Valiant to a detour */
	__u64 marked;
	__u64 bypassed; /* arrived here and took the kernel's route instead of the rule's */
	__u64 trimmed;
	__u64 untrimmed; /* could not be trimmed */
};

/* data_plane.py sets the number of entries and writes ports and switches.  Routes, groups and
 * generations are written by the routing process, mostly one daemon per switch (plane_tables.py).
 */
MAP(ports, ARRAY, 1, 0, __u32, struct port);
MAP(switches, ARRAY, 1, 0, __u32, struct switch_);
/* of a switch's routes, below 4096; entries of `cache` with another generation are invalid */
MAP(generations, ARRAY, 1, 0, __u32, __u32);
MAP(routes, LPM_TRIE, 1, BPF_F_NO_PREALLOC, struct prefix, __u32);
MAP(groups, ARRAY, 1, 0, __u32, struct group);
MAP(memories, ARRAY, 1, 0, __u32, struct memory);
MAP(cache, ARRAY, 1, 0, __u32, __u64);
MAP(counted, PERCPU_ARRAY, 1, 0, __u32, struct counters);
/* hops from switch a to switch b at a * switches + b, of a network whose switches all have hosts */
MAP(distances, ARRAY, 1, 0, __u32, __u8);
/* LBSP: the state that a switch's queues call for, written here, and the state it is in, written by
 * its daemon */
MAP(pending_states, ARRAY, 1, 0, __u32, __u32);
MAP(states, ARRAY, 1, 0, __u32, __u32);
/* equally many for each switch, a power of two */
MAP(flowlets, ARRAY, 1, 0, __u32, struct flowlet_entry);
MAP(recent_flows, ARRAY, 1, 0, __u32, struct recent_flow);
MAP(flows, HASH, 1, 0, struct flow_key, struct flow_entry);
/* DAR: by switch, the ring of its reports; none for a switch that makes none.  plane_tables.py makes
 * the rings, larger than a page of any machine */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 1 << 16);
		});
} long_queues SEC(".maps");
