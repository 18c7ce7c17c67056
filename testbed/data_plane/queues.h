/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Lengths of the queues of devices in this packet's namespace, read in place.
 *
 * An exact length is necessary.  If user space polls lengths every millisecond, all switches choose
 * the same port meanwhile, and DRILL carries 54 % of the links' capacity; every 100 ms, 25 %.
 *
 * No address is remembered from one packet to the next.  tc runs a program in a read-side critical
 * section of RCU, so what the walk from the packet reaches is not freed before the program ends.
 */
#pragma once
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>

#define DEVICE_BUCKETS 256 /* of a namespace's table of devices */
#define DEVICES_IN_BUCKET 64
#define QDISCS_IN_BUCKET 8
#define GOLDEN_RATIO 0x61c88647u /* of the kernel's hash_32() */

#ifdef PROBE_READ /* kernels before 6.2 */
#define READ(from, field) BPF_CORE_READ(from, field)
#define VIEW(pointer, type) ((type *)(pointer))
#define CONTEXT(ctx) ((struct sk_buff *)(ctx))
#else
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
extern void *bpf_rdonly_cast(const void *pointer, __u32 type) __ksym;
#define READ(from, field) ((from)->field)
#define VIEW(pointer, type)                                                                        \
	((type *)bpf_rdonly_cast((const void *)(pointer), bpf_core_type_id_kernel(type)))
#define CONTEXT(ctx) ((struct sk_buff *)bpf_cast_to_kern_ctx(ctx))
#endif

#define CONTAINER(node, type, member)                                                              \
	VIEW((void *)(node) - bpf_core_field_offset(type, member), type)

/* Return the device `ifindex`, 0 if there is none. */
static __always_inline struct net_device *find_device(struct __sk_buff *ctx, __u32 ifindex)
{
	struct net_device *input = READ(CONTEXT(ctx), dev);
	struct net *net = READ(input, nd_net.net);
	struct hlist_head *bucket = READ(net, dev_index_head) + (ifindex & (DEVICE_BUCKETS - 1));
	struct hlist_node *node = READ(VIEW(bucket, struct hlist_head), first);

	for (int i = 0; i < DEVICES_IN_BUCKET && node; i++) {
		struct net_device *device = CONTAINER(node, struct net_device, index_hlist);

		if ((__u32)READ(device, ifindex) == ifindex)
			return device;
		node = READ(node, next);
	}
	return 0;
}

static __always_inline struct Qdisc *root_qdisc(const struct net_device *device)
{
	struct netdev_queue *queue = VIEW(READ(device, _tx), struct netdev_queue);

	return READ(queue, qdisc);
}

/* Return the packets, or the bytes, in the root queue of device `ifindex`; 0 without a device. */
static __always_inline __u32 root_queue_length(struct __sk_buff *ctx, __u32 ifindex, __u32 in_bytes)
{
	const struct net_device *device = find_device(ctx, ifindex);
	struct Qdisc *qdisc;

	if (!device)
		return 0;
	qdisc = root_qdisc(device);
	return in_bytes ? READ(qdisc, qstats.backlog) : READ(qdisc, q.qlen);
}

/* Return the root queue of device `ifindex` in full packets, those of its MTU, rounded down.
 *
 * Three acknowledgements are a tenth of a packet: they delay others by that much only. */
static __always_inline __u32 root_queue_full_packets(struct __sk_buff *ctx, __u32 ifindex)
{
	const struct net_device *device = find_device(ctx, ifindex);

	if (!device)
		return 0;
	return READ(root_qdisc(device), qstats.backlog) / (READ(device, mtu) + ETH_HLEN);
}

#define NO_QUEUE 0xffffffff /* in place of a length */
#define ROOT_HANDLE 0x10000 /* of a link's discipline, as in tc.py */

/* Return the bytes in queueing discipline `handle`, below the root of device `ifindex`; NO_QUEUE if
 * the device has none.  Of an exact link, under the virtual clock, these are the bytes of data. */
static __always_inline __u32 child_queue_bytes(struct __sk_buff *ctx, __u32 ifindex, __u32 handle)
{
	const struct net_device *device = find_device(ctx, ifindex);
	const void *buckets;

	if (!device)
		return NO_QUEUE;
	if (bpf_core_type_exists(struct weft_sched_data)) {
		const void *root = root_qdisc(device);
		struct weft_sched_data *link =
			VIEW(root + bpf_core_field_offset(struct Qdisc, privdata),
			     struct weft_sched_data);

		return READ(VIEW(root, struct Qdisc), handle) == ROOT_HANDLE ?
			       READ(link, data_bytes) :
			       NO_QUEUE;
	}
	if (!bpf_core_field_exists(struct net_device, qdisc_hash))
		return NO_QUEUE;
	buckets = (const void *)device + bpf_core_field_offset(struct net_device, qdisc_hash);
	/* the handle's own bucket comes first; the others, should a kernel hash otherwise */
	for (__u32 i = 0; i < QDISC_BUCKETS; i++) {
		__u32 bucket = ((handle * GOLDEN_RATIO >> 28) + i) & (QDISC_BUCKETS - 1);
		const struct hlist_head *head = buckets + bucket * sizeof(struct hlist_head);
		struct hlist_node *node = READ(VIEW(head, struct hlist_head), first);

		for (int j = 0; j < QDISCS_IN_BUCKET && node; j++) {
			struct Qdisc *qdisc = CONTAINER(node, struct Qdisc, hash);

			if (READ(qdisc, handle) == handle)
				return READ(qdisc, qstats.backlog);
			node = READ(node, next);
		}
	}
	return NO_QUEUE;
}
