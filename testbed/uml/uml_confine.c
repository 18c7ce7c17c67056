/* SPDX-License-Identifier: MIT */
/* Confines the kernel on the host before the first process runs inside.
 *
 * A command inside is root there: it can mount any folder of the host, and may take over the
 * kernel.  Preloaded, this confines the kernel when it is about to start its first process: what
 * it needs while it boots (its memory, its control socket) it has opened by then.  From then on
 *
 * - Landlock (Linux 5.13) allows what the file WEFT_RULES says: lines of a right and a path;
 * - seccomp refuses calls that Landlock does not cover;
 * - of root's capabilities only those to pass over permissions of files are left;
 * - no file can grow beyond WEFT_FILE_BYTES, and no more than WEFT_PROCESSES exist at a time.
 *
 * System calls of processes inside are the kernel's and not the host's (PTRACE_SYSEMU), so no rule
 * here changes what they may do inside.
 */
#ifdef __x86_64__ /* the only processor of User-Mode Linux */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* what headers of older systems lack */
#define REFER (1ULL << 13)
#define TRUNCATE (1ULL << 14)
#define SCOPES 3ULL /* abstract sockets, and signals, of other processes */

static const uint64_t READS = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t DEVICES = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK;
static const uint64_t OF_FILES =
	LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE;
/* of each version of Landlock, up to the last that has more */
static const uint64_t HANDLED[] = {
	0,
	LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE |
		LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
		LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
		LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
		LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		LANDLOCK_ACCESS_FS_MAKE_SYM,
	REFER,
	TRUNCATE,
};
enum { VERSIONS = sizeof HANDLED / sizeof *HANDLED - 1, FIRST_WITH_SCOPES = 6 };

/* as of Linux 6.12; older kernels take the first field alone */
struct ruleset {
	uint64_t files, ports, scopes;
};

/* Calls that take a path or another process past Landlock, that change the machine as root, or
 * that reach its network.  Files are opened by open and openat alone, whose flags can be seen. */
/* clang-format off */
static const unsigned short REFUSED[] = {
	/* modes, owners, times and attributes of files, devices, lengths */
	SYS_chmod, SYS_fchmod, SYS_fchmodat, 452 /* fchmodat2 */, SYS_chown, SYS_fchown, SYS_lchown,
	SYS_fchownat, SYS_utime, SYS_utimes, SYS_futimesat, SYS_utimensat, SYS_setxattr,
	SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
	463 /* setxattrat */, 466 /* removexattrat */, 469 /* file_setattr */, SYS_mknod,
	SYS_mknodat, SYS_truncate, SYS_creat, 437 /* openat2 */, SYS_open_by_handle_at,
	425 /* io_uring_setup */, 426, 427,
	/* other processes, and this one's share of the processors; what is in the kernel's process group
	 * ends with it */
	SYS_setsid, SYS_setpgid,
	SYS_process_vm_readv, SYS_process_vm_writev, 424 /* pidfd_send_signal */,
	434 /* pidfd_open */, 438 /* pidfd_getfd */, 440 /* process_madvise */, 448, SYS_kcmp,
	SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_setrlimit, SYS_setpriority,
	SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_sched_setaffinity,
	SYS_ioprio_set,
	/* networks and what else processes of the machine share */
	SYS_socket, SYS_connect, SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open, SYS_add_key,
	SYS_request_key, SYS_keyctl, SYS_fanotify_init, SYS_bpf, SYS_perf_event_open,
	SYS_userfaultfd,
	/* the machine */
	SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns,
	428 /* open_tree */, 429 /* move_mount */, 430 /* fsopen */, 431, 432, 433,
	442 /* mount_setattr */, SYS_init_module, SYS_finit_module, SYS_delete_module,
	SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct,
	SYS_quotactl, 443 /* quotactl_fd */, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
	SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname, SYS_syslog, SYS_iopl, SYS_ioperm,
};
/* clang-format on */
enum { CALLS = sizeof REFUSED / sizeof *REFUSED, SPECIAL_MODES = 07000, NEGATIVE = 1U << 31 };

static int processes; /* that exist */

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	if (!value) {
		errno = EINVAL;
		fail(name);
	}
	return value;
}

static uint64_t rights(const char *name)
{
	if (!strcmp(name, "read"))
		return READS;
	if (!strcmp(name, "list"))
		return LANDLOCK_ACCESS_FS_READ_DIR;
	if (!strcmp(name, "append"))
		return LANDLOCK_ACCESS_FS_WRITE_FILE;
	if (!strcmp(name, "remove"))
		return LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE;
	if (!strcmp(name, "write"))
		return ~DEVICES;
	errno = EINVAL;
	fail(name);
	return 0;
}

/* Follow one line of the rules. */
static void permit(int rules, uint64_t handled, char *line)
{
	struct landlock_path_beneath_attr rule = { 0 };
	char *path = strchr(line, ' ');
	struct stat file;

	if (!path)
		fail(line);
	*path++ = '\0';
	rule.allowed_access = rights(line) & handled;
	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0 && errno == ENOENT)
		return; /* what does not exist needs no right */
	if (rule.parent_fd < 0 || fstat(rule.parent_fd, &file))
		fail(path);
	if (!S_ISDIR(file.st_mode))
		rule.allowed_access &= OF_FILES;
	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
		fail("landlock_add_rule");
	close(rule.parent_fd);
}

static void limit_files(const char *path)
{
	long version =
		syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct ruleset attributes = { 0 };
	size_t size = sizeof attributes.files, length = 0;
	FILE *file = fopen(path, "re");
	char *line = NULL;
	int rules;

	if (!file)
		fail(path);
	for (long number = 1; number <= version && number <= VERSIONS; number++)
		attributes.files |= HANDLED[number];
	if (version >= FIRST_WITH_SCOPES) {
		attributes.scopes = SCOPES;
		size = sizeof attributes;
	}
	if (!attributes.files)
		return; /* this host has no Landlock */
	rules = syscall(SYS_landlock_create_ruleset, &attributes, size, 0);
	if (rules < 0)
		fail("landlock_create_ruleset");
	while (getline(&line, &length, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		permit(rules, attributes.files, line);
	}
	free(line);
	fclose(file);
	if (syscall(SYS_landlock_restrict_self, rules, 0))
		fail("landlock_restrict_self");
	close(rules);
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(test, value, skip) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, 0, skip)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
/* Refuse a call if the lower half of an argument passes a test. */
#define REFUSE_IF(call, argument, test, value)                                                     \
	LOAD(nr), UNLESS(BPF_JEQ, call, 3), LOAD(args[argument]), UNLESS(test, value, 1), REFUSE
/* Refuse to cut off a file, and to make one that runs as its owner. */
#define CHECK_OPEN(call, flags, mode)                                                              \
	REFUSE_IF(call, flags, BPF_JSET, O_TRUNC), LOAD(nr), UNLESS(BPF_JEQ, call, 5),             \
		LOAD(args[flags]), UNLESS(BPF_JSET, O_CREAT, 3), LOAD(args[mode]),                 \
		UNLESS(BPF_JSET, SPECIAL_MODES, 1), REFUSE

static void limit_calls(void)
{
	static const struct sock_filter begin[] = {
		LOAD(arch), UNLESS(BPF_JEQ, AUDIT_ARCH_X86_64, 2),
		LOAD(nr),   BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1U << 30, 0, 1), /* x32 */
		REFUSE,
	};
	static const struct sock_filter end[] = {
		CHECK_OPEN(SYS_open, 1, 2),
		CHECK_OPEN(SYS_openat, 2, 3),
		REFUSE_IF(SYS_mkdir, 1, BPF_JSET, SPECIAL_MODES),
		REFUSE_IF(SYS_mkdirat, 2, BPF_JSET, SPECIAL_MODES),
		REFUSE_IF(SYS_kill, 0, BPF_JSET, NEGATIVE),
		REFUSE_IF(SYS_kill, 0, BPF_JEQ, 0),
		REFUSE_IF(SYS_prlimit64, 0, BPF_JGT, 0),
		REFUSE_IF(SYS_prlimit64, 2, BPF_JGT, 0),
		ALLOW,
	};
	enum { FIRST = sizeof begin / sizeof *begin, LAST = sizeof end / sizeof *end };
	struct sock_filter filter[FIRST + 2 * CALLS + LAST];
	struct sock_fprog program = { FIRST + 2 * CALLS + LAST, filter };

	memcpy(filter, begin, sizeof begin);
	for (int number = 0; number < CALLS; number++) {
		struct sock_filter refusal[] = { UNLESS(BPF_JEQ, REFUSED[number], 1), REFUSE };

		memcpy(filter + FIRST + 2 * number, refusal, sizeof refusal);
	}
	memcpy(filter + FIRST + 2 * CALLS, end, sizeof end);
	/* nothing secret is in this process, so its speculation may stay as it is */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
		fail("seccomp");
}

static void limit_capabilities(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2] = { { 0 } };
	uint32_t kept = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;

	if (syscall(SYS_capget, &header, sets))
		fail("capget");
	kept &= sets[0].permitted;
	memset(sets, 0, sizeof sets);
	sets[0].permitted = sets[0].effective = kept;
	if (syscall(SYS_capset, &header, sets) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fail("capset");
}

static void confine(void)
{
	rlim_t bytes = strtoull(setting("WEFT_FILE_BYTES"), NULL, 10);
	struct rlimit length = { bytes, bytes }, none = { 0, 0 };

	signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit is an error */
	if (setrlimit(RLIMIT_FSIZE, &length) || setrlimit(RLIMIT_CORE, &none))
		fail("setrlimit");
	limit_capabilities();
	limit_files(setting("WEFT_RULES"));
	limit_calls();
	unsetenv("WEFT_RULES");
}

/* The kernel starts every process inside by this, and threads of its own. */
int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	static int (*real)(int (*)(void *), void *, int, void *, ...);
	static int most;
	int pid;

	if (!real && getenv("WEFT_RULES")) {
		most = atoi(setting("WEFT_PROCESSES"));
		confine();
	}
	if (!real)
		real = dlsym(RTLD_NEXT, "clone");
	if (most && processes >= most) {
		errno = EAGAIN;
		return -1;
	}
	pid = real(function, stack, flags, argument);
	processes += pid > 0;
	return pid;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	static pid_t (*real)(pid_t, int *, int);
	int unasked;
	pid_t ended;

	if (!real)
		real = dlsym(RTLD_NEXT, "waitpid");
	if (!status)
		status = &unasked; /* as the kernel ends most processes */
	ended = real(pid, status, options);
	if (ended > 0 && processes && (WIFEXITED(*status) || WIFSIGNALED(*status)))
		processes--;
	return ended;
}
#endif
