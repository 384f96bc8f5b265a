# `make demo` and `make test` are all a newcomer needs; each makes what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help venv demo test check bench clean lock schema

help: ## what there is to make
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: $(VENV)/.installed ## .venv with Muniment, both embedded servers, the checks and the benchmark's peers

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Muniment needs Python 3.11 or later: set PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module. On Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: venv ## import a sample archive on the embedded stack and ask three questions
	$(BIN)/muniment demo

test: venv ## every check and every test, on real Postgres, Redis and worker processes
	$(BIN)/pytest -n 2 --dist loadfile

check: venv ## format, lint, layers, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

bench: venv ## the spine's benchmarks (minutes)
	$(BIN)/python -m tests.bench.spine
	$(BIN)/python -m tests.bench.kill

lock: ## write requirements.lock anew from pyproject.toml
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
		--extra embedded --extra embeddings --extra dev pyproject.toml --output-file requirements.lock

schema: venv ## write sql/schema.sql anew, after a migration or a change of a function
	$(BIN)/python -m tests.schema

clean: ## remove what make made
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist
