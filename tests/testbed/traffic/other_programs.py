"""Run programs of other people between two hosts: python other_programs.py FOLDER NAME...

Prints `NAME ok`, or `NAME` and the reason, for each.  Under the virtual clock it runs inside the
kernel for virtual time.  The folder has what prepare() made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from weft.testbed.linux import clock
from weft.testbed.network import clean
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import node_command
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

WAIT_S = 60.0
OPENSSL = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=h1 -keyout tls.key -out tls.crt"
GO = """package main
import ("fmt"; "io"; "net"; "os")
func main() {
	if os.Args[1] == "serve" {
		listener, _ := net.Listen("tcp", ":7000")
		for { connection, _ := listener.Accept(); go io.Copy(connection, connection) }
	}
	connection, err := net.Dial("tcp", "h1:7000")
	if err != nil { panic(err) }
	go connection.Write(make([]byte, 100000))
	count, _ := io.ReadFull(connection, make([]byte, 100000))
	fmt.Println("echoed", count)
}
"""
JAVA = """import java.io.*; import java.net.*;
class Echo {
	public static void main(String[] words) throws Exception {
		if (words[0].equals("serve")) {
			Socket caller = new ServerSocket(7001).accept();
			caller.getInputStream().transferTo(caller.getOutputStream());
			return;
		}
		Socket socket = new Socket("h1", 7001);
		new Thread(() -> {
			try { socket.getOutputStream().write(new byte[100000]); }
			catch (IOException error) { throw new RuntimeException(error); }
		}).start();
		System.out.println("echoed " + socket.getInputStream().readNBytes(100000).length);
		System.exit(0);
	}
}
"""
NGINX = """daemon off; worker_processes 1; error_log stderr; pid {0}/nginx.pid;
events {{}} http {{ access_log off; client_body_temp_path {0}; proxy_temp_path {0};
fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0};
server {{ listen 8080; location / {{ return 200 "weft"; }} }} }}
"""
SSHD = """Port 2222
HostKey {0}/key
AuthorizedKeysFile {0}/key.pub
StrictModes no
UsePAM no
PidFile none
"""


@dataclass(frozen=True)
class Program:
    """A server at h1, its port, a client at h0, and a pattern in the client's output.

    `{0}` is the folder.
    """

    server: str
    port: int
    client: str
    pattern: str
    needs: tuple[str, ...]


PROGRAMS = {
    "iperf": Program("iperf -s", 5001, "iperf -c h1 -t 1", "bits/sec", ("iperf",)),
    "iperf3": Program("iperf3 -s -1", 5201, "iperf3 -c h1 -t 1", "receiver", ("iperf3",)),
    "nuttcp": Program("nuttcp -S --nofork", 5000, "nuttcp -T1 h1", "Mbps", ("nuttcp",)),
    "qperf": Program("qperf", 19765, "qperf -t 1 h1 tcp_bw", "bw", ("qperf",)),
    "redis": Program(
        "redis-server --save '' --protected-mode no",
        6379,
        "redis-benchmark -h h1 -n 500 -c 5 -t set,get -q",
        "GET: .*requests per second",
        ("redis-server", "redis-benchmark"),
    ),
    "nginx, ab": Program(
        "nginx -c {0}/nginx.conf",
        8080,
        "ab -n 200 -c 4 http://h1:8080/",
        "Complete requests: +200",
        ("nginx", "ab"),
    ),
    "nginx, wrk": Program(
        "nginx -c {0}/nginx.conf",
        8080,
        "wrk -t 1 -c 4 -d 1s http://h1:8080/",
        "Requests/sec",
        ("nginx", "wrk"),
    ),
    "memcached": Program(
        "memcached -u root",
        11211,
        "memcslap --servers=h1 --concurrency=2 --execute-number=50",
        "Took|seconds",
        ("memcached", "memcslap"),
    ),
    "ssh": Program(
        "/usr/sbin/sshd -D -e -f {0}/sshd.conf",
        2222,
        "ssh -i {0}/key -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
        "root@h1 hostname",
        "^h1$",
        ("sshd", "ssh"),
    ),
    "Go": Program("{0}/echo serve", 7000, "{0}/echo call", "echoed 100000", ("go",)),
    "Java": Program(
        "java -cp {0} Echo serve", 7001, "java -cp {0} Echo call", "echoed 100000", ("javac",)
    ),
    "QUIC (ngtcp2)": Program(
        "gtlsserver -d {0} '*' 4433 {0}/tls.key {0}/tls.crt",
        4433,
        "gtlsclient --exit-on-all-streams-close h1 4433 https://h1:4433/nginx.conf",
        "status.*200",
        ("gtlsserver", "gtlsclient", "openssl"),
    ),
}


def missing(name: str) -> list[str]:
    """Return what a program needs and this machine has not."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    return [need for need in PROGRAMS[name].needs if not shutil.which(need, path=path)]


def prepare(folder: Path, names: list[str]) -> None:
    """Write and compile what the programs need."""
    (folder / "nginx.conf").write_text(NGINX.format(folder))
    (folder / "sshd.conf").write_text(SSHD.format(folder))
    (folder / "echo.go").write_text(GO)
    (folder / "Echo.java").write_text(JAVA)
    makers = {
        "ssh": ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"],
        "Go": ["go", "build", "-o", "echo", "echo.go"],
        "Java": ["javac", "Echo.java"],
        "QUIC (ngtcp2)": OPENSSL.split(),
    }
    environment = os.environ | {"GOCACHE": str(folder / "go"), "GO111MODULE": "off"}
    for name in names:
        if name in makers:
            subprocess.run(
                makers[name], cwd=folder, env=environment, check=True, capture_output=True
            )


def outcome(network: RunningNetwork, folder: Path, program: Program) -> str:
    """Return `ok`, or why the client failed."""
    environment = os.environ | node_command.environment(network.run)
    commands = [
        node_command.command(network.run, node, ["sh", "-c", f"exec {line.format(folder)}"])
        for node, line in (("h1", program.server), ("h0", program.client))
    ]
    log = folder / "server.log"
    with open(log, "wb") as errors:
        server = subprocess.Popen(
            commands[0], env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
        )
    try:
        clock.wait_until(
            "the server listens", lambda: listens(network, program.port), timeout_s=WAIT_S
        )
        done = subprocess.run(
            commands[1],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=WAIT_S,
        )
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        return f"{error} {log.read_text()[-300:]}"
    finally:
        clean.kill(clean.processes(network.run.id, network.run.journal["namespaces"]))
        server.wait()
    if re.search(program.pattern, done.stdout, re.MULTILINE):
        return "ok"
    return f"status {done.returncode}: {done.stdout[-300:]} {log.read_text()[-300:]}"


def listens(network: RunningNetwork, port: int) -> bool:
    """Return True if a socket at h1 listens at `port`."""
    argv = ["ss", "-Hltun", f"sport = :{port}"]
    command = node_command.command(network.run, "h1", argv)
    return bool(subprocess.run(command, capture_output=True, check=True).stdout)


def main(folder: Path, names: list[str]) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    try:
        Path("/etc/shadow").read_bytes()
    except PermissionError:  # a confined kernel cannot read passwords, and sshd asks for root's
        Path("/run/shadow").write_text("root:*:19000:0:99999:7:::\n")
        subprocess.run(["mount", "--bind", "/run/shadow", "/etc/shadow"], check=True)
    link = LinkSpec(rate_bps=10 * Mbps, queue_packets=250)
    for name in names:
        network = RunningNetwork.create(build("star:n=2"), link, scheme="static")
        try:
            words = outcome(network, folder, PROGRAMS[name])
        finally:
            network.down()
        print(name, " ".join(words.split()), sep="\t", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
