/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Time that each queue spends at each length.
 *
 * Every enqueue and dequeue adds the time since the last one to the length that ends.  It runs under the queue's lock, so
 * no other processor changes the device's entry.
 */
#include "../data_plane/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define LENGTHS 256 /* the last for that and more */

struct queue {
	__u64 since_ns; /* when the queue became this long; 0 before the first event */
	__u32 length;
	__u32 longest;
	__u64 spent_ns[LENGTHS];
};

_Static_assert(sizeof(struct queue) == 16 + 8 * LENGTHS, "occupancy.QUEUE");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* queues.py sets it: the run's interface indexes, less the slot */
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

const volatile __u32 slot; /* interface indexes of the run: slot << 16 and what follows */

static __always_inline void changed(const struct Qdisc *qdisc, const struct netdev_queue *txq)
{
	__u32 index = txq->dev->ifindex, length = qdisc->q.qlen, before;
	__u64 now = bpf_ktime_get_ns();
	struct queue *queue;

	if (index >> 16 != slot)
		return;
	index &= 0xffff;
	queue = bpf_map_lookup_elem(&queues, &index);
	if (!queue)
		return;
	before = queue->length < LENGTHS ? queue->length : LENGTHS - 1;
	if (queue->since_ns)
		queue->spent_ns[before] += now - queue->since_ns;
	queue->since_ns = now;
	queue->length = length;
	if (length > queue->longest)
		queue->longest = length;
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(enqueue, struct Qdisc *qdisc, struct netdev_queue *txq, struct sk_buff *skb)
{
	changed(qdisc, txq);
	return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(dequeue, struct Qdisc *qdisc, struct netdev_queue *txq, int packets,
	     struct sk_buff *skb)
{
	if (skb)
		changed(qdisc, txq);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
