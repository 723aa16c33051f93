# Everything sets itself up: `make demo` and `make test` work from a fresh clone with Python 3.11+, git and make.
PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-down test test-fault check format lock bench clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

setup: .venv/.ready .venv-cluster/.ready ## make .venv (Airflow, tools) and .venv-cluster (what Ray nodes have)

.venv/.ready: requirements/dev.txt requirements/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ $(PYTHON) -V; echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt requirements/uv.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.venv-cluster/.ready: requirements/cluster.txt .venv/.ready
	$(PYTHON) -m venv --clear --without-pip .venv-cluster
	$(UV) pip sync --quiet --python .venv-cluster/bin/python --require-hashes requirements/cluster.txt
	@touch $@

demo: setup ## two tenants on one Ray cluster, from nothing to a table; KEEP=1 leaves it up
	$(BIN)/python -m stack.demo $(if $(KEEP),--keep)

demo-down: setup ## end what `make demo KEEP=1` left up
	$(BIN)/python -m stack.demo --down

test: setup ## all tests but the fault suite, on real Airflow, Ray, S3 and PostgreSQL
	$(BIN)/python -m pytest -m "not fault"

test-fault: setup ## break Airflow, Ray and the way between them while jobs run; prints a table
	$(BIN)/python -m pytest -m fault

check: setup ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure; SUITE=import, poller, usage, access or pools
	$(BIN)/python -m benchmarks.$(or $(SUITE),import)_cost

lock: .venv/.ready ## pin what pyproject.toml asks for, with hashes
	$(COMPILE) pyproject.toml --group dev -o requirements/dev.txt
	$(COMPILE) --group cluster -o requirements/cluster.txt
	echo uv | $(COMPILE) - -o requirements/uv.txt

clean: ## remove what setup made
	rm -rf .venv .venv-cluster .run dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
