# `make` prints the targets that have a comment beginning with ##.
PYTHON := .venv/bin/python
# What pytest makes of tests is kept from one run to the next: to make it again takes longer than most tests.
PYTEST := env --unset=PYTHONDONTWRITEBYTECODE $(PYTHON) -m pytest
# Optional parts that tests do without, as if this machine lacked them: make test WITHOUT=virtual.
WITHOUT :=
ABSENT := $(WITHOUT:%=--without=%)
READY := .venv/.ready
SUDO := $(if $(filter-out 0,$(shell id --user)),sudo --preserve-env=CI env PYTHONDONTWRITEBYTECODE=1)
MACHINE := $(shell uname --machine)
BPF_MACHINE := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(MACHINE)))
BPF_OBJECTS := $(patsubst %.c,%.o,$(wildcard testbed/*/*.bpf.c))
LIBRARIES := testbed/uml/uml_preload.so testbed/traffic/libndp.so
CAMPAIGNS := 1000
SAMPLE := 20
SEED := $(shell date +%s)
CONTAINERS := docker
BENCHES := $(patsubst bench/%.py,bench.%,$(filter-out bench/__init__.py bench/report.py,$(wildcard bench/*.py)))

# Tests are told apart by the markers of pyproject.toml. Those for User-Mode Linux start two instances of it themselves.
PURE := not kernel and not uml and not virtual
ON_KERNEL := kernel and not uml and not virtual
UNDER_UML := uml or virtual
# Tests of the instruments, which both clocks must pass; make test-virtual runs all kernel tests in virtual time.
ON_BOTH_CLOCKS := tests/testbed/measure tests/testbed/traffic tests/testbed/network/test_delay.py
ALL_CORES := --numprocesses=logical --dist=loadfile
# Kernel tests wait for timers most of their time.
TWO_A_CORE := --numprocesses=$(shell echo $$((2 * $$(nproc)))) --dist=loadfile
# On a kernel that others use, a test that fails is run once more, and the summary names it.
ONCE_MORE := --reruns=1 -rfER

help:
	@sed --quiet --regexp-extended 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | expand --tabs=19

setup: $(READY) bpf ## install what weft needs: packages with apt-get, the Python environment in .venv

demo: setup ## a DCell of routing daemons on this kernel: converge, ping all pairs, lose a link, recover
	$(SUDO) .venv/bin/weft run first_light
	@echo 'Next, watch one and break it: sudo weft up dcell:n=4,k=1 --rate 20mbit --detach demo --view'

check: $(READY) $(LIBRARIES) ## style, types, and the quick tests that need no root; about a minute
	$(MAKE) --no-print-directory --jobs=3 style types quick-tests

style: $(READY)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/clang-format --dry-run -Werror $(wildcard testbed/*/*.[ch] tests/*/*.c tests/*/*/*.c)
	.venv/bin/oxlint

types: $(READY)
	.venv/bin/mypy

quick-tests: $(READY) $(LIBRARIES)
	$(PYTEST) $(ALL_CORES) $(ABSENT) -m "$(PURE) and not slow"

test: setup check kernel-tests ## what shows that weft works here: check, then tests as root; 12 minutes at most

kernel-tests: setup
	$(SUDO) $(PYTHON) -m pytest $(TWO_A_CORE) $(ONCE_MORE) $(ABSENT) -m "$(ON_KERNEL) and not slow"
	$(SUDO) $(PYTHON) -m pytest $(ONCE_MORE) $(ABSENT) -m "($(UNDER_UML)) and not slow"

# Ubuntu has no source of the kernel for virtual time.
test-all: setup ## every test: first as on a fresh machine, then what is slow or in virtual time; 40 minutes at most
	$(MAKE) --no-print-directory test WITHOUT=virtual
	if [ -n "$$(apt-cache show linux-source-6.12 2>/dev/null)" ]; then $(MAKE) --no-print-directory uml-kernel virtual-tests; fi
	$(PYTEST) $(ALL_CORES) -m "$(PURE) and slow"
	$(SUDO) $(PYTHON) -m pytest $(ALL_CORES) $(ONCE_MORE) -m "$(ON_KERNEL) and slow"

virtual-tests: setup
	$(PYTHON) -m pytest --clock virtual $(ONCE_MORE) $(ON_BOTH_CLOCKS)
	$(SUDO) $(PYTHON) -m pytest $(ONCE_MORE) -m "virtual or uml and slow"

test-clean: ## demo and test on a fresh clone in a clean Debian 12, as a user of its own with sudo; needs root
	$(if $(SUDO),sudo --preserve-env) tools/clean_root.sh --user demo test

vm-test: ## the demo and some tests on the machine of `vagrant up`, emulated, with Debian's own kernel; needs root
	$(if $(SUDO),sudo --preserve-env) tools/vm_test.sh

vm-steps:
	tools/vm_test.sh

test-virtual: setup uml-kernel ## the kernel tests under the virtual clock, each file on a kernel of its own
	$(PYTHON) -m pytest --clock virtual

uml-kernel: $(READY) ## build the kernel for virtual time from Debian's source, once: 7 minutes of processor time
	tools/setup.sh --uml-kernel
	$(SUDO) $(PYTHON) -m weft.testbed.uml.virtual_kernel

kernel-wheel: uml-kernel ## that kernel as a wheel in dist/, for machines that do not build it
	$(PYTHON) -m weft.testbed.uml.kernel_wheel dist

test-mininet: setup ## which of Mininet 2.3's own tests pass on our networks; about three minutes
	$(SUDO) $(PYTHON) -m tests.mininet_suite

chaos: $(READY) ## campaigns of random faults in the simulator; CAMPAIGNS for each kind of daemon, SEED draws them
	$(PYTEST) $(ALL_CORES) tests/chaos/test_simulated.py -k every_campaign --campaigns $(CAMPAIGNS) --hypothesis-seed=$(SEED)

fuzz: $(READY) ## ten million hostile messages to daemons of every scheme, and to the transport in C, a million to agents; as many flows over networks at random, with threads, too; an hour
	$(PYTHON) -m tests.fuzz.hostile_datagrams
	$(PYTHON) -m tests.fuzz.hostile_messages
	$(PYTHON) -m tests.fuzz.hostile_peers
	$(PYTHON) -m tests.fuzz.hostile_networks
	$(PYTHON) -m tests.fuzz.hostile_networks --sanitizer thread --flows 50000
	if $(PYTHON) -c 'import atheris' 2>/dev/null; then $(PYTHON) -m tests.fuzz.coverage_guided; fi # pip install '.[fuzz]'

mutants: $(READY) $(LIBRARIES) ## plant SAMPLE faults in ROOM, such as testbed/labs, and print those that its tests let pass
	$(PYTHON) tools/mutants.py $(ROOM) --sample $(SAMPLE) --seed $(SEED) $(MUTANTS)

bench: setup $(BENCHES) ## how fast it is, beside Mininet and beside what was asked for

$(BENCHES): setup
	$(SUDO) $(PYTHON) -m $@

figures: $(READY) ## draw every figure again from the published results
	.venv/bin/weft plot --results results/published --output figures

pages: $(READY) ## write the tables of claims in README and docs/ from the published results
	.venv/bin/weft claims --write

docs: $(READY) ## the documentation as a site, docs/_build/index.html
	.venv/bin/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	$(PYTHON) -m sphinx --quiet --fail-on-warning --builder html docs docs/_build
	@echo docs/_build/index.html

image: ## a container with all of it, also the kernel for virtual time; with CONTAINERS=podman, too
	$(CONTAINERS) build --tag weft .

dist: setup ## a wheel for this machine and an archive of the sources, in dist/
	rm --recursive --force build dist
	$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >/dev/null
	@ls --human-readable --size -1 dist

# A program that runs keeps the file that it began with.
bpf: $(BPF_OBJECTS) $(LIBRARIES) ## compile the eBPF programs, and the libraries in C

testbed/%.bpf.o: testbed/%.bpf.c $(wildcard testbed/data_plane/*.h) | $(READY)
	@echo compile $@
	@clang -O2 -g -Wall -Werror=switch -target bpf -mcpu=v3 -fdebug-compilation-dir=. -D__TARGET_ARCH_$(BPF_MACHINE) -I/usr/include/$(MACHINE)-linux-gnu -c $< -o $@.new
	@mv $@.new $@

testbed/data_plane/select_probe.bpf.o testbed/data_plane/select_blind.bpf.o: testbed/data_plane/select.bpf.c

testbed/uml/uml_preload.so: $(wildcard testbed/uml/*.c) | $(READY)
	@echo compile $@
	@gcc -O2 -Wall -shared -fPIC -o $@.new $^
	@mv $@.new $@

testbed/traffic/libndp.so: $(wildcard testbed/traffic/*.[ch] testbed/packets/*.[ch] testbed/data_plane/*.h) | $(READY)
	@echo compile $@
	@gcc -std=gnu11 -O3 -Wall -Wextra -Werror=switch -shared -fPIC -o $@.new $(filter %.c,$^)
	@mv $@.new $@

$(READY): tools/setup.sh constraints.txt pyproject.toml
	tools/setup.sh
	touch $@

clean: ## remove what make has made
	rm --recursive --force .venv build dist docs/_build docs/reference *.egg-info .mypy_cache .ruff_cache .hypothesis .numba_cache $(BPF_OBJECTS) $(LIBRARIES)
	find . -name __pycache__ -prune -exec rm --recursive {} +

.PHONY: help vm-test vm-steps setup demo check style types quick-tests test kernel-tests virtual-tests test-all test-clean test-mininet chaos fuzz mutants test-virtual uml-kernel kernel-wheel bench $(BENCHES) figures pages docs image dist bpf clean
