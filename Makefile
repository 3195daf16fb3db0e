# The contributor's menu. `make` alone lists it.
# PYTHON chooses the interpreter for the virtual environment (3.11 or newer): make setup PYTHON=python3.13

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Two steps: what Postroom runs on, which is all that the demonstration needs, and the tools of its developers.
BASE   := $(VENV)/.base
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
INSTALL := $(BIN)/python tools/install.py
# The tests of a file share servers, so one worker runs them all; conftest.py says how many workers, in what order.
# A test that failed is repeated once, at once; conftest.py lists it, and bounds their number.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --reruns 1
# pytest-timeout cannot end a test whose process waits outside Python, or swallows its signal: this ends the process,
# with the stacks of its threads and the test's name. Another process goes on there and repeats the test.
NO_HANG := --max-worker-restart 3 -o faulthandler_timeout=200 -o faulthandler_exit_on_timeout=true

# Each of the thousand processes of a test run would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-full bench fuzz lint format lock footprint clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything that is pinned in requirements/

# pip is what `venv` puts in last, so its presence means that the environment is whole.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Postroom needs Python 3.11 or newer; choose one with: make setup PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml a2a/pyproject.toml requirements/build.txt requirements/base.txt | $(BIN)/pip
	@$(INSTALL) requirements/build.txt requirements/base.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable ./a2a --editable .
	@touch $@

$(STAMP): $(BASE) requirements/dev.txt
	@$(INSTALL) requirements/dev.txt
	@touch $@

demo: $(BASE) ## the demonstration, in a screen; DEMO=plain for a transcript (DIR=folder reviews another), KEEP=1 keeps it
	@$(BIN)/python examples/demo.py $(if $(DIR),--folder "$(DIR)") $(if $(KEEP),--keep)

lint: setup ## format check, ruff, types, import layers, docs/promises.md
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/ty check
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.promises --check

test: lint ## lint, then the tests that take seconds
	$(PYTEST) $(NO_HANG)

test-full: lint ## lint, then every test, the slow ones too
	HYPOTHESIS_PROFILE=nightly $(PYTEST) -m "slow or not slow"

bench: setup ## run the benchmarks; NAME=x runs one; BEFORE=commit for plane; OPTIONS="--quick ..."
	$(BIN)/python -m benchmarks $(NAME) $(if $(BEFORE),--before $(BEFORE)) $(OPTIONS)

FUZZ_SECONDS ?= 60

fuzz: ## fuzz what reads NATS at a worker's door, in an environment of its own; FUZZ_SECONDS=n
	@test -x .venv-fuzz/bin/python || $(PYTHON) -m venv .venv-fuzz
	@.venv-fuzz/bin/python -m pip --disable-pip-version-check --no-input install --quiet --only-binary atheris \
	  --requirement fuzz/requirements.txt --editable ./a2a --editable . \
	  || { echo "make fuzz needs a wheel of atheris for this Python ($$(.venv-fuzz/bin/python -V)) and machine;" \
	       "choose another with: rm -rf .venv-fuzz; make fuzz PYTHON=python3.13"; exit 1; }
	mkdir -p fuzz/corpus
	.venv-fuzz/bin/python fuzz/nats.py -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 fuzz/corpus fuzz/seeds

format: setup ## format the code and apply safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: setup ## write requirements/*.txt anew from pyproject.toml; UPGRADE=1 takes newer releases
	$(BIN)/python -m tools.lock $(if $(UPGRADE),--upgrade)

footprint: setup ## measure the base install in a throw-away environment against its limits
	$(BIN)/python -m tools.footprint

clean: ## remove .venv and what the tools left behind
	rm -rf $(VENV) .venv-bench .venv-fuzz fuzz/corpus build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
