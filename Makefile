# The two commands to know: `make demo` and `make test`. Both make a plain venv in .venv first; only Python and make are needed.
#   make demo ARGS="--port 9000 --no-browser"     ARGS goes to `manage.py quickstart`
#   make test ARGS="tests/unit -k approval"       ARGS goes to pytest
#   make demo PYTHON=/path/to/python3.12          another Python than the first that fits

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=

# Each candidate is run, not only looked up: a version manager's shim may be on the PATH and lead nowhere.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import ensurepip, sqlite3, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help demo install-demo install-dev test slow lint types check clean

help:
	@echo "make demo    the demonstration site on http://127.0.0.1:8000, in one process, no service needed"
	@echo "make test    the tests, on SQLite (tests that need more say so and are skipped)"
	@echo "make slow    the tests marked slow"
	@echo "make lint    ruff and import-linter        make types   mypy"
	@echo "make check   lint, types, Django's checks and missing migrations"
	@echo "make clean   remove .venv, the demo's data and what tools left behind"

# Empty files remember what is installed: a change of pyproject.toml or constraints.txt installs again, a second run does not.
# Progress goes to standard error: standard output belongs to the command.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Found no Python 3.11 or later with venv and sqlite3 (Debian: apt install python3-venv)." >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON) …" >&2
	@$(PYTHON) -m venv $(VENV) >&2
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "Installing what the demo needs …" >&2
	@$(PIP) install --quiet -c constraints.txt -e '.[demo]' >&2
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "Installing what the tests need …" >&2
	@$(PIP) install --quiet -c constraints.txt -e '.[dev]' >&2
	@touch $@ $(VENV)/.demo

install-demo: $(VENV)/.demo
install-dev: $(VENV)/.dev

# exec: Ctrl-C and SIGTERM reach the server itself.
demo: install-demo
	@exec $(BIN)/python manage.py quickstart $(ARGS)

test: install-dev
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

slow: install-dev
	$(BIN)/python -m pytest -m "slow and not browser" $(ARGS)
	$(BIN)/python -m pytest -m "slow and browser" $(ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: install-dev
	$(BIN)/mypy

check: lint types
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

clean:
	rm -rf $(VENV) .demo dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis test-results
	find agentcore project tests -name __pycache__ -type d -prune -exec rm -rf {} +
