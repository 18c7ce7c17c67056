#!/bin/sh
# The first process inside User-Mode Linux.  testbed/uml/uml.py starts it; $weft_uml is their common folder on the host,
# and $weft_virtual is set where the clock is virtual.  Everything of the host is seen through an overlay that forgets
# what is written; the folders listed in `mounts` are the host's own.  This ends by powering off, whatever happens; a
# failure is on the console, which uml.py keeps.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
trap 'echo o >/proc/sysrq-trigger; sleep 60' EXIT # the trigger only asks for it

virtual=${weft_virtual:-} # that kernel has everything built in
kernel=$(uname -r)
modules=/usr/lib/uml/modules/$kernel # where the package has them, and modprobe does not look

mount -t proc proc /proc
[ "$virtual" ] || insmod "$modules/kernel/fs/overlayfs/overlay.ko"
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
if [ ! "$virtual" ]; then
	mkdir -p lib/modules
	ln -s "$modules" lib/modules/
fi
# Kernel threads move too, so that the kernel finds modprobe and its modules when it wants one.
pivot_root . mnt
cd /
umount -l /mnt

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=0666 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp /dev/shm
mkdir /run/uml /run/lock
mount -t hostfs -o "$weft_uml" none /run/uml
mount --all --fstab /run/uml/mounts # one process, which takes as long whatever there is to mount

hostname uml
ip link set lo up
if [ "$virtual" ]; then
	echo 1 >/proc/self/timerslack_ns # sleeps end when they should, not up to 50 us later; all processes inherit it
	echo 1000000 >/proc/sys/net/core/netdev_max_backlog # computing is free, so all packets of an instant wait here
	mount -t tracefs tracefs /sys/kernel/tracing
	# The kernel seeds its random numbers again after 1 s: what was drawn until then, once for each mount, is forgotten.
	sleep 1.5 # timers are exact from the first tick on; and iputils' ping takes a clock below 1 s for one not yet read
	: >/run/uml/booted
	status=0
	# To files of the host: when a console is ready to take more would depend on the host.
	setsid --wait sh /run/uml/command </dev/null >/run/uml/out 2>/run/uml/err || status=$?
	cut -d ' ' -f 1 /proc/uptime >/run/uml/uptime
	echo "$status" >/run/uml/status
	exit
fi
modprobe --all $(grep --only-matching '^[a-z0-9_]*' /run/uml/modules)

# The consoles pass every byte.  They stay open, for closing one closes the pipe on the host.
exec 3>/dev/tty1 4>/dev/tty2
stty raw <&3
stty raw <&4
# A terminal would have the command draw progress bars, so it writes to pipes.
mkfifo /run/uml.out /run/uml.err
cat /run/uml.out >&3 &
out=$!
cat /run/uml.err >&4 &
err=$!
: >/run/uml/booted
status=0
setsid --wait sh /run/uml/command </dev/null >/run/uml.out 2>/run/uml.err 3>&- 4>&- || status=$?
for folder in /proc/[0-9]*; do # what the command left behind must not keep the pipes open
	process=${folder#/proc/}
	case $process in 1 | "$out" | "$err") ;; *) kill -KILL "$process" 2>/dev/null || true ;; esac
done
wait "$out" "$err"
stty raw <&3 # returns when everything is written
stty raw <&4
echo "$status" >/run/uml/status
