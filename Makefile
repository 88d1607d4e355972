# `make demo` and `make test` are all a fresh machine needs: both make the virtual environment they run in.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
DEMO_OUT ?= demo

# The CPU build of torch; where this index cannot be reached, pip takes what its other indexes have.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
INPUTS := setup.cfg pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: demo test lint format type doc clean help

# Small networks on many slots: one thread per process is fastest, and several processes do not fight over the cores.
demo test: export OMP_NUM_THREADS = 1

demo: $(VENV)/.demo-installed  ## A short benchmark on HalfCheetah-v5: a table and a picture of the learning curves
	$(BIN)/sb3-budget bench --quick --env HalfCheetah-v5 --out $(DEMO_OUT)

test: lint type doc  ## Lint, format check, types, docs and all tests
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/.dev-installed  ## Rules and formatting, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev-installed  ## Sort imports, fix what can be fixed, format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(VENV)/.dev-installed  ## Static types
	$(BIN)/mypy

doc: $(VENV)/.dev-installed  ## Build the docs; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

clean:  ## Remove the virtual environment and everything that was built
	rm -rf $(VENV) docs/_build build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov

help:  ## This list
	@awk -F ':.*##' '/^[a-z]+:.*##/ {printf "%-8s %s\n", $$1, $$2}' Makefile

# Installed once; again only when the requirements change.
$(VENV)/.torch-installed: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --retries 1 --extra-index-url $(TORCH_INDEX) torch
	touch $@

$(VENV)/.demo-installed: $(VENV)/.torch-installed $(INPUTS)
	$(PIP) -e ".[mujoco,plots,progress]"
	touch $@

$(VENV)/.dev-installed: $(VENV)/.torch-installed $(INPUTS)
	$(PIP) -e ".[all,docs,dev]"
	touch $@ $(VENV)/.demo-installed
