/* SPDX-License-Identifier: MIT */
/* Lets the kernel write to its own folders alone, by Landlock.
 *
 * A command inside is root, so it can mount any folder of the host.  Preloaded, this has the host
 * refuse each write outside the folders that WEFT_WRITABLE names, a line each.  Before Linux 5.13,
 * which brought Landlock, only permissions of files refuse writes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* which headers before Linux 5.19 and 6.2 lack */
#define REFER (1ULL << 13)
#define TRUNCATE (1ULL << 14)

static const uint64_t WRITES_TO_FILES = LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE;
/* of each version of Landlock, up to the last that has more */
static const uint64_t WRITES[] = {
	0,
	LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
		LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
		LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
		LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
		LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM,
	REFER,
	TRUNCATE,
};
enum { VERSIONS = sizeof WRITES / sizeof *WRITES - 1 };

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static uint64_t known_writes(void)
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0,
			       LANDLOCK_CREATE_RULESET_VERSION);
	uint64_t writes = 0;

	for (long number = 1; number <= version && number <= VERSIONS; number++)
		writes |= WRITES[number];
	return writes;
}

static void permit(int rules, const char *path, uint64_t writes)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = writes };
	struct stat file;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0 || fstat(rule.parent_fd, &file))
		fail(path);
	if (!S_ISDIR(file.st_mode))
		rule.allowed_access &= WRITES_TO_FILES;
	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
		fail("landlock_add_rule");
	close(rule.parent_fd);
}

__attribute__((constructor)) static void confine(void)
{
	struct landlock_ruleset_attr attributes = { .handled_access_fs = known_writes() };
	char *writable = getenv("WEFT_WRITABLE"), *rest;
	int rules;

	if (!writable || !attributes.handled_access_fs)
		return;
	rules = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
	if (rules < 0)
		fail("landlock_create_ruleset");
	for (char *path = strtok_r(writable, "\n", &rest); path; path = strtok_r(NULL, "\n", &rest))
		permit(rules, path, attributes.handled_access_fs);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_landlock_restrict_self, rules, 0))
		fail("landlock_restrict_self");
	close(rules);
	unsetenv("WEFT_WRITABLE");
}
