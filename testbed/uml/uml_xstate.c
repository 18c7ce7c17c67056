/* SPDX-License-Identifier: MIT */
/* Carries the extended state (floating-point and vector registers) of processes under User-Mode
 * Linux.
 *
 * User-Mode Linux reads it from a process after each system call and writes it back before the
 * next.  Preloaded, this mends two things.
 *
 * Writing costs the host more than all else in a system call, since it takes fresh pages of virtual
 * memory for it each time.  What a process has already, as what was read from it last if it has not
 * run since, is not written again.
 *
 * Up to Linux 6.13 User-Mode Linux reads and writes 2696 bytes, which was all there was before AMX.
 * The host takes the whole or nothing: on a processor with AMX, 11008 bytes, it refuses with
 * EFAULT, and User-Mode Linux dies at its first process ("ptrace set fp regs failed").  What is
 * written is completed by what is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { ROOM_BYTES = 65536, KNOWN_BYTES = 2696, PROCESSES = 8192 };

/* What a process has in its registers, as long as `length` is not 0. */
struct state {
	long pid;
	unsigned long length;
	char bytes[KNOWN_BYTES];
};

static long (*real)(int request, ...); /* the C library's */
static struct state states[PROCESSES]; /* by pid modulo their number; pages that are never touched
					  take no memory */

static struct state *slot(long pid)
{
	return &states[(unsigned long)pid % PROCESSES];
}

static void remember(long pid, const struct iovec *known)
{
	struct state *state = slot(pid);

	state->pid = pid;
	state->length = known->iov_len <= KNOWN_BYTES ? known->iov_len : 0;
	memcpy(state->bytes, known->iov_base, state->length);
}

static void forget(long pid)
{
	if (slot(pid)->pid == pid)
		slot(pid)->length = 0;
}

/* Where less was read than is to be written, the host has no more, and leaves out the rest. */
static int has(long pid, const struct iovec *wanted)
{
	const struct state *state = slot(pid);

	return state->pid == pid && state->length && state->length <= wanted->iov_len &&
	       !memcmp(state->bytes, wanted->iov_base, state->length);
}

static long restore_whole(long pid, const struct iovec *known)
{
	static char
		state[ROOM_BYTES]; /* its stacks are too small for this, and it has one processor */
	struct iovec whole = { state, sizeof state };

	if (real(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole) < 0)
		return -1;
	if (whole.iov_len <= known->iov_len) {
		errno = EFAULT; /* it was refused for another reason */
		return -1;
	}
	memcpy(state, known->iov_base, known->iov_len);
	return real(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &whole);
}

static long restore(long pid, struct iovec *known)
{
	long done;

	if (has(pid, known))
		return 0;
	forget(pid);
	done = real(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, known);
	if (done < 0 && errno == EFAULT)
		done = restore_whole(pid, known);
	return done;
}

static long save(long pid, struct iovec *known)
{
	long done = real(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, known);

	if (done >= 0)
		remember(pid, known);
	return done;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list given;
	long pid;
	void *what, *where;

	va_start(given, request);
	pid = va_arg(given, long);
	what = va_arg(given, void *);
	where = va_arg(given, void *);
	va_end(given);
	if (!real)
		real = dlsym(RTLD_NEXT, "ptrace");
	if ((long)what == NT_X86_XSTATE && request == PTRACE_SETREGSET)
		return restore(pid, where);
	if ((long)what == NT_X86_XSTATE && request == PTRACE_GETREGSET)
		return save(pid, where);
	if (request != PTRACE_SETREGS && request != PTRACE_GETREGS)
		forget(pid); /* it may run, or be a new process */
	return real(request, pid, what, where);
}
