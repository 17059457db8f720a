# Everything a developer does, from a clean clone, with Python 3.11 or later and make.
#
#   make run     start a broker with its data in ./data
#   make test    run the tests
#   make check   what must pass before a change is proposed: style, types, imports, tests
#   make bench   measure beside RabbitMQ, and all of bench-spark (QUICK=1 for a first look)
#   make bench-spark   measure Spark with the broker, and migrate a million messages forth and back
#   make chaos   kill and pause real processes under load, and cut the power of simulated ones
#   make clean   remove what was made here (not ./data)

VENV ?= .venv
DATA ?= data
# Extra arguments: make test ARGS="-k catalog"; make run ARGS="--dev"
ARGS ?=
# How many test files run side by side; they wait more than they work.
JOBS ?= 4
# How many rounds the kill loop goes, and the seed of its choices (0: another one each time).
ROUNDS ?= 30
SEED ?= 0
# How many histories of one queue are tried against its model.
EXAMPLES ?= 300

PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11 python; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$candidate; break; fi; done)

BIN := $(VENV)/bin
RUNTIME := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: run test check lint format bench bench-spark chaos clean

run: $(RUNTIME)
	$(BIN)/partibus serve --data $(DATA) $(ARGS)

test: $(DEVELOPMENT)
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

check: lint test

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEVELOPMENT)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEVELOPMENT)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)
	@if $(BIN)/python -c 'import pyspark' 2>/dev/null; then $(MAKE) bench-spark; \
		else echo "Spark is not installed: reading, writing and migrating with it are left out."; fi

# A million messages each, or fewer: make bench-spark MESSAGES=100000
bench-spark: MESSAGES ?= $(if $(QUICK),100000,1000000)
bench-spark: $(DEVELOPMENT)
	$(BIN)/python -m benchmarks.spark --messages $(MESSAGES)
	$(BIN)/python -m benchmarks.migration --messages $(MESSAGES)

chaos: $(DEVELOPMENT)
	CHAOS_ROUNDS=$(ROUNDS) CHAOS_SEED=$(SEED) MACHINE_EXAMPLES=$(EXAMPLES) \
		$(BIN)/python -m pytest tests/chaos tests/machine $(ARGS)

clean:
	rm -rf $(VENV) .venv-bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed and was not found." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml $(VENV)/pyvenv.cfg
	$(PIP) --editable .
	@touch $@

# The second AMQP implementation has to be compiled, and Spark is large (half a gigabyte); where
# they cannot be had, their tests are skipped.
$(DEVELOPMENT): pyproject.toml $(VENV)/pyvenv.cfg
	$(PIP) --editable '.[dev]'
	@$(PIP) --editable '.[interop]' >/dev/null 2>&1 \
		|| echo "python-qpid-proton could not be built here: the tests that need it are skipped."
	@$(PIP) --editable '.[spark]' \
		|| echo "Spark could not be installed here: the tests that need it are skipped."
	@touch $(RUNTIME) $@
