# Pagoda's commands. `make help` lists them.
#
#   PYTHON=python3.12        the interpreter to make .venv with (default: the newest that fits)
#   PIP_ARGS="--find-links D"  options for every pip call
#   REQUIRE_SERVERS=1        a test skipped for a missing server fails
#   REQUIRE_ENGINES=1        a test skipped for a missing engine fails (test-engines)
#   ARGS="-k drive"          options for pytest, or for the bench

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
SOURCES := pyproject.toml setup.py constraints.txt scripts/setup.sh scripts/pins.py \
	$(wildcard src/pagoda/_native/*.c src/pagoda/_native/*.h)
SEED ?= 1
export PYTHON PIP_ARGS

.DEFAULT_GOAL := help
.PHONY: help run setup test test-engines bench-engines check format docs bench lab model lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.run model  ## set everything up and run the demonstration
	@$(BIN)/pagoda demo $(ARGS)

setup: $(VENV)/.dev model  ## make .venv with everything that developers need

test: $(VENV)/.dev model  ## run the test suite (REQUIRE_SERVERS=1, ARGS="-k drive")
	@PAGODA_DEMO_MODEL="$$($(PY) -m pagoda.lab.model --path)" PYTHONPATH=tests/plugins \
		$(PY) -m pytest -p skips $(if $(filter 1,$(REQUIRE_SERVERS)),--require-servers) $(ARGS)

test-engines: $(VENV)/.dev model  ## run the connectors in the real engines; installs them once (4 GB)
	@vllm="$$(scripts/engine_vllm.sh)" && sglang="$$(scripts/engine_sglang.sh)" && \
		VLLM_HOME="$$vllm" SGLANG_HOME="$$sglang" \
		PAGODA_DEMO_MODEL="$$($(PY) -m pagoda.lab.model --path)" PYTHONPATH=tests/plugins \
		$(PY) -m pytest -p skips $(if $(filter 1,$(REQUIRE_ENGINES)),--require-engines) \
		-m engines tests/engines $(ARGS)

bench-engines: $(VENV)/.dev model  ## how fast a real vLLM gets a stored prompt back (minutes; ARGS="--json FILE")
	@VLLM_HOME="$$(scripts/engine_vllm.sh)" PAGODA_DEMO_MODEL="$$($(PY) -m pagoda.lab.model --path)" \
		$(PY) tests/engines/measure_vllm.py $(ARGS)

check: $(VENV)/.dev docs  ## lint, format, types, import contracts, documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.dev  ## rewrite sources and generated pages as `make check` wants them
	@$(PY) -m pagoda.cli.docs docs/reference
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.dev  ## build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.run model  ## measure the engine, the tiers and the index
	@$(BIN)/pagoda bench engine $(ARGS)
	@$(BIN)/pagoda bench tiers $(ARGS)
	@$(BIN)/pagoda bench index $(ARGS)

lab: $(VENV)/.dev  ## break the cache on purpose: simulation, crashes, seeded defects, the incident
	@$(BIN)/pagoda lab sim --seed $(SEED) --steps 200000
	@$(BIN)/pagoda lab crash --seed $(SEED)
	@$(BIN)/pagoda lab defects
	@$(BIN)/pagoda lab incident

model: $(VENV)/.run  ## fetch and convert the demonstration model, once
	@$(PY) -m pagoda.lab.model

lock: $(VENV)/.dev  ## rewrite constraints.txt with the newest versions
	@$(PY) scripts/lock.py

clean:  ## remove .venv and everything that was built (not the model in the cache)
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis \
		.import_linter_cache src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second make installs nothing. What developers need includes what running needs.
.NOTPARALLEL:

$(VENV)/.run: $(SOURCES)
	@scripts/setup.sh $(VENV) engine
	@touch $@

$(VENV)/.dev: $(SOURCES)
	@scripts/setup.sh $(VENV) engine,remote,crypto,codec,plot,dev,docs
	@touch $@ $(VENV)/.run
