/* Lets User-Mode Linux run on processors whose registers take more room than it knows of.
 *
 * Up to Linux 6.13 it saves and restores 2696 bytes of a process's extended state, which was all there was before AMX.
 * The host takes the whole or nothing: on a processor with AMX, 11008 bytes, it refuses with EFAULT, and User-Mode Linux
 * dies at its first process ("ptrace set fp regs failed").  Preloaded, this completes what it restores by what is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { ROOM_BYTES = 65536 };

static long (*real)(int request, ...); /* the C library's */

static long restore_whole(long pid, const struct iovec *known)
{
	static char state[ROOM_BYTES]; /* its stacks are too small for this, and it has one processor */
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

long ptrace(enum __ptrace_request request, ...)
{
	va_list given;
	long pid, done;
	void *what, *where;

	va_start(given, request);
	pid = va_arg(given, long);
	what = va_arg(given, void *);
	where = va_arg(given, void *);
	va_end(given);
	if (!real)
		real = dlsym(RTLD_NEXT, "ptrace");
	done = real(request, pid, what, where);
	if (done < 0 && errno == EFAULT && request == PTRACE_SETREGSET && (long)what == NT_X86_XSTATE)
		return restore_whole(pid, where);
	return done;
}
