/* DCTCP (RFC 8257) as a congestion control in BPF, for kernels that have none of their own.
 *
 * alpha estimates the fraction of packets that were marked, 1/16 of it renewed each window; a window with marks is cut by
 * alpha / 2, and the receiver acknowledges at once whenever marks begin or end.  Growth is Reno's.
 */
#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NON_RESTRICTED 1 /* else a namespace may not choose it */
#define NEEDS_ECN 2
#define DEMAND_CWR 4	 /* of ecn_flags */
#define ACK_TIMER 2	 /* of pending */
#define ACK_NOW 16
#define RECOVERY 3
#define MAX_ALPHA 1024
#define GAIN_SHIFT 4
#define UNLIMITED 0x7fffffff
#define MOST_PACKETS 65535

enum tcp_ca_event { TX_START, CWND_RESTART, COMPLETE_CWR, LOSS, ECN_NO_CE, ECN_IS_CE };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sock {
	int unused;
};
struct inet_sock {
	struct sock sk;
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u64 icsk_ca_priv[13];
	__u8 icsk_ca_state : 5;
	struct {
		__u8 pending;
	} icsk_ack;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt, snd_nxt, snd_una, snd_ssthresh, snd_cwnd, delivered, delivered_ce;
	__u8 ecn_flags;
};
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *);
	void (*cong_avoid)(struct sock *, __u32, __u32);
	void (*set_state)(struct sock *, __u8);
	void (*cwnd_event)(struct sock *, enum tcp_ca_event);
	void (*in_ack_event)(struct sock *, __u32);
	__u32 (*undo_cwnd)(struct sock *);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *);
};
#pragma clang attribute pop

struct dctcp {
	__u32 old_delivered, old_delivered_ce, prior_rcv_nxt, alpha, next_seq, ce_state, loss_cwnd, last_ssthresh;
};

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

static __always_inline struct dctcp *state(struct sock *sk)
{
	return (struct dctcp *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline __u32 at_least_2(__u32 packets)
{
	return packets > 2 ? packets : 2;
}

static __always_inline void begin_window(const struct tcp_sock *tp, struct dctcp *ca)
{
	ca->next_seq = tp->snd_nxt;
	ca->old_delivered = tp->delivered;
	ca->old_delivered_ce = tp->delivered_ce;
}

SEC("struct_ops/init")
void BPF_PROG(init, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *ca = state(sk);

	ca->prior_rcv_nxt = tp->rcv_nxt;
	ca->alpha = MAX_ALPHA;
	ca->loss_cwnd = ca->ce_state = ca->last_ssthresh = 0;
	begin_window(tp, ca);
}

SEC("struct_ops/ssthresh")
__u32 BPF_PROG(ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *ca = state(sk);

	ca->loss_cwnd = tp->snd_cwnd;
	ca->last_ssthresh = at_least_2(tp->snd_cwnd - (tp->snd_cwnd * ca->alpha >> 11));
	return ca->last_ssthresh;
}

SEC("struct_ops/in_ack_event")
void BPF_PROG(in_ack_event, struct sock *sk, __u32 flags)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *ca = state(sk);
	__u32 marked, packets, decay;

	/* On one kernel (6.18) the value that ssthresh() returned was lost now and then, and an address taken for it. */
	if (tp->snd_cwnd > MOST_PACKETS || (tp->snd_ssthresh > MOST_PACKETS && tp->snd_ssthresh != UNLIMITED))
		tp->snd_ssthresh = tp->snd_cwnd = at_least_2(ca->last_ssthresh);
	if ((__s32)(tp->snd_una - ca->next_seq) < 0)
		return;
	marked = tp->delivered_ce - ca->old_delivered_ce;
	packets = tp->delivered - ca->old_delivered;
	decay = ca->alpha >> GAIN_SHIFT;
	ca->alpha -= decay ?: ca->alpha;
	ca->alpha += (marked << (10 - GAIN_SHIFT)) / (packets ?: 1);
	if (ca->alpha > MAX_ALPHA)
		ca->alpha = MAX_ALPHA;
	begin_window(tp, ca);
}

static __always_inline void marks_changed(struct tcp_sock *tp, struct dctcp *ca, __u32 marked)
{
	if (ca->ce_state != marked) {
		if (tp->inet_conn.icsk_ack.pending & ACK_TIMER)
			bpf_tcp_send_ack(tp, ca->prior_rcv_nxt);
		tp->inet_conn.icsk_ack.pending |= ACK_NOW;
	}
	ca->prior_rcv_nxt = tp->rcv_nxt;
	ca->ce_state = marked;
	if (marked)
		tp->ecn_flags |= DEMAND_CWR;
	else
		tp->ecn_flags &= ~DEMAND_CWR;
}

static __always_inline void halve(struct tcp_sock *tp, struct dctcp *ca)
{
	ca->loss_cwnd = tp->snd_cwnd;
	tp->snd_ssthresh = at_least_2(tp->snd_cwnd >> 1);
}

SEC("struct_ops/cwnd_event")
void BPF_PROG(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	if (event == ECN_IS_CE || event == ECN_NO_CE)
		marks_changed(tp, state(sk), event == ECN_IS_CE);
	else if (event == LOSS)
		halve(tp, state(sk));
}

SEC("struct_ops/set_state")
void BPF_PROG(set_state, struct sock *sk, __u8 new_state)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	if (new_state == RECOVERY && new_state != BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state))
		halve(tp, state(sk));
}

SEC("struct_ops/undo_cwnd")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	__u32 now = ((struct tcp_sock *)sk)->snd_cwnd, before = state(sk)->loss_cwnd;

	return now > before ? now : before;
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC(".struct_ops")
struct tcp_congestion_ops weft_dctcp = {
	.init = (void *)init,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.in_ack_event = (void *)in_ack_event,
	.cwnd_event = (void *)cwnd_event,
	.set_state = (void *)set_state,
	.undo_cwnd = (void *)undo_cwnd,
	.flags = NEEDS_ECN | NON_RESTRICTED,
	.name = "weft_dctcp",
};

char _license[] SEC("license") = "GPL";
