# Everything a fresh machine needs is Python 3.11 or newer and make; the rest is set up in .venv.
PYTHON ?= python3
# MLX's build on Linux: cpu, cuda12 or cuda13 (ignored on a Mac).
ACCELERATOR ?= cpu
BIN := .venv/bin
SYNC := $(BIN)/uv sync --quiet --locked --extra $(ACCELERATOR)

.PHONY: run test soak lint types clean

run: .venv/installed-$(ACCELERATOR)
	@$(BIN)/greenroom serve $(ARGS)

test: lint types .venv/developing-$(ACCELERATOR)
	$(BIN)/pytest

soak: .venv/developing-$(ACCELERATOR)
	$(BIN)/pytest -m soak

lint: .venv/developing-$(ACCELERATOR)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/developing-$(ACCELERATOR)
	$(BIN)/mypy

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Greenroom needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@echo "Setting up .venv (once; about a minute) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"

.venv/installed-%: uv.lock pyproject.toml | $(BIN)/uv
	@$(SYNC) --no-dev --inexact
	@touch $@

.venv/developing-%: uv.lock pyproject.toml | $(BIN)/uv
	@$(SYNC)
	@touch $@ .venv/installed-$*
