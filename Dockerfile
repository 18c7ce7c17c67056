# weft with all that it needs:  docker build -t weft . && docker run --rm --privileged weft
#
# It makes network namespaces, qdiscs and eBPF programs in the kernel that it runs on, in namespaces of the container's own;
# hence --privileged.  Results that are to stay:  docker run --rm --privileged -v "$PWD/results:/weft/results" weft weft run ...
FROM debian:12

WORKDIR /weft
COPY . .
RUN apt-get update --quiet \
	&& apt-get install --yes --quiet --no-install-recommends ca-certificates make \
	&& make setup \
	&& rm --recursive --force /var/lib/apt/lists/*

ENV PATH=/weft/.venv/bin:$PATH
CMD ["weft", "run", "first_light"]
