# Each target does all of its own set-up: a virtual environment, the install, the job.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCAL := $(VENV)/.installed-local
CORE := $(VENV)/.installed-core
INSTALL = $(BIN)/python -m pip install --constraint constraints.txt

.PHONY: demo eval test test-all check unit docs clean

demo: $(CORE)  ## the page of recorded runs; asks no model
	$(BIN)/ragbench report --demo

eval: $(LOCAL)  ## 10 embedded questions with vanilla and IRCoT on the local model, compared
	@echo "1/3 vanilla: one call a question; the first run fetches the model (491 MB)"
	$(BIN)/ragbench eval --program vanilla --limit 10 --out runs/vanilla
	@echo "2/3 ircot: a search after every sentence; a minute or two more"
	$(BIN)/ragbench eval --program ircot --limit 10 --out runs/ircot
	@echo "3/3 the two compared, from their records"
	$(BIN)/ragbench compare runs/vanilla runs/ircot

test: check unit  ## every check and every test

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: check  ## what a release needs: also kills, hostile servers, disks, every variant
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'slow or not slow'

docs: $(STAMP)  ## the documentation as a site, in build/site
	$(BIN)/zensical build --strict

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --quiet --editable '.[dev]'
	touch $@ $(LOCAL) $(CORE)

# What a local model needs, and no more: no linters, no browser.
$(LOCAL): pyproject.toml constraints.txt
	@echo "creating a virtual environment in $(VENV), about a minute"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[local]'
	touch $@ $(CORE)

# The core asks no model. pip shows its progress, and compiles no file that the page does not import.
$(CORE): pyproject.toml constraints.txt
	@echo "creating a virtual environment in $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-compile --editable .
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build *.egg-info
