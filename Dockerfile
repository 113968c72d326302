# The image: dependencies first, so that a change of the sources compiles those alone; then a wheel; then a slim last stage.
#
#     docker build -t streamd .                    or  docker buildx bake    (deploy/docker-bake.hcl: amd64 and arm64)
#     docker run -p 6379:6379 streamd              or  ... streamd redis-server --requirepass secret
#
# BASE is any Debian 12 or newer, or an image made from one, with or without Python. docs/image.md says what the image takes.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
RUN set -eu; \
    wanted="gcc libc6-dev"; \
    command -v python3 >/dev/null || wanted="$wanted python3 python3-venv python3-dev"; \
    apt-get update -qq; \
    apt-get install -y -qq --no-install-recommends $wanted >/dev/null; \
    rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY deploy/image/dependencies pyproject.toml ./
RUN python3 -m venv /build && ./dependencies build | xargs -d '\n' /build/bin/pip install -q --no-cache-dir \
    && ./dependencies run | xargs -d '\n' /build/bin/pip wheel -q --no-cache-dir --wheel-dir /wheels/dependencies
COPY . .
RUN /build/bin/pip wheel -q --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels/streamd .

FROM ${BASE}
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="streamd" \
      org.opencontainers.image.description="A Redis-protocol server for streams and publish/subscribe" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN set -eu; \
    if ! command -v python3 >/dev/null; then \
        apt-get update -qq; \
        apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    useradd --system --user-group --home-dir /data --no-create-home streamd; \
    mkdir /data; \
    chown streamd:streamd /data; \
    chmod 1777 /data; \
    python3 -m venv /opt/streamd
RUN --mount=type=bind,from=build,source=/wheels/dependencies,target=/wheels \
    /opt/streamd/bin/pip install -q --no-cache-dir --no-index /wheels/*.whl
RUN --mount=type=bind,from=build,source=/wheels/streamd,target=/wheels \
    /opt/streamd/bin/pip install -q --no-cache-dir --no-index --no-deps /wheels/*.whl \
    && ln -s streamd-server /opt/streamd/bin/redis-server \
    && ln -s streamd-cli /opt/streamd/bin/redis-cli
ENV PATH=/opt/streamd/bin:$PATH
WORKDIR /data
VOLUME /data
EXPOSE 6379
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5m --retries=3 \
    CMD ["python3", "-m", "streamd.cli.container", "--health"]
ENTRYPOINT ["python3", "-m", "streamd.cli.container"]
CMD ["redis-server"]
