#!/usr/bin/env bash
# Try the machine that `vagrant up` gives: Debian 12 with its own kernel, emulated by QEMU.
#
#	make vm-test
#
# A clean root (tools/clean_root.sh) becomes the disk of the machine.  In it, a user `vagrant` with sudo carries out the
# Vagrantfile's lines; the machine then boots and carries out the steps below.  Its clock counts instructions, so a slow
# emulator is not a slow machine: seconds below are of that clock.  Its console goes to build/vm_test.log, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=/home/vagrant/weft
image=/var/image/disk
limit=3h
status=0

# One a line, each by vagrant in his clone.  Tests with the mark `uml` are those that kernels without modules cannot run.
steps() {
	cat <<-'EOS'
		grep -o '^[a-z0-9_]*' testbed/uml/modules.txt | xargs sudo modprobe --all && /sbin/sysctl net.ipv4.fib_sync_mem | grep ' 67108864$'
		sudo weft mn --topo single,3 --test pingall 2>&1 | tee >(cat >&2) | grep '0% dropped (6/6'
		sudo weft up star:n=2 --rate 10mbit --delay 5ms --detach vm && sudo weft exec --run vm h0 -- ping -c 5 h1 | tee >(cat >&2) | awk -F'[ /]' '/^rtt/ { right = 20 <= $7 && $7 <= 25 } END { exit !right }' && sudo weft down --run vm
		make demo
		sudo weft up star:n=2 --rate 10mbit --detach vm && sudo weft exec --run vm h1 -- iperf3 --server --one-off --daemon && sudo weft exec --run vm h0 -- iperf3 --client h1 --congestion dctcp --time 3 --format m | tee >(cat >&2) | awk '/receiver/ { right = 9 <= $7 && $7 <= 10 } END { exit !right }' && sudo weft down --run vm
		sudo weft up fattree:k=4 --routing lbsp --rate 5mbit --detach vm && sudo weft exec --run vm h0 -- ping -c 3 h15 && sudo weft down --run vm
		sudo weft up fattree:k=4 --routing ttc --rate 5mbit --detach vm && sudo weft exec --run vm h0 -- ping -c 3 h15 && sudo weft down --run vm
		sudo .venv/bin/python -m pytest -v -m uml tests/testbed/network/test_delay.py tests/testbed/data_plane/test_data_plane.py tests/testbed/labs/test_running_lab.py tests/testbed/machine/test_doctor.py
		sudo weft up star:n=2 --rate 10mbit --detach vm && sudo touch /power_cut
		sudo weft clean && sudo weft up star:n=2 --rate 10mbit --detach vm && sudo weft exec --run vm h0 -- ping -c 3 h1 && sudo weft down --run vm
	EOS
}

provision() {
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
		linux-image-amd64 systemd-sysv udev dbus sudo procps kmod zstd e2fsprogs
	useradd --create-home --shell /bin/bash vagrant
	echo 'vagrant ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/vagrant
	git clone --quiet --no-hardlinks . "$folder"
	[ ! -d ~/.config/pip ] || { mkdir /home/vagrant/.config && cp --recursive ~/.config/pip /home/vagrant/.config; }
	chown --recursive vagrant: /home/vagrant
	# Debian's kernel does not run yet: its modules are looked for here, and the machine loads them in its first step.
	echo "exec /sbin/modprobe --dry-run --set-version $(ls /lib/modules) \"\$@\"" >/usr/local/sbin/modprobe
	echo true >/usr/local/sbin/sysctl
	chmod 755 /usr/local/sbin/modprobe /usr/local/sbin/sysctl
	sed --quiet '/name: "setup"/,/^ *SHELL/ { /SHELL/d; s,#{FOLDER},'"$folder"',; p }' Vagrantfile |
		HOME=/home/vagrant setpriv --reuid vagrant --regid vagrant --init-groups bash
	rm /usr/local/sbin/modprobe /usr/local/sbin/sysctl
}

# A step is taken off the list before it begins: after a cut of its power, the machine goes on with the next one.
make_disk() {
	steps >/var/steps
	cat >/usr/local/sbin/vm_steps <<-EOS
		#!/bin/bash
		cd $folder
		while [ -s /var/steps ]; do
			step=\$(head --lines=1 /var/steps)
			sed --in-place 1d /var/steps
			begin_s=\$SECONDS
			echo "vm test: \$step"
			runuser --user vagrant -- bash -euc "\$step" </dev/null && verdict=PASS || { verdict=FAIL && weft down --run vm; }
			echo
			echo "vm test: \$verdict, \$((SECONDS - begin_s)) s: \$step"
			[ ! -e /power_cut ] || { rm /power_cut && sync && echo b >/proc/sysrq-trigger; }
		done
		systemctl poweroff
	EOS
	chmod 755 /usr/local/sbin/vm_steps
	printf '%s\n' '[Service]' ExecStart=/usr/local/sbin/vm_steps StandardOutput=tty StandardError=inherit \
		TTYPath=/dev/ttyS0 >/etc/systemd/system/vm-steps.service
	mkdir --parents /etc/systemd/system/multi-user.target.wants
	ln --symbolic ../vm-steps.service /etc/systemd/system/multi-user.target.wants
	# It would hang up the console on which the steps write.
	ln --symbolic /dev/null /etc/systemd/system/serial-getty@ttyS0.service
	echo '/dev/vda / ext4 defaults 0 1' >/etc/fstab
	echo weft >/etc/hostname
	echo '127.0.1.1 weft' >>/etc/hosts
	mkdir /mnt/root "$(dirname "$image")"
	mount --bind / /mnt/root                                 # without what is mounted on it
	mount --types tmpfs tmpfs "/mnt/root$(dirname "$image")" # nor the image itself
	mke2fs -q -t ext4 -d /mnt/root "$image" 8G
}

boot() {
	timeout --kill-after=10 "$limit" qemu-system-x86_64 -accel tcg -icount shift=0 -rtc clock=vm -cpu max -smp 1 -m 3072 \
		-nographic -nic none -kernel /boot/vmlinuz-* -initrd /boot/initrd.img-* \
		-append 'root=/dev/vda rw console=ttyS0 panic=-1 quiet' -drive file="$image",format=raw,if=virtio </dev/null
}

if [ "${container:-}" != weft-clean-root ]; then
	mkdir --parents build
	exec > >(tee build/vm_test.log) 2>&1
	exec setpriv --pdeathsig KILL tools/clean_root.sh vm-steps
fi
provision
make_disk
DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends qemu-system-x86
boot | tee /var/image/console || status=1
echo
grep --text '^vm test: [PF]A' /var/image/console
[ "$(grep --text --count '^vm test: PASS' /var/image/console)" = "$(steps | wc --lines)" ] || status=1
exit "$status"
