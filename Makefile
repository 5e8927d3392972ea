# Every target makes its own environment first. Python 3.11 or newer: python3, or make PYTHON=...
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
# Neighbours share what they capture and compile: each process takes a run of them, then what is left
PYTEST := $(VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUST := src/rooftile/export/rust

.DEFAULT_GOAL := help
.PHONY: help audit test test-ops test-all rust lint types docs bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

audit: $(READY) ## Audit Llama-3-8B's training step on an H100, on this machine
	$(BIN)/rooftile audit examples/llama-3-8b/config.json --mode train --seq 2048 --gpu h100-sxm

test: $(READY) ## Test what every change must pass (minutes)
	$(PYTEST) -m "not slow"
	$(PYTEST) $(addprefix tests/ops/test_,each_op.py every_op.py interpreter.py) tests/ops/replay

test-ops: $(READY) ## Test the fused kernels, on a GPU where there is one, else interpreted
	$(PYTEST) tests/ops

test-all: $(READY) ## Test everything, the slow tests too
	$(PYTEST)
	$(PYTEST) tests/ops

rust: $(READY) ## Build and test the Rust host on a bundle exported here (needs cargo)
	mkdir -p $(RUST)/target
	$(BIN)/rooftile export softmax rms_norm --arch sm_80,sm_90 --out $(RUST)/target/bundle --force
	cd $(RUST) && cargo build --offline --workspace
	cd $(RUST) && ROOFTILE_TEST_BUNDLE=target/bundle cargo test --offline

lint: $(READY) ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types
	$(BIN)/mypy

bench: $(READY) ## Benchmark every op on this machine's GPU and keep the rows
	$(BIN)/rooftile bench --results benchmarks/results

docs: $(READY) ## Write the generated pages again
	$(BIN)/python docs/make_cli.py

# Made again when a dependency changes.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is not: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
