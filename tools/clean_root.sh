#!/usr/bin/env bash
# Make TARGETS of a fresh clone in a clean root: Debian 12 with git, make and certificates, nothing else.
#
#	tools/clean_root.sh [--user] TARGET...
#
# --user works as a user with sudo whose home only that user may read, not as root.
# Uncommitted changes are not cloned.  The caches are empty.  Of this machine come its kernel, its network, and what says
# where packages come from: apt's and pip's configuration, certificates, and the files that these name, read-only
# (tests/test_clean_root.py).  $WEFT_CACHE or /var/cache/weft keeps the archive of the root between runs.
# Mounts and processes lie in namespaces that end with this script, also after SIGKILL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=bookworm
packages=ca-certificates,git,make
cache=${WEFT_CACHE:-/var/cache/weft}
archive=$cache/$suite-$(dpkg --print-architecture 2>/dev/null)-$(echo "$packages" | sha256sum | cut --characters=-16).tar

make_here() {
	echo "clean root: $1; make runs on this machine as it is" >&2
	command -v make >/dev/null || tools/setup.sh
	exec make --no-print-directory "${@:2}"
}

# Lines of apt's sources for the suite's main packages; none on another distribution, or before apt-get update.
suite_sources() {
	apt-get indextargets --format "deb \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" 'Created-By: Packages' 'Component: main' |
		grep "^deb [^ ]* $suite" | sort --unique || true
}

build_archive() {
	command -v debootstrap >/dev/null ||
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet debootstrap debian-archive-keyring
	mkdir --parents "$cache"
	mirror=$(awk -v suite="$suite" '$3 == suite { print $2; exit }' <<<"$sources")
	debootstrap --variant=minbase --include="$packages" "$suite" "$work/new" ${mirror:+"$mirror"} >"$work/log" ||
		{ tail "$work/log" >&2 && exit 1; }
	tar --create --file="$archive.$$" --directory="$work/new" .
	mv "$archive.$$" "$archive"
	rm --recursive --force "$work/new"
}

# Environment variables that say where packages come from, and which certificates to trust.
environment() {
	env | grep -E '^(CI|PIP_([A-Z_]*INDEX[A-Z_]*|FIND_LINKS|TRUSTED_HOST|[A-Z_]*CERT|PROXY|[A-Z_]*TIMEOUT|RETRIES))=|^((https?|no|all|HTTPS?|NO|ALL)_(proxy|PROXY)|(SSL|GIT_SSL|CURL|REQUESTS)_C[A-Z_]*)=' || true
}

pip_files() {
	ls "$HOME/.pip/pip.conf" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" /etc/pip.conf 2>/dev/null || true
}

configure() {
	cp --dereference /etc/resolv.conf /etc/hosts "$root/etc"
	[ -z "$sources" ] || echo "$sources" >"$root/etc/apt/sources.list"
	apt-config dump | grep '^Acquire::.*"..*";' >"$root/etc/apt/apt.conf.d/host"
	cp --recursive /etc/apt/auth.conf* "$root/etc/apt/" 2>/dev/null || true
	cp --recursive --dereference /usr/local/share/ca-certificates "$root/usr/local/share"
	cp --dereference /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs"
	for file in $(pip_files); do
		case $file in
		/etc/*) cp "$file" "$root/etc" ;;
		*) install -D --mode=644 "$file" "$root$home/.config/pip/pip.conf" ;;
		esac
	done
}

# Folders and files of this machine that the configuration names and the root lacks, read-only.
bind_named_paths() {
	{ environment && cat "$root/etc/apt/sources.list" $(pip_files); } | grep --only-matching -E "(file://)?/[^ \"'=:]+" |
		sed 's,^file://,,; s,/simple/*$,,' | sort --unique | while read -r path; do
		[ -e "$path" ] && [ ! -e "$root$path" ] || continue
		if [ -d "$path" ]; then mkdir --parents "$root$path"; else install -D /dev/null "$root$path"; fi
		mount --bind "$path" "$root$path"
		mount --options remount,bind,ro "$root$path"
	done
}

# The kernel's file systems, anew; cgroups are one tree for the whole machine.
mount_system() {
	mount --bind "$root" "$root" # pivot_root demands a mount
	mount --types proc proc "$root/proc"
	mount --types sysfs sysfs "$root/sys"
	mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
	[ ! -d /sys/fs/bpf ] || mount --types bpf bpf "$root/sys/fs/bpf"
	mount --types tmpfs --options mode=755 tmpfs "$root/dev"
	cp --archive /dev/{null,zero,full,random,urandom,tty} "$root/dev"
	mkdir "$root/dev/pts" "$root/dev/shm"
	mount --types devpts --options newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
	ln --symbolic pts/ptmx "$root/dev/ptmx"
	ln --symbolic /proc/self/fd "$root/dev/fd"
	ln --symbolic fd/0 "$root/dev/stdin"
	ln --symbolic fd/1 "$root/dev/stdout"
	ln --symbolic fd/2 "$root/dev/stderr"
	mount --types tmpfs tmpfs "$root/dev/shm"
	mount --types tmpfs --options mode=755 tmpfs "$root/run"
}

# A user with sudo and a home of mode 0700, as installers of distributions make one.
add_user() {
	"${clean[@]}" apt-get update --quiet
	"${clean[@]}" DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends sudo
	useradd --shell /bin/bash "$user"
	chown --recursive "$user:" "$home"
	chmod 700 "$home"
	printf '%s\n' "$user ALL=(ALL) NOPASSWD: ALL" 'Defaults env_keep += "*_proxy *_PROXY"' >/etc/sudoers.d/clean_root
}

user=root
if [ "${1:-}" = --user ]; then
	user=newcomer
	shift
fi
[ $# -gt 0 ] || { echo 'clean root: name targets of make, such as: tools/clean_root.sh demo test' >&2 && exit 2; }
if [ "$1" != --inside ]; then
	[ "$(id --user)" = 0 ] || make_here "this needs root" "$@"
	unshare --mount --pid --ipc --fork true 2>/dev/null || make_here "no namespaces can be made" "$@"
	command -v apt-get >/dev/null || make_here "debootstrap needs apt-get" "$@"
	work=$(mktemp --directory "${TMPDIR:-/var/tmp}/weft-root-XXXXXX")
	exec 9>"$work/lock"
	flock 9
	# Holding the lock are this process and those in the namespaces; the folder goes when they have ended.
	setsid --fork flock "$work/lock" sh -c "sleep 1; rm --recursive --force '$work'" 9>&- >/dev/null 2>&1
	exec unshare --mount --pid --ipc --fork --kill-child tools/clean_root.sh --inside "$work" "$user" "$@"
fi

work=$2 root=$2/root user=$3
shift 3
home=/root
[ "$user" = root ] || home=/home/$user
if ! command -v debootstrap >/dev/null || [ -z "$(suite_sources)" ]; then
	apt-get update --quiet || true # a source that does not answer is not needed unless it is Debian's
fi
sources=$(suite_sources)
[ -e "$archive" ] || build_archive
mkdir "$root"
tar --extract --file="$archive" --directory="$root"
configure
git clone --quiet --no-hardlinks . "$root$home/weft"
mount_system
bind_named_paths
mapfile -t variables < <(environment)
clean=(env --ignore-environment PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}")
cd "$root"
pivot_root . .
umount --lazy . # the root of this machine, which lies on the new one
if [ "$user" != root ]; then
	add_user
	if ! setpriv --reuid="$user" --regid="$user" --init-groups sudo --non-interactive true; then
		echo 'clean root: sudo cannot work here; make runs as root' >&2
		user=root
		chown --recursive root: "$home"
	fi
fi
cd "$home/weft"
# The variable `container` is what tells programs of systemd, and tests, where they are.
exec "${clean[@]}" HOME="$home" container=weft-clean-root \
	setpriv --pdeathsig keep --reuid="$user" --regid="$user" --init-groups bash -euc 'begin_s=0
	for target; do
		make --no-print-directory "$target" 9>&-
		echo "clean root: make $target passed in $((SECONDS - begin_s)) s"
		begin_s=$SECONDS
	done' clean-root "$@"
