# The image of the gateway, for CPUs (--target cpu) and for an NVIDIA GPU (--target gpu). docs/deployment.md tells how it
# is run. Compilers are in stages that are thrown away; the last stages have Python and what `pip install` made,
# that of GPUs a C compiler too.

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv --without-pip /opt/headgate
ENV PIP_PYTHON=/opt/headgate/bin/python \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# torch comes first: a change of ours leaves these layers as they are. Name the index of PyTorch's builds for CPUs as
# TORCH_INDEX: without CUDA it is a tenth of the size. None: what pip's own index has.
FROM tools AS torch-cpu
ARG TORCH_INDEX=
RUN pip install 'torch>=2.11,<2.14' ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"}

FROM tools AS torch-gpu
RUN pip install 'torch>=2.11,<2.14'

# The kernels are compiled here, against this torch. A build that could not compile them ends here, instead of being slow
# in use; which instructions they use is settled when the process starts.
FROM torch-cpu AS build-cpu
RUN pip install 'setuptools>=77' wheel
COPY pyproject.toml setup.py README.md LICENSE ./
COPY headgate headgate
RUN pip install --no-build-isolation '.[embedded]'
RUN cd / && /opt/headgate/bin/python -c "from headgate.engine.kernels.cpu.kernels import native_status as s; raise SystemExit(None if s().usable else s().why)"
RUN pip uninstall --yes setuptools wheel

FROM torch-gpu AS build-gpu
RUN pip install 'setuptools>=77' wheel
COPY pyproject.toml setup.py README.md LICENSE ./
COPY headgate headgate
RUN pip install --no-build-isolation '.[embedded]'
RUN cd / && /opt/headgate/bin/python -c "from headgate.engine.kernels.cpu.kernels import native_status as s; raise SystemExit(None if s().usable else s().why)"

# What both have in common. Everything that is written is in the two volumes and in /tmp, so that the root file system can
# be read-only: /var/lib/headgate has the ledger, files of batches and the team files, /models what hubs send.
FROM ${PYTHON_IMAGE} AS runtime
RUN pip uninstall --yes --root-user-action=ignore setuptools wheel pip \
    && groupadd --gid 10001 headgate \
    && useradd --uid 10001 --gid headgate --no-create-home --home-dir /var/lib/headgate --shell /usr/sbin/nologin headgate \
    && install --directory --owner=headgate --group=headgate --mode=0700 /var/lib/headgate /models
COPY --chown=headgate:headgate config/stack/teams /var/lib/headgate/teams
COPY config/stack/headgate.yaml /etc/headgate/headgate.yaml
ENV PATH=/opt/headgate/bin:${PATH} \
    HOME=/var/lib/headgate \
    HF_HOME=/models \
    HEADGATE_CONFIG=/etc/headgate/headgate.yaml \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/headgate
VOLUME ["/var/lib/headgate", "/models"]
EXPOSE 8000
# /ready is 200 once models are loaded, and 503 while requests are drained. Docker hands containers the proxies of its
# client's configuration: they are not asked for this.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=2s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:8000/ready', timeout=4)"]
USER headgate
ENTRYPOINT ["headgate"]
CMD ["serve"]

FROM runtime AS cpu
COPY --from=build-cpu /opt/headgate /opt/headgate

FROM runtime AS gpu
# Triton compiles what launches the engine's kernels when it first does.
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER headgate
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /opt/headgate /opt/headgate
