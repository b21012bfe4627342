# isthmus: `make` prints the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all e2e drill bench lint lock clean

help: ## print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The environment is rebuilt when a lock file changes. uv is itself pinned by hash.
$(VENV)/.installed: requirements/uv.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q isthmus infra operators workloads
	@touch $@

install: $(VENV)/.installed ## the Python environment and every program, built here where none fits
	$(BIN)/isthmus install

demo: $(VENV)/.installed ## both simulated clouds up, training on each, parity, one cost comparison
	$(BIN)/isthmus demo

# Tests on local clusters wait for half their time, so four processes of them keep two cores busy.
test: install ## unit, conformance and embedded-cluster tests
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not local and not slow and not performance" tests
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations 20 -m "local and not slow and not performance and not e2e" tests

test-all: install ## everything, the long repeats and scale too
	$(BIN)/isthmus install objects autoscaler mpi trainjob --keep-cache
	$(BIN)/python -m pytest -m "not performance" tests

e2e: install ## the platform on both runtimes, kind too; TESTS='-k kind --keep-cluster' for less (see tests/e2e)
	$(BIN)/isthmus install objects --keep-cache
	$(BIN)/python -m isthmus.localcluster.kind.engine start
	code=0; $(BIN)/python -m pytest -v -n 2 --dist loadfile -m "e2e and not slow" $(TESTS) tests/e2e tests/conformance || code=$$?; \
	$(BIN)/python -m isthmus.localcluster.kind.engine stop && exit $$code

drill: install ## a move from one simulated cloud to the other and back, with faults (DRILL_SEED=2, DRILL_FULL=1)
	$(BIN)/isthmus install objects --keep-cache
	$(BIN)/python -m pytest -s tests/local/test_migration.py

bench: install ## the budgets, measured on this machine in one run
	$(BIN)/python -m pytest -s -m performance tests/performance

lint: $(VENV)/.installed ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: ## write the hashed lock files anew
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements/runtime.txt

clean: ## remove the Python environment (programs and stacks are kept: see isthmus down, ISTHMUS_HOME)
	rm -rf $(VENV)
