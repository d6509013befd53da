# `make demo` and `make test` set up everything they need. `make help` lists all targets.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_SYSTEM_CERTS := 1
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-training demo-serve binaries test test-gpu test-image e2e soak fuzz lint format crd proto hashes sbom image bench bench-start bench-load bench-backlog bench-agents bench-inference bench-training bench-client bench-rules bench-scoring bench-serve bench-tune bench-gpu clean

# $(call install,ENVIRONMENT,EXTRAS): a dot for each package, the end of the log if it fails.
comma := ,
install = $(1)/bin/pip install --progress-bar off -e '.[$(2)]' 2>&1 | tee $(1)/setup.log \
	| awk '/^(Collecting|Installing)/ { printf "."; fflush() } END { print "" }' \
	|| { tail -n 5 $(1)/setup.log >&2; echo "error: pip install failed; full log: $(1)/setup.log" >&2; exit 1; }

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## install vmafx and its development tools in .venv

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) is older than 3.11; choose a newer one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up .venv (under a minute, once)"
	@$(PYTHON) -m venv .venv \
		|| { echo "error: $(PYTHON) cannot create virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(call install,.venv,dev)
	@touch $@

demo: setup ## run vmafx on this machine: encode a clip six ways, score the encodes, plot VMAF against bitrate (KEEP=1 keeps it running)
	@$(BIN)/vmafx demo $(if $(KEEP),--keep)

demo-training: setup ## train a model on the scores of the demo, push its versions to an OCI registry, score with them
	@$(BIN)/vmafx demo --training

demo-serve: setup ## serve scores and the page on this machine, with two clips to try it, until Ctrl-C
	@$(BIN)/vmafx demo --serve

binaries: setup ## download or build what the tests run: the control plane, Envoy Gateway, a registry, Helm
	@$(BIN)/python -m tests.support.browser
	@$(BIN)/python -m tests.support.pushgateway
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m tests.support.gateway.build
	@$(BIN)/python -m tests.support.registry
	@$(BIN)/python -m tests.support.chart >/dev/null
	@$(BIN)/python -m tests.support.module_crds

# Each pytest process has its own control plane. A test file runs in one process, in file order: the quick ones last.
test: binaries ## run all tests against real API servers (ARGS="-n 0 -x tests/unit" selects some, in one process)
	@$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

# In an environment of its own: `make test` is for machines without torch.
.venv/gpu/.ready: .venv/.ready
	@echo "setting up .venv/gpu: torch and Triton (minutes, once; 3 GB to download)"
	@$(PYTHON) -m venv .venv/gpu
	@$(call install,.venv/gpu,dev$(comma)gpu)
	@touch $@

test-gpu: .venv/gpu/.ready ## test VMAF on a GPU, or without one the same code at reduced size (installs torch and Triton)
	@.venv/gpu/bin/pytest --numprocesses auto --maxprocesses 4 tests/gpu $(ARGS)

# Status 77: as of `make e2e`, which runs these tests too.
test-image: setup ## build the image twice and test it, as root, without a cluster (15 minutes on two cores)
	@$(BIN)/python -m tests.e2e.image
	@$(BIN)/python -m tests.e2e.image --variant operator
	@$(BIN)/pytest --numprocesses 0 -m image tests/e2e $(ARGS)

# Status 77, which make shows as "Error 77": this machine cannot run it.
e2e: setup ## run the tests of the image and those that need a cluster with real nodes, as root (ARGS="-k drain" selects some)
	@$(BIN)/python -m tests.e2e $(ARGS)

soak: setup ## run the long and randomized tests: long faults, then 500 jobs under injected faults (ARGS="--runtime agent --seed 7 --jobs 200")
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m tests.soak $(ARGS)

fuzz: setup ## score 2000 mutated clips: each ends in a score or a refusal and leaves nothing (ARGS="--seed 7 --only 123" repeats one)
	@$(BIN)/python -m tests.fuzz $(ARGS)

lint: setup ## check style, types, import contracts and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/vmafx crd --check
	$(BIN)/python tools/proto.py --check
	$(BIN)/python tools/hashes.py --check

format: setup ## fix lint findings and format the code (ruff)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crd: setup ## generate the CRDs, RBAC roles, parts of the Helm chart, docs/api.md and docs/environment.md
	$(BIN)/vmafx crd

proto: setup ## generate the gRPC messages and stubs from proto/
	$(BIN)/python tools/proto.py

hashes: setup ## write the digests of all packages in constraints.txt to hashes/
	$(BIN)/python tools/hashes.py

# From the hashes into an environment with nothing else, as in docs/install.md; the tool has an environment of its own.
sbom: setup ## write the bill of materials of vmafx[s3,gcs] to dist/vmafx.cdx.json, as CycloneDX (a minute; downloads 200 MB)
	@rm -rf .venv/sbom && mkdir .venv/sbom
	@$(BIN)/uv build -q --wheel -o .venv/sbom --require-hashes --build-constraints hashes/build.txt
	@$(BIN)/uv venv -q --python $(BIN)/python .venv/sbom/vmafx
	@$(BIN)/uv pip install -q --python .venv/sbom/vmafx --require-hashes $(foreach name,vmafx s3 gcs,-r hashes/$(name).txt)
	@$(BIN)/uv pip install -q --python .venv/sbom/vmafx --no-deps .venv/sbom/*.whl
	@$(BIN)/uv venv -q --python $(BIN)/python .venv/sbom/tool
	@$(BIN)/uv pip install -q --python .venv/sbom/tool --require-hashes -r hashes/sbom.txt
	@mkdir -p dist
	@.venv/sbom/tool/bin/cyclonedx-py environment .venv/sbom/vmafx --pyproject pyproject.toml --mc-type application \
		--output-reproducible -o dist/vmafx.cdx.json
	@rm -rf .venv/sbom
	@echo dist/vmafx.cdx.json

image: ## build the image of all roles, and its bill of materials, with Docker or buildah (VARIANT=operator, IMAGE=NAME:TAG)
	@docker/build

bench-client: setup ## benchmark the Kubernetes client: watch decoding, cache size, status patches
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python bench/client.py

bench-rules: setup ## benchmark the API server's CPU for the CEL rules of VmafxJob (3 minutes; ARGS="--against HEAD~1")
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.rules $(ARGS)

bench: bench-start bench-load bench-agents ## benchmark the operator against one in Go and one on kopf, and agents (44 minutes)

bench-start: setup ## benchmark the operator's start with many finished jobs, and its idle load (16 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.startup $(ARGS)

bench-load: setup ## benchmark the operator's CPU time and latency per job (23 minutes; ARGS=--causes 38)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.load $(ARGS)

bench-backlog: setup ## benchmark the first placement with 1,000 to 100,000 waiting jobs (30 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.backlog $(ARGS)

bench-agents: setup ## benchmark jobs on agents, and 1000 idle agents (5 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.agents $(ARGS)

bench-inference: setup ## benchmark 1000 inference services with canaries: create, resync, restart (10 minutes)
	@$(BIN)/vmafx dev fetch
	@$(BIN)/python -m bench.inference $(ARGS)

bench-scoring: setup ## benchmark `vmafx score` against plain ffmpeg, at 1080p and 2160p (20 minutes)
	@$(BIN)/python bench/scoring.py $(ARGS)

bench-serve: setup ## benchmark `vmafx serve`: overhead, cached answers, memory with uploads, weight of the page (5 minutes)
	@$(BIN)/python -m bench.serve $(ARGS)

bench-tune: setup ## benchmark `vmaf-tune --target-vmaf` beside bisection and ab-av1 on eight clips (15 minutes)
	@$(BIN)/python -m bench.tune $(ARGS)

bench-gpu: .venv/gpu/.ready ## benchmark VMAF on a GPU: frames that are there, kernels, several clips, whole files (10 minutes)
	@.venv/gpu/bin/python -m bench.gpu $(ARGS)

bench-training: setup ## benchmark training beside scikit-learn and River: speed, memory, pauses, quality (3 minutes)
	@$(BIN)/python -m bench.training $(ARGS)

clean: ## remove .venv and caches (control plane binaries stay in ~/.cache/vmafx)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
