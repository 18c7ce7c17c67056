#!/usr/bin/env bash
# Make TARGETS of a fresh clone in a clean root: Debian 12 with git, make and certificates, nothing else.
#
#	tools/clean_root.sh TARGET...
#
# Uncommitted changes are not cloned.  Packages come from where this machine gets them: the root receives its apt and pip
# configuration and its certificates.  $WEFT_CACHE or /var/cache/weft keeps the root's archive between runs, and the
# kernel for virtual time.  Mounts and processes lie in namespaces that end with this script, also after SIGKILL.
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
	env | grep -E '^(CI|PIP_[A-Z_]*|(https?|no|all|HTTPS?|NO|ALL)_(proxy|PROXY)|(SSL|GIT_SSL|CURL|REQUESTS)_C[A-Z_]*)=' || true
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
		*) install -D --mode=644 "$file" "$root/root/.config/pip/pip.conf" ;;
		esac
	done
}

# Folders and files of this machine that the configuration names and the root lacks, read-only.
bind_named_paths() {
	{ environment && cat /dev/null $(pip_files); } | grep --only-matching -E "(file://)?/[^ \"'=:]+" |
		sed 's,^file://,,; s,/simple/*$,,' | sort --unique | while read -r path; do
		[ -e "$path" ] && [ ! -e "$root$path" ] || continue
		if [ -d "$path" ]; then mkdir --parents "$root$path"; else install -D /dev/null "$root$path"; fi
		mount --bind "$path" "$root$path"
		mount --options remount,bind,ro "$root$path"
	done
}

mount_system() {
	mount --bind "$root" "$root" # pivot_root demands a mount
	mount --types proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	[ ! -d /sys/fs/bpf ] || mount --types bpf bpf "$root/sys/fs/bpf"
	mount --rbind /dev "$root/dev"
	mount --types tmpfs tmpfs "$root/dev/shm"
	mount --types tmpfs --options mode=755 tmpfs "$root/run"
	mkdir --parents "$root/var/cache/weft"
	mount --bind "$cache" "$root/var/cache/weft"
}

[ $# -gt 0 ] || { echo 'clean root: name targets of make, such as: tools/clean_root.sh demo test' >&2 && exit 2; }
if [ "$1" != --inside ]; then
	[ "$(id --user)" = 0 ] || make_here "this needs root" "$@"
	unshare --mount --pid --fork true 2>/dev/null || make_here "no namespaces can be made" "$@"
	command -v apt-get >/dev/null || make_here "debootstrap needs apt-get" "$@"
	work=$(mktemp --directory "${TMPDIR:-/var/tmp}/weft-root-XXXXXX")
	exec 9>"$work/lock"
	flock 9
	# Holding the lock are this process and those in the namespaces; the folder goes when they have ended.
	setsid --fork flock "$work/lock" sh -c "sleep 1; rm --recursive --force '$work'" 9>&- >/dev/null 2>&1
	exec unshare --mount --pid --fork --kill-child tools/clean_root.sh --inside "$work" "$@"
fi

work=$2 root=$2/root
shift 2
if ! command -v debootstrap >/dev/null || [ -z "$(suite_sources)" ]; then
	apt-get update --quiet || true # a source that does not answer is not needed unless it is Debian's
fi
sources=$(suite_sources)
[ -e "$archive" ] || build_archive
mkdir "$root"
tar --extract --file="$archive" --directory="$root"
configure
git clone --quiet --no-hardlinks . "$root/root/weft"
mount_system
bind_named_paths
mapfile -t variables < <(environment)
cd "$root"
pivot_root . .
umount --lazy . # the root of this machine, which lies on the new one
cd /root/weft
for target; do
	begin_s=$SECONDS
	env --ignore-environment HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		"${variables[@]}" make --no-print-directory "$target"
	echo "clean root: make $target passed in $((SECONDS - begin_s)) s"
done
