# Each target does all of its own set-up: a virtual environment, the install, the job.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: eval test test-all check unit docs clean

eval: $(STAMP)  ## 20 embedded questions with vanilla and IRCoT on the local model, compared
	$(BIN)/ragbench eval --program vanilla --out runs/vanilla
	$(BIN)/ragbench eval --program ircot --out runs/ircot
	$(BIN)/ragbench compare runs/vanilla runs/ircot

test: check unit  ## every check and every test

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-all: check  ## what a release needs: also kills, hostile servers, disks, every variant
	$(BIN)/python -m pytest -n auto --dist loadgroup -m 'slow or not slow'

docs: $(STAMP)  ## the documentation as a site, in build/site
	$(BIN)/mkdocs build --quiet

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build *.egg-info
