# The lab with its servers in it. Two targets:
#   docker build -t wal-lab .                            what measuring needs: no compiler, no source
#   docker build -t wal-lab:builder --target builder .   to build a reviewer's own patch
# Plain instructions only, so that BuildKit, the classic builder and buildah all build it; the
# compiler's cache is therefore a folder of the builder, which it needs to carry anyway.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS builder
# A major version, or a tarball in this folder.
ARG SOURCE=18
# Names of variants, or all.
ARG VARIANTS=all
# Of the lab, since .git stays outside.
ARG REVISION=unknown
ENV LANG=C.UTF-8 \
    WALLAB_CACHE=/var/cache/wal-lab \
    WALLAB_RESULTS=/results \
    WALLAB_IMAGE=builder \
    WALLAB_REVISION=${REVISION} \
    WALLAB_SOURCE=${SOURCE}
WORKDIR /opt/wal-lab
# What changes rarely comes first: packages, Python's packages, the drive.
COPY requirements.txt ./
COPY scripts/setup scripts/
COPY wallab/__init__.py wallab/paths.py wallab/provision.py wallab/
COPY drive drive
COPY direct_cp direct_cp
RUN scripts/setup build drive && rm -rf /var/lib/apt/lists/*
COPY . .
# VARIANTS is a list of words.
# hadolint ignore=SC2086
RUN scripts/build-variant ${VARIANTS} --source "${SOURCE}" && mkdir -p /results
ENTRYPOINT ["/opt/wal-lab/.venv/bin/python", "-m", "wallab.command.entry"]
CMD ["run-matrix"]

# Less what only compiling needs; files that variants have in common are kept once.
FROM builder AS pruned
RUN find build -type f \( -path '*/bin/*' -o -name '*.so*' \) \
        -exec strip --strip-unneeded '{}' + \
    && rm -rf build/*/*/include build/*/*/lib/pgxs build/*/*/lib/pkgconfig \
        build/*/*/share/doc build/*/*/share/man \
    && find build -name '*.a' -delete \
    && hardlink --quiet --ignore-time build \
    && rm -rf .venv/lib/python3*/site-packages/pip* \
    && find .venv -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf '{}' + \
    && mkdir /kept \
    && find /var/cache/wal-lab/drive -name 'wal-drive' -path '*/drive/*/wal-drive' \
        -not -path '*/build/*' -exec cp --parents '{}' /kept \; \
    && find /var/cache/wal-lab/direct_cp -type f -name direct_cp \
        -not -path '*/build/*' -exec cp --parents '{}' /kept \; \
    && cp -a --parents /opt/wal-lab /kept

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
# Debian's own release is what is pinned; its fixes are wanted.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        btrfs-progs e2fsprogs libfuse3-3 liblz4-1 libreadline8 liburing2 libzstd1 mount procps python3 \
        xfsprogs zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin wallab \
    && mkdir /results
COPY --from=pruned /kept /
WORKDIR /opt/wal-lab
ENTRYPOINT ["/opt/wal-lab/.venv/bin/python", "-m", "wallab.command.entry"]
CMD ["run-matrix"]
