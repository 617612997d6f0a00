# docker build -t ragbench . && docker run -v "$PWD/runs:/data/runs" ragbench eval --program ircot
FROM python:3.11-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY ragbench ragbench
RUN pip install --no-cache-dir '.[all]'
RUN useradd --create-home ragbench && mkdir /data && chown ragbench /data
USER ragbench
WORKDIR /data
ENTRYPOINT ["ragbench"]
CMD ["--help"]
