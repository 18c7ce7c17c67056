#!/bin/sh
# Make this machine ready for weft: packages, then the Python environment .venv.  With --modules also the kernel modules
# of testbed/uml/modules.txt, for a virtual machine of its own; with --uml-kernel also what the kernel for virtual time
# is built from.  Debian 12 or Ubuntu 24.04; as root, or through sudo.
# It does what is missing and no more, so it may be run at any time.
set -eu
cd "$(dirname "$0")/.."

# What weft runs on; iperf3, ping and the like are what it measures with; brctl is what Mininet's own bridges need, and
# numpy what its `mn --custom` needs to read our topologies with the system's Python; wget is for Mininet's own tests; sudo
# is in the commands of all pages, and Debian's root may lack it.
packages="
	git make gcc libc6-dev clang libbpf-dev libbpf1
	python3 python3-venv python3-numpy mininet bridge-utils
	iproute2 ethtool kmod procps nftables util-linux
	iputils-ping iperf3 traceroute tcpdump wget sudo
"
# A kernel with everything, for delays and DCTCP where this one has none (Ubuntu has no such package); FRR, which our
# daemons are compared with; both MPIs, whose programs `weft mpirun` runs, and HPC Challenge; and ssh, for networks over
# several machines.
wanted="
	user-mode-linux frr openssh-client openssh-server
	libopenmpi-dev libmpich-dev mpich openmpi-bin python3-mpi4py hpcc
"

fail() {
	echo "setup: $*" >&2
	exit 1
}

case $* in
"" | --modules) ;;
--uml-kernel) packages="$packages linux-source-6.12 bc bison flex pahole patch xz-utils" ;;
*)
	echo "setup: no option $*; there are --modules and --uml-kernel" >&2
	exit 2
	;;
esac

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		fail "this needs root, and there is no sudo: $*"
	fi
}

installed() {
	[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# That a package is there, and not only named by another, of which apt-cache says nothing and succeeds.
available() {
	[ -n "$(apt-cache show "$1" 2>/dev/null)" ]
}

# They run in tests' networks only, and not on this machine.
mask() {
	! command -v systemctl >/dev/null || as_root systemctl mask --quiet "$@"
}

install_packages() {
	missing=""
	for package in $packages; do
		installed "$package" || missing="$missing $package"
	done
	[ -z "$missing" ] || as_root apt-get update --quiet
	for package in $wanted; do
		installed "$package" && continue
		if available "$package"; then
			missing="$missing $package"
		else
			echo "setup: no package $package here, so what needs it will not work; the rest will" >&2
		fi
	done
	[ -z "$missing" ] && return
	case $missing in
	*frr*) mask frr ;;
	esac
	case $missing in
	*openssh-server*) mask ssh.service ssh.socket ;;
	esac
	# shellcheck disable=SC2086 # they are several words
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends $missing
}

# Mininet comes from the system, because that of the package index fails on Python 3.12; hence the system's Python too,
# whatever else is first in PATH.
make_environment() {
	[ -x .venv/bin/python ] || /usr/bin/python3 -m venv --system-site-packages .venv
	export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt
	# Python 3.12 brings no setuptools, and fetching one for the build would not be pinned; it takes the system's packaging
	# if there is none here, which in Ubuntu 24.04 is too old for it.
	.venv/bin/pip install --quiet setuptools packaging
	.venv/bin/pip install --quiet --no-build-isolation --editable '.[dev]'
}

# sudo looks for programs in /usr/local/bin, and in no Python environment.
make_launcher() {
	launcher=/usr/local/bin/weft
	if [ -e "$launcher" ]; then
		[ "$(readlink --canonicalize "$launcher")" = "$PWD/.venv/bin/weft" ] ||
			echo "setup: $launcher is another weft, and stays; this one is $PWD/.venv/bin/weft" >&2
	else
		as_root ln --symbolic --force "$PWD/.venv/bin/weft" "$launcher" ||
			echo "setup: there is no $launcher now; take $PWD/.venv/bin/weft" >&2
	fi
}

load_modules() {
	extra="linux-modules-extra-$(uname -r)" # where Ubuntu has put netem
	if ! installed "$extra" && available "$extra"; then
		as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet "$extra"
	fi
	missing=""
	for module in $(grep --only-matching '^[a-z0-9_]*' testbed/uml/modules.txt); do
		as_root modprobe "$module" || missing="$missing $module"
	done
	[ -z "$missing" ] || fail "the kernel $(uname -r) has no module:$missing"
}

command -v apt-get >/dev/null || fail "this installs packages with apt-get, of Debian 12 or Ubuntu 24.04"
install_packages
make_environment
make_launcher
[ "$*" != --modules ] || load_modules
