# Two images from one file:
#   docker build -t compileboard .                          the dashboard, without torch (default)
#   docker build -t compileboard-collector --target collector .   the collector, on a torch image
# The steps are the README's: install, then serve (which makes a missing database) or run.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm
ARG TORCH_IMAGE=pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime

FROM ${TORCH_IMAGE} AS collector
WORKDIR /opt/compileboard
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY compileboard compileboard
COPY app app
COPY collectors collectors
COPY templates templates
COPY static static
# The image's torch stays as it is: constraints without torch.
RUN grep -v '^torch==' constraints.txt > /tmp/constraints.txt \
 && python -m pip install --no-cache-dir -c /tmp/constraints.txt '.[collector]'
WORKDIR /workspace
ENV COMPILEBOARD_HOME=/data/state
VOLUME /data
ENTRYPOINT ["compileboard-collect"]
CMD ["--help"]

FROM ${PYTHON_IMAGE} AS web
WORKDIR /opt/compileboard
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY compileboard compileboard
COPY app app
COPY collectors collectors
COPY templates templates
COPY static static
RUN python -m pip install --no-cache-dir -c constraints.txt '.[server]' \
 && useradd --create-home --uid 1000 compileboard \
 && install -d -o compileboard /data
USER compileboard
WORKDIR /data
# For `docker run -p 127.0.0.1:8000:8000`. To let others in: -e COMPILEBOARD_ALLOW_HOST=the.name.they.use; changes
# need a token (docs/access.md), and so does reading with -e COMPILEBOARD_READING=tokens.
ENV COMPILEBOARD_HOME=/data/state COMPILEBOARD_ALLOW_HOST=localhost
VOLUME /data
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
ENTRYPOINT ["compileboard"]
CMD ["serve", "--db", "/data/compileboard.db", "--host", "0.0.0.0", "--port", "8000"]
