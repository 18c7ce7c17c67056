/* What waits in the queue of a device of this packet's namespace, read in place: exact, as the choice needs it.
 *
 * A length that is a little old will not do: if user space polls it every millisecond, all switches run to the same port
 * meanwhile, and DRILL carries 54 % of what links could; with every 100 ms, 25 %.
 */
#pragma once
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define DEVICE_BUCKETS 256 /* of the namespace's table of devices */
#define DEVICES_IN_BUCKET 64
#define QDISCS_IN_BUCKET 8

#ifdef PROBE_READ /* kernels before 6.2 */
#define READ(from, field) BPF_CORE_READ(from, field)
#define VIEW(pointer, type) ((type *)(pointer))
#define CONTEXT(ctx) ((struct sk_buff *)(ctx))
#else
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
extern void *bpf_rdonly_cast(const void *pointer, __u32 type) __ksym;
#define READ(from, field) ((from)->field)
#define VIEW(pointer, type) ((type *)bpf_rdonly_cast((const void *)(pointer), bpf_core_type_id_kernel(type)))
#define CONTEXT(ctx) ((struct sk_buff *)bpf_cast_to_kern_ctx(ctx))
#endif

/* The address of device `ifindex`; 0 if there is none. */
static __always_inline __u64 find_device(struct __sk_buff *ctx, __u32 ifindex)
{
	struct sk_buff *skb = CONTEXT(ctx);
	struct net_device *in = READ(skb, dev);
	struct net *net = READ(in, nd_net.net);
	struct hlist_head *bucket = READ(net, dev_index_head) + (ifindex & (DEVICE_BUCKETS - 1));
	struct hlist_node *node = READ(VIEW(bucket, struct hlist_head), first);

	for (int i = 0; i < DEVICES_IN_BUCKET && node; i++) {
		struct net_device *device =
			VIEW((void *)node - bpf_core_field_offset(struct net_device, index_hlist), struct net_device);

		if ((__u32)READ(device, ifindex) == ifindex)
			return (__u64)device;
		node = READ(node, next);
	}
	return 0;
}

/* Packets, or bytes, in the root queue of the device that was found at an address, if it is still there. */
static __always_inline __u32 queue_of(__u64 address, __u32 ifindex, __u32 in_bytes, int *found)
{
	struct net_device *device = VIEW(address, struct net_device);
	struct netdev_queue *queue;
	struct Qdisc *qdisc;

	*found = address && (__u32)READ(device, ifindex) == ifindex;
	if (!*found)
		return 0;
	queue = VIEW(READ(device, _tx), struct netdev_queue);
	qdisc = READ(queue, qdisc);
	return in_bytes ? READ(qdisc, qstats.backlog) : READ(qdisc, q.qlen);
}

/* The address of the queueing discipline `handle` below the root of the device at an address; 0 if there is none. */
static __always_inline __u64 find_queue(__u64 address, __u32 handle)
{
	const void *buckets = (const void *)address + bpf_core_field_offset(struct net_device, qdisc_hash);

	if (!address || !bpf_core_field_exists(struct net_device, qdisc_hash))
		return 0;
	for (int bucket = 0; bucket < QDISC_BUCKETS; bucket++) {
		const struct hlist_head *head = buckets + bucket * sizeof(struct hlist_head);
		struct hlist_node *node = READ(VIEW(head, struct hlist_head), first);

		for (int i = 0; i < QDISCS_IN_BUCKET && node; i++) {
			struct Qdisc *qdisc =
				VIEW((void *)node - bpf_core_field_offset(struct Qdisc, hash), struct Qdisc);

			if (READ(qdisc, handle) == handle)
				return (__u64)qdisc;
			node = READ(node, next);
		}
	}
	return 0;
}

/* Bytes that wait in the queueing discipline that was found at an address, if it is still device `ifindex`'s. */
static __always_inline __u32 bytes_in(__u64 address, __u32 handle, __u32 ifindex, int *found)
{
	struct Qdisc *qdisc = VIEW(address, struct Qdisc);
	struct netdev_queue *queue;
	struct net_device *device;

	*found = 0;
	if (!address || READ(qdisc, handle) != handle)
		return 0;
	queue = VIEW(READ(qdisc, dev_queue), struct netdev_queue);
	device = VIEW(READ(queue, dev), struct net_device);
	*found = (__u32)READ(device, ifindex) == ifindex;
	return READ(qdisc, qstats.backlog);
}
