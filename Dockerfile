# The lab with its servers in it. Two targets:
#   docker build -t wal-lab .                            what measuring needs: no compiler, no source
#   docker build -t wal-lab:builder --target builder .   to build a reviewer's own patch
# Plain instructions only, which BuildKit, the classic builder and buildah all know. Mounts of
# a cache, which only BuildKit has everywhere, would not save more than an earlier builder does,
# which carries its caches anyway:
#   docker build -t wal-lab:builder --target builder --build-arg CACHE=wal-lab:builder .
ARG BASE=debian:bookworm-slim
# An image with a warm cache in /var/cache/wal-lab (sources, ccache); without one it begins empty.
ARG CACHE

FROM ${CACHE:-${BASE}} AS given

# What is given may have no shell.
FROM ${BASE} AS cache
COPY --from=given /var/cache /given
RUN mkdir -p /given/wal-lab

FROM ${BASE} AS builder
# Read by pip, for a network that has Python's packages elsewhere.
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ENV LANG=C.UTF-8 \
    WALLAB_CACHE=/var/cache/wal-lab \
    WALLAB_RESULTS=/results \
    WALLAB_IMAGE=builder
WORKDIR /opt/wal-lab
# What changes rarely comes first: packages, Python's packages, the drive.
COPY requirements.txt ./
COPY scripts/setup scripts/
COPY wallab/__init__.py wallab/errors.py wallab/paths.py wallab/
COPY wallab/machine/__init__.py wallab/machine/provision.py wallab/machine/
COPY drive drive
COPY direct_cp direct_cp
RUN scripts/setup build drive filesystems && rm -rf /var/lib/apt/lists/* /root/.cache && mkdir -p /results
COPY --from=cache /given/wal-lab /var/cache/wal-lab
COPY . .
# The kernel and the emulator of virtual machines.
RUN scripts/setup virtual && rm -rf /var/lib/apt/lists/* /root/.cache
# A major version, or a tarball in this folder.
ARG SOURCE=18
# Names of variants, or all.
ARG VARIANTS=all
# Of the lab, since .git stays outside.
ARG REVISION=unknown
ENV WALLAB_REVISION=${REVISION} \
    WALLAB_SOURCE=${SOURCE}
# Builds run as users of their own also here, where there is no other sandbox than the container.
# Who names a tarball for an image trusts it: only that may be built with the network there is.
# VARIANTS is a list of words.
# hadolint ignore=SC2086
RUN case "${SOURCE}" in *[!0-9]*) export WALLAB_NO_SANDBOX=1 ;; esac \
    && scripts/build-variant ${VARIANTS} --source "${SOURCE}"
ENTRYPOINT ["/opt/wal-lab/.venv/bin/python", "-m", "wallab.command.entry"]
CMD ["run-matrix"]

# Less what only compiling and testing need; files that variants have in common are kept once.
FROM builder AS pruned
RUN find build -type f \( -path '*/bin/*' -o -name '*.so*' \) \
        -exec strip --strip-unneeded '{}' + \
    && rm -rf build/*/*/include build/*/*/lib/pgxs build/*/*/lib/pkgconfig \
        build/*/*/share/doc build/*/*/share/man \
    && find build -name '*.a' -delete \
    && hardlink --quiet --ignore-time build \
    && rm -rf tests benchmarks docs results/example-* .venv/lib/python3*/site-packages/pip* \
        .venv/lib/python3*/site-packages/setuptools* .venv/lib/python3*/site-packages/pkg_resources \
    && find .venv -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf '{}' + \
    && mkdir -p /kept/opt \
    && find /var/cache/wal-lab/drive -name 'wal-drive' -path '*/drive/*/wal-drive' \
        -not -path '*/build/*' -exec cp --parents '{}' /kept \; \
    && find /var/cache/wal-lab/virtual -maxdepth 1 \( -name 'kernel-*' -o -name 'python-*' \) \
        -exec cp -a --parents '{}' /kept \; \
    && find /var/cache/wal-lab/turns -maxdepth 2 -name 'turns.so' -exec cp --parents '{}' /kept \; \
    && find /var/cache/wal-lab/direct_cp -type f -name direct_cp \
        -not -path '*/build/*' -exec cp --parents '{}' /kept \; \
    && cp -a /opt/wal-lab /kept/opt/

FROM ${BASE} AS lab
ARG SOURCE=18
ARG REVISION=unknown
LABEL org.opencontainers.image.title="WAL lab" \
      org.opencontainers.image.description="PostgreSQL's wal_sync_method × drive write cache, patched and measured" \
      org.opencontainers.image.licenses="PostgreSQL" \
      org.opencontainers.image.revision=${REVISION}
ENV LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    WALLAB_CACHE=/var/cache/wal-lab \
    WALLAB_RESULTS=/results \
    WALLAB_IMAGE=lab \
    WALLAB_REVISION=${REVISION} \
    WALLAB_SOURCE=${SOURCE}
# Debian's own release is what is pinned; its fixes are wanted. Only xfs_scrub, which nobody runs
# here, needs ICU, the largest library of all.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        btrfs-progs e2fsprogs libfuse3-3 liblz4-1 libreadline8 liburing2 libzstd1 mount procps python3 \
        qemu-system-x86 xfsprogs zlib1g \
    && rm -rf /var/lib/apt/lists/* /usr/lib/*/libicu* \
    && useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin wallab \
    && mkdir /results
COPY --from=pruned /kept /
WORKDIR /opt/wal-lab
ENTRYPOINT ["/opt/wal-lab/.venv/bin/python", "-m", "wallab.command.entry"]
CMD ["run-matrix"]
