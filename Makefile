# `make demo` and `make test` do all of their own set-up; `make help` lists the rest.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

BIN := .venv/bin
PYTEST_ARGS ?=
PYTEST_SELECTION ?= -m "not slow"
BENCH ?=

# Cargo has jobs of its own; make's are not handed to it (MFLAGS is the older name).
CARGO := env -u MAKEFLAGS -u MFLAGS cargo

# pyo3 is built for the Python of the environment, whatever `python3` is.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# Where rustup puts cargo; only login shells have it on the PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

ifdef CI
# What is compiled once is compiled faster without traces for the next time.
export CARGO_INCREMENTAL := 0
endif

.PHONY: help demo test test-all setup packages lint fmt rust-lint rust-test py-lint py-test docs docs-check \
  web web-check bench studies studies-quick lock wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## set up, diagnose a recorded run into demo-report/, compare it with the run after the remedy
	@scripts/setup.sh run
	@$(BIN)/tailback diagnose examples/lab/placement/before --out demo-report --update
	@printf '\n%s\n\n' 'The same program, recorded again with the ranks placed so:'
	@$(BIN)/tailback confirm demo-report examples/lab/placement/after

# Compilers leave processors idle at their ends, so what does not depend on one another runs together.
test: ## set up and check everything (what CI runs)
	@$(MAKE) --jobs=1 packages setup
	@$(MAKE) --jobs=2 --output-sync=target rust-lint rust-test py-lint web-check docs-check
	@$(MAKE) py-test

test-all: export PYTEST_SELECTION = --hypothesis-profile=thorough
test-all: test ## the same with slow tests and eight times the examples: nightly, before a release

setup: ## make the development environment .venv
	@scripts/setup.sh dev

packages: ## install (as root) or name the Debian packages that some tests drive
	@scripts/debian-packages.sh test

lint: rust-lint py-lint ## formatting, lints, types, import rules

fmt: setup ## format the Rust and Python sources
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

rust-lint: setup ## rustfmt and clippy
	@scripts/rust-components.sh
	@! cargo fmt --version >/dev/null 2>&1 || { set -x; cargo fmt --all --check; }
	@! cargo clippy --version >/dev/null 2>&1 || \
	  { set -x; $(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings; }

py-lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	scripts/import-rules.sh

# No crate has tests in its documentation, which cargo would build every crate once more for, and the
# bindings have none: Python tests them.
rust-test: setup ## unit and property tests of the Rust crates
	$(CARGO) test --workspace --exclude tailback-bindings --locked --quiet --lib --bins --tests

# Whole files to a process: tests of a file share runs, pages and browsers. There is a process for
# each core, so more threads in one would only wait for each other.
py-test: setup ## all Python tests, documentation examples and browser tests
	POLARS_MAX_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(PYTEST_SELECTION) \
	  $(PYTEST_ARGS)

docs: setup ## write the pages made from the sources, and the documentation site into site/
	@scripts/docs.sh build

docs-check: setup ## those pages are what the sources give, and the site builds without warnings
	@scripts/docs.sh check

web: setup ## build the report viewer into the package
	@scripts/web.sh build

web-check: setup ## the viewer in the package is the one its sources give
	@scripts/web.sh check

bench: setup ## list the benchmarks, or run one: make bench BENCH=name
	@$(BIN)/python scripts/bench.py $(BENCH)

studies: setup ## make the tables of the studies again whose inputs changed; may be stopped and resumed
	$(BIN)/python -m studies make

studies-quick: setup ## make the quick ones in a copy and show what differs from the pages
	$(BIN)/python -m studies make --quick

lock: setup ## resolve the dependencies of pyproject.toml again
	@scripts/lock.sh

MACHINES ?= x86_64 aarch64
wheel: setup ## build and check wheels in dist/; for one architecture: make wheel MACHINES=x86_64
	@scripts/wheel.sh $(MACHINES)

clean: ## remove everything that is built
	rm -rf .venv .tools target dist site demo-report web/node_modules python/tailback/_core*.so python/tailback/_otf2
	find python tests -name __pycache__ -type d -prune -exec rm -rf {} +
