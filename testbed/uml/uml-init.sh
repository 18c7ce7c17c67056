#!/bin/sh
# The first process inside User-Mode Linux.  testbed/uml/uml.py starts it; $weft_uml is the folder on the host that it
# reads from, and $weft_virtual is set where the clock is virtual.  Everything of the host is seen through an overlay
# that forgets what is written; the folders listed in `mounts` are the host's own.  This ends by powering off, whatever
# happens; a failure is on the console, which uml.py keeps.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
trap 'echo o >/proc/sysrq-trigger; sleep 60' EXIT # the trigger only asks for it

virtual=${weft_virtual:-} # that kernel has everything built in
kernel=$(uname -r)
modules=/usr/lib/uml/modules/$kernel # where the package has them, and modprobe does not look

mount -t proc proc /proc
[ "$virtual" ] || insmod "$modules/kernel/fs/overlayfs/overlay.ko"
mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/upper /mnt/work /mnt/root /mnt/hidden/etc
# A whiteout hides what networks of the host have there.  A run inside would remove their links, since they lead nowhere
# here, and each file that is made draws a random number, so all later ones would depend on which networks are up.
mknod /mnt/hidden/etc/netns c 0 0
mount -t overlay -o lowerdir=/mnt/hidden:/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
if [ ! "$virtual" ]; then
	mkdir -p lib/modules
	ln -s "$modules" lib/modules/
fi
# Kernel threads move too, so that the kernel finds modprobe and its modules when it wants one.
pivot_root . mnt
cd /
mount -t proc proc /proc
umount -l /mnt

mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t devtmpfs devtmpfs /dev
mount -t devpts -o X-mount.mkdir,ptmxmode=0666 devpts /dev/pts
mount -t tmpfs -o X-mount.mkdir tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir /run/uml /run/lock
# What the host reads: it made these files, and once their names are gone they are in the hands of this process alone.
# The command gets questions (8) and report (9).
mount -t hostfs -o "$weft_uml/channels" none /mnt
exec 5>>/mnt/status 6>>/mnt/out 7>>/mnt/err 8>>/mnt/questions 9>>/mnt/report
rm /mnt/status /mnt/out /mnt/err /mnt/questions /mnt/report
umount -l /mnt
mount -t hostfs -o "$weft_uml" none /run/uml
mount --all --fstab /run/uml/mounts # one process, which takes as long whatever there is to mount

echo uml >/proc/sys/kernel/hostname
ip link set lo up
if [ "$virtual" ]; then
	echo 1 >/proc/self/timerslack_ns # sleeps end when they should, not up to 50 us later; all processes inherit it
	echo 1000000 >/proc/sys/net/core/netdev_max_backlog # computing is free, so all packets of an instant wait here
	mount -t tracefs tracefs /sys/kernel/tracing
	# The kernel seeds its random numbers again after 1 s: what was drawn until then, once for each mount, is forgotten.
	sleep 1.5 # timers are exact from the first tick on; and iputils' ping takes a clock below 1 s for one not yet read
else
	modprobe --all $(grep --only-matching '^[a-z0-9_]*' /run/uml/modules)
fi
echo booted >&5
status=0
# To files of the host: when a console is ready to take more would depend on the host.
setsid --wait sh /run/uml/command </dev/null >&6 2>&7 5>&- 6>&- 7>&- || status=$?
echo "$status" >&5
