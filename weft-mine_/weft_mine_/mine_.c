/* mine_: the port that the destination's number names, unless its queue is longer than that of a
 * random other port by more than `margin`.
 *
 * testbed/data_plane/own_rule.h says what load_of(), draw() and struct arrival are. */

static __always_inline __u32 choose(void *context, __u32 n, struct arrival *arrival,
				    const struct parameters *parameters)
{
	__u32 own = arrival->host % n;
	__u32 other = another(own, draw(context), n);

	return load_of(context, own) > load_of(context, other) + parameters->margin ? other : own;
}
