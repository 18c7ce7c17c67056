/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Dequeue times of busy links, and sizes of packets.
 *
 * A busy link takes bytes / rate to send.  HTB may run ahead by its burst, and catches up late packets.  So the program
 * compares windows of one burst of bytes with bytes / rate.  It cuts windows from periods in which every dequeue leaves a
 * backlog, after the first burst, and counts them by elapsed time / ideal time.  Sent bytes are the queue's own counter,
 * because a program misses some dequeues, for example those that interrupt it; after a missed one a new period begins.
 *
 * queues.py writes the devices of the run and reads the counters.
 */
#include "../data_plane/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define BUCKETS 512 /* of the ratio elapsed / ideal, the last for all above */
#define BUCKETS_PER_1 200 /* so a bucket is 0.5 % of the ideal */
#define QUEUED_PRIORITY 0x10010 /* as in tc.py */

enum { IDLE, BURST, BUSY };

struct port {
	/* set by queues.py */
	__u64 bytes_per_s;
	__u32 window_bytes;
	__u32 burst_bytes; /* what may leave ahead of the rate after an idle time */
	__u32 frame_bytes; /* longest packet that is one */
	__u32 netns; /* inode of its namespace: networks made elsewhere may use the same interface indexes */
	/* between dequeues */
	__u32 state;
	__u32 unused;
	__u64 seen; /* packets that the queue had sent by the last dequeue seen */
	__u64 sent; /* bytes that it had sent when the window, or the burst, began */
	__u64 begin_ns; /* of the window */
	/* counted */
	__u64 packets;
	__u64 missed;
	__u64 oversize;
	__u64 elapsed_ns;
	__u64 ideal_ns;
	__u32 longest_bytes;
	__u32 worst_ns; /* by which a window was early or late */
	__u32 histogram[BUCKETS];
};

_Static_assert(sizeof(struct port) == 104 + 4 * BUCKETS, "dequeue_gaps.VALUE");

struct sent {
	__u64 bytes, packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32); /* interface index */
	__type(value, struct port);
} ports SEC(".maps");

const volatile __u32 slot; /* interface indexes of the run: slot << 16 and what follows */
/* UDP port of the routing daemons, whose packets go ahead of the queue */
const volatile __u32 control_port;

/* As in tc.py, control_first(): IPv4 without options, no fragment, TTL 255, UDP to the daemons' port.  A packet that
 * its daemon lets wait in the queue is none. */
static __always_inline int is_control(struct sk_buff *skb)
{
	struct {
		__u8 version, tos;
		__be16 length, id, fragment;
		__u8 ttl, protocol;
		__u8 rest[10]; /* checksum, addresses */
		__be16 source, destination;
	} ip;

	if (skb->protocol != bpf_htons(0x0800) || skb->priority == QUEUED_PRIORITY)
		return 0;
	if (bpf_probe_read_kernel(&ip, sizeof(ip), skb->head + skb->network_header))
		return 0;
	return ip.version == 0x45 && !(ip.fragment & bpf_htons(0xbfff)) && ip.ttl == 255 &&
	       ip.protocol == 17 && ip.destination == bpf_htons(control_port);
}

static __always_inline void count(struct port *p, __u64 bytes, __u64 elapsed)
{
	__u64 ideal = bytes * 1000000000ULL / (p->bytes_per_s ?: 1);
	__u64 bucket = elapsed * BUCKETS_PER_1 / (ideal ?: 1);
	__u64 off = elapsed > ideal ? elapsed - ideal : ideal - elapsed;

	if (bucket >= BUCKETS)
		bucket = BUCKETS - 1;
	if (off > 0xffffffff)
		off = 0xffffffff;
	if (off > p->worst_ns)
		p->worst_ns = off;
	p->histogram[bucket]++;
	p->elapsed_ns += elapsed;
	p->ideal_ns += ideal;
}

/* A packet leaves now; `before`: what its queue had sent until then.  The time since the last packet is that packet's. */
static __always_inline void leave(struct port *p, __u64 before)
{
	__u64 bytes = before - p->sent, now = bpf_ktime_get_ns();

	if (p->state == BUSY && bytes >= p->window_bytes)
		count(p, bytes, now - p->begin_ns);
	else if (p->state == BURST && bytes >= p->burst_bytes)
		p->state = BUSY;
	else if (p->state == IDLE)
		p->state = BURST;
	else
		return;
	p->sent = before;
	p->begin_ns = now;
}

/* Runs under the lock of the queue: no other processor changes the device's entry. */
SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(dequeue, struct Qdisc *qdisc, struct netdev_queue *txq, int packets,
	     struct sk_buff *skb)
{
	struct sent sent;
	struct port *p;
	__u32 index;

	if (!skb)
		return 0;
	index = txq->dev->ifindex;
	if (index >> 16 != slot)
		return 0;
	p = bpf_map_lookup_elem(&ports, &index);
	if (!p || txq->dev->nd_net.net->ns.inum != p->netns ||
	    bpf_probe_read_kernel(&sent, sizeof(sent), &qdisc->bstats))
		return 0;
	if (p->seen && sent.packets - p->seen != 1) {
		p->missed += sent.packets - p->seen - 1;
		p->state = IDLE;
	}
	p->seen = sent.packets;
	p->packets++;
	if (skb->len > p->longest_bytes)
		p->longest_bytes = skb->len;
	if (skb->len > p->frame_bytes)
		p->oversize++;
	if (is_control(skb))
		p->sent += skb->len; /* not charged to the rate */
	else
		leave(p, sent.bytes - skb->len);
	if (!qdisc->q.qlen)
		p->state = IDLE;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
