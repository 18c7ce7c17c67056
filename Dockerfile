# weft with all that it needs, also the kernel for virtual time:  make image
#
# As a user without rights, exact and repeatable.  Docker's default filter forbids a kernel to choose its
# addresses (personality(2)), on which exact repetition rests; hence the option:
#   docker run --rm --security-opt seccomp=unconfined weft
# Networks in real time make namespaces, qdiscs and eBPF programs in the kernel that the container runs on:
#   docker run --rm --privileged --user root weft weft run first_light --clock real
# Results that are to stay:  -v "$PWD/results:/home/weft/results"
FROM debian:12 AS weft
WORKDIR /weft
COPY . .
RUN apt-get update --quiet \
	&& apt-get install --yes --quiet --no-install-recommends ca-certificates make \
	&& make setup \
	&& rm --recursive --force /var/lib/apt/lists/*

# The compiler's packages and the kernel's source stay behind in this stage.
FROM weft AS kernel
RUN make uml-kernel

FROM weft
COPY --from=kernel /var/cache/weft /var/cache/weft
RUN useradd --create-home weft
USER weft
WORKDIR /home/weft
ENV PATH=/weft/.venv/bin:$PATH
CMD ["weft", "run", "first_light", "--clock", "virtual"]
