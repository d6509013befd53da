# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test soak lint format crd proto bench bench-start bench-load bench-agents bench-client bench-scoring clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## make .venv with vmafx in it

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) is older than 3.11; name a newer one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up .venv (under a minute, once)"
	@$(PYTHON) -m venv .venv \
		|| { echo "error: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/pip install --progress-bar off -e '.[dev]' 2>&1 | tee .venv/setup.log \
		| awk '/^(Collecting|Installing)/ { printf "."; fflush() } END { print "" }' \
		|| { tail -n 5 .venv/setup.log >&2; echo "error: the packages cannot be installed; all of it: .venv/setup.log" >&2; exit 1; }
	@touch $@

demo: setup ## six encodes, scored by a fleet on this machine, and drawn (KEEP=1 leaves it running)
	@$(BIN)/vmafx demo $(if $(KEEP),--keep)

# Each process has a control plane of its own. Files stay whole and in their order: the quick ones come last.
test: setup ## run all tests, on real API servers (ARGS="-n 0 -x tests/unit" for a part, in one process)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

soak: setup ## what is long or random: faults that last minutes, then 500 jobs through kills, stops and edits (ARGS="--runtime agent --seed 7 --jobs 200")
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m tests.soak $(ARGS)

lint: setup ## check style, types, imports and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/vmafx crd --check
	$(BIN)/python tools/proto.py --check

format: setup ## put the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crd: setup ## write the CRDs, the roles and docs/api.md from the declarations
	$(BIN)/vmafx crd

proto: setup ## write the controller's messages and calls from proto/
	$(BIN)/python tools/proto.py

bench-client: setup ## measure decoding, cached size and the cost of a status patch
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python bench/client.py

bench: bench-start bench-load bench-agents ## measure the operator in turns with one in Go and one on kopf, and agents (35 minutes)

bench-start: setup ## measure its start beside many finished jobs, and idling (16 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.sync $(ARGS)

bench-load: setup ## measure what running jobs costs it, and how fast it is (14 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.load $(ARGS)

bench-agents: setup ## measure what jobs on agents cost, and a thousand agents without jobs (5 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.agents $(ARGS)

bench-scoring: setup ## measure what `vmafx score` adds to ffmpeg by hand, at 1080p and 2160p (20 minutes)
	@$(BIN)/python bench/scoring.py $(ARGS)

clean: ## remove .venv and caches (built control planes stay in ~/.cache/vmafx)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
