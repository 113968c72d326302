FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python -m venv /opt/streamd && /opt/streamd/bin/pip install --no-cache-dir .

FROM python:3.13-slim
COPY --from=build /opt/streamd /opt/streamd
ENV PATH=/opt/streamd/bin:$PATH
RUN useradd --system --home-dir /data streamd && mkdir -p /data && chown streamd /data
USER streamd
WORKDIR /data
VOLUME /data
EXPOSE 6379
STOPSIGNAL SIGTERM
# Clients of a container come from other hosts; arguments of one's own replace the last line.
ENTRYPOINT ["streamd", "server"]
CMD ["--protected-mode", "no"]
