# `make bronze silver gold` copies a database, `make test` proves it; both set up what they need first.
# The set-up is stamped: when requirements.lock and pyproject.toml have not changed, it costs nothing.

SHELL := /bin/sh
VENV := .venv
READERS := .venv-readers
READY := $(VENV)/.ready
READERS_READY := $(READERS)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
LOCKS := requirements.lock requirements-readers.lock requirements-peers.lock
UV_VERSION := 0.13.8

# A Python is taken by running it: a name on PATH may be a shim that leads nowhere, and Debian splits venv off.
PYTHONS := python3 python3.13 python3.12 python3.11 \
	/usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 /usr/local/bin/python3
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
FIND_PYTHON = python=; for p in $(PYTHONS); do \
	if "$$p" -c '$(FITS)' >/dev/null 2>&1; then python=$$p; break; fi; done; \
	if [ -z "$$python" ]; then \
	echo 'lakeward: install Python 3.11, 3.12 or 3.13 with venv (on Debian and Ubuntu: apt-get install python3-venv)' >&2; \
	exit 1; fi

# An interrupted install leaves its .incomplete behind, and the next one starts afresh. $(1) folder, $(2) lock file.
INSTALL = $(FIND_PYTHON); clear=; \
	if [ -e $(1)/.incomplete ] || ! $(1)/bin/python -c '$(FITS)' >/dev/null 2>&1; then clear=--clear; fi; \
	echo "lakeward: installing $(2) into $(1)"; \
	"$$python" -m venv $$clear $(1) && touch $(1)/.incomplete && \
	$(1)/bin/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r $(2)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help bronze silver gold setup readers peers test bench lint format lock clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Stages that are asked for together run in one process, at the first of them: Spark starts once.
STAGES := $(filter bronze silver gold,$(MAKECMDGOALS))
RUN_STAGES = $(if $(filter $@,$(firstword $(STAGES))),@$(VENV)/bin/lakeward $(STAGES),@:)

bronze: setup ## Copy what the source says: snapshot and binlog to append-only Delta
	$(RUN_STAGES)

silver: setup ## Merge bronze into the current state and history of each table
	$(RUN_STAGES)

gold: setup ## Publish silver as Iceberg tables, marts and Parquet
	$(RUN_STAGES)

setup: $(READY) ## Make .venv, find Java and fetch Spark's jars

readers: $(READERS_READY) ## Make .venv-readers, the DuckDB that tests read the lake with

peers: $(PEERS_READY) ## Make .venv-peers, the loaders that benchmarks measure beside the snapshot

# Two workers, each with servers and a Spark of its own (about 4 GB): while one waits, the other works.
test: setup readers ## Run every test
	@$(VENV)/bin/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

bench: setup peers ## Measure beside peers (docs/performance.md): PART=snapshot, silver, stream, gold, verify, or binlog, 15 min
	@$(VENV)/bin/python -m bench.$(or $(PART),binlog) $(ARGS)

lint: setup ## Check style, types and which package imports which
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@PYTHONPATH=. $(VENV)/bin/lint-imports --cache-dir .cache/import-linter

format: setup ## Rewrite the code in the project's style
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

lock: ## Resolve requirements*.in again into their lock files
	@$(FIND_PYTHON); "$$python" -m venv .cache/lock
	@.cache/lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@for lock in $(LOCKS); do \
		.cache/lock/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
			--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
			"$${lock%.lock}.in" --output-file "$$lock" >/dev/null || exit 1; done

clean: ## Remove the environments and caches of this folder, never a lake
	@rm -rf $(VENV) $(READERS) $(PEERS) .cache .pytest_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	@$(call INSTALL,$(VENV),requirements.lock)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	@$(VENV)/bin/python -m lakeward.spark
	@rm -f $(VENV)/.incomplete
	@touch $@

$(READERS_READY): requirements-readers.lock
	@$(call INSTALL,$(READERS),requirements-readers.lock)
	@rm -f $(READERS)/.incomplete
	@touch $@

$(PEERS_READY): requirements-peers.lock
	@$(call INSTALL,$(PEERS),requirements-peers.lock)
	@rm -f $(PEERS)/.incomplete
	@touch $@
