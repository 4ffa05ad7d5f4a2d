# The dashboard for a whole class. docs/hosting.md tells how to build and run it.
FROM python:3.11-slim

# Index with the CPU build of torch. Empty: the default index, whose build brings CUDA, several GB.
ARG TORCH_INDEX=

ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1

# Nobody else owns anything here but /data.
RUN useradd --uid 1000 --no-create-home --shell /usr/sbin/nologin attnkit \
    && install --directory --owner=attnkit --group=attnkit /data

WORKDIR /app

# Dependencies first: a change of the code does not install them anew.
COPY requirements.txt pyproject.toml ./
RUN if [ -n "$TORCH_INDEX" ]; then \
        pip install --index-url "$TORCH_INDEX" "$(grep '^torch==' requirements.txt)"; \
    fi \
    && python -c 'import tomllib; pins = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"]; print(*[pin for pin in pins if pin.startswith("psycopg")], sep="\n")' > /tmp/postgres.txt \
    && pip install --requirement requirements.txt --requirement /tmp/postgres.txt \
    && rm /tmp/postgres.txt

COPY .streamlit/config.toml .streamlit/
COPY dashboard.py ./
COPY pages pages/
COPY docs/lessons docs/lessons/
COPY attnkit attnkit/
RUN python -m compileall -q attnkit

# The training kernel, compiled for the processor that builds the image. Its folder can be only read
# at run time, so it is copied to /tmp at the start; on another processor it is compiled anew there.
ENV ATTNKIT_KERNEL_CACHE=/app/kernel
RUN NUMBA_CACHE_DIR="$ATTNKIT_KERNEL_CACHE" python -m attnkit.model.kernel \
    && chmod --recursive a+rX "$ATTNKIT_KERNEL_CACHE"

# At run time nothing is written but below /data and /tmp. Python's own files were compiled above.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp TMPDIR=/tmp
ENV ATTNKIT_HOSTED=true ATTNKIT_STORE=/data
ENV STREAMLIT_SERVER_ADDRESS=0.0.0.0 STREAMLIT_SERVER_PORT=8501

USER 1000:1000
VOLUME /data
EXPOSE 8501

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os; base = os.environ.get('STREAMLIT_SERVER_BASE_URL_PATH', '').strip('/'); connection = http.client.HTTPConnection('127.0.0.1', int(os.environ['STREAMLIT_SERVER_PORT']), timeout=4); connection.request('GET', '/' * bool(base) + base + '/_stcore/health'); raise SystemExit(connection.getresponse().status != 200)"]

CMD ["python", "-m", "streamlit", "run", "dashboard.py", \
     "--server.headless=true", \
     "--server.enableCORS=true", \
     "--server.enableXsrfProtection=true", \
     "--server.fileWatcherType=none", \
     "--server.maxUploadSize=1", \
     "--server.maxMessageSize=20", \
     "--server.maxWidgetStateSize=1", \
     "--server.disconnectedSessionTTL=120", \
     "--client.showErrorDetails=none", \
     "--client.toolbarMode=viewer", \
     "--browser.gatherUsageStats=false", \
     "--logger.hideWelcomeMessage=true"]
