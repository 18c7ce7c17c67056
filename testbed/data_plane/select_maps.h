/* What the data plane's program and user space share: select.bpf.c reads it, testbed/data_plane/ writes it.
 *
 * Python's side of each struct is in testbed/data_plane/plane_records.py; a test compares the two field by field.
 */
#pragma once

#define CANDIDATES 64 /* in a group, a power of two */
#define CACHE_BITS 10 /* of a destination, for each switch */
#define GROUP_BITS 20
#define GENERATION_BITS 12

struct port {
	__u32 switch_number; /* of the switch it belongs to, + 1; 0: of none */
	__u16 addresses[6];  /* the first 12 bytes of a frame sent here: the peer's address, our own */
	__u64 device;	     /* where its device was found; the program remembers it here */
	__u32 number;	     /* within its switch */
	__u32 turn;	     /* of the link group whose first port this is (LBSP) */
	__u64 data_queue;    /* where its queue of data was found; the program remembers it here, too */
	__u32 trim_bytes;    /* that this queue may hold, beyond which packets are trimmed; 0: never */
	__u32 trimmed_as;    /* the code point of packets that are trimmed here */
};

struct prefix {
	__u32 length; /* 32 for the switch, and that of the address */
	__u32 switch_number;
	__be32 address;
};

/* All CANDIDATES places are filled, the n first ones again and again, so that a packet that meets a group while it is
 * being written finds a port of the old or of the new one. */
struct group {
	__u32 n;
	__u32 ports[CANDIDATES]; /* interface indexes; a port that is named twice gets twice as much */
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

#define ANY_PROTOCOL 256 /* no packet's */

/* DAR: a flow at one switch, all in network order; or, from source 0 by ANY_PROTOCOL, where those that hosts of this
 * switch send to one destination go together. */
struct flow_key {
	__be32 switch_number;
	__be32 source, destination;
	__be32 protocol;
	__be32 ports; /* source and destination port, 0 where the protocol has none */
};

/* port: an interface index.  Of a flow that a host of this switch sends, the port that it leaves by, which user space
 * may change; of any other, the port by which it came last, which the program writes.  The entry of a destination has
 * only a port, when it was made in last_ns, and when user space changed it in moved_ns. */
struct flow_entry {
	__u64 last_ns;	 /* when data came last */
	__u64 moved_ns;	 /* when `port` changed; 0: never */
	__u64 queued_ns; /* when a packet found as much waiting as calls for another way; 0: never */
	__u64 bytes;	 /* of data since it is here */
	__u32 port;
	__u32 sequence; /* of TCP that comes in: the furthest number that was seen, which is not told */
};

/* A flow that is not in the table yet, the one of its slot that sends most. */
struct young_flow {
	__u32 hash;
	__u32 bytes;
};

struct counters {
	__u64 packets;
	__u64 bytes;
	__u64 moved; /* by TTC, away from their default */
	__u64 marked;
	__u64 bypassed; /* arrived here and took the kernel's route instead of the rule's */
	__u64 trimmed;
};

#define MAP(name, kind, entries, key_type, value_type)      \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_##kind);          \
		__uint(max_entries, entries);               \
		__type(key, key_type);                      \
		__type(value, value_type);                  \
	} name SEC(".maps")

/* data_plane.py sets the number of entries.  It writes ports and switches; routes, groups and generations are written by
 * whoever routes, mostly a daemon for each switch (plane_tables.py). */
MAP(ports, ARRAY, 1, __u32, struct port);
MAP(switches, ARRAY, 1, __u32, struct switch_);
MAP(generations, ARRAY, 1, __u32, __u32); /* of a switch's routes, below 4096: what the cache holds of another is void */
MAP(wants, ARRAY, 1, __u32, __u32);  /* LBSP: the state that a switch's queues call for; the program writes it */
MAP(states, ARRAY, 1, __u32, __u32); /* and the one that it is in; its daemon does */
MAP(groups, ARRAY, 1, __u32, struct group);
MAP(memories, ARRAY, 1, __u32, struct memory);
MAP(cache, ARRAY, 1, __u32, __u64);
MAP(counted, PERCPU_ARRAY, 1, __u32, struct counters);
MAP(flowlets, ARRAY, 1, __u32, struct flowlet_entry); /* as many for each switch, a power of two */
MAP(young, ARRAY, 1, __u32, struct young_flow);	      /* the same */
MAP(flows, HASH, 1, struct flow_key, struct flow_entry);
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} routes SEC(".maps");
