# Commands for people. Each brings the environment to what it needs first; `make` alone lists them.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# The first of these that really is Python 3.11 or 3.12; `make PYTHON=/path/to/python run` chooses.
CANDIDATES := python3.12 python3.11 python3 python
SUPPORTED := import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))
PYTHON ?= $(shell for python in $(CANDIDATES); do \
	"$$python" -c '$(SUPPORTED)' >/dev/null 2>&1 && command -v "$$python" && break; done)

VENV := .venv/bin

.PHONY: help install install-dev assets run test check bench properties screenshots chaos fuzz audit lock schema install-test clean

help: ## Show these commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

python:
	@test -n "$(PYTHON)" || { \
		echo "RPM needs Python 3.11 or 3.12, and none of $(CANDIDATES) on the PATH is one."; \
		echo "Install one (Debian, Ubuntu: sudo apt install python3 python3-venv), or name it:"; \
		echo "    make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }

install: python ## Install what RPM needs into .venv.
	@$(PYTHON) tools/venv.py run

install-dev: python ## Install this and what tests and checks need.
	@$(PYTHON) tools/venv.py dev

assets: install ## Build the front-end into static/dist.
	@$(VENV)/python tools/assets.py

run: assets ## Install, build, load the demonstration and start everything on this machine.
	@$(VENV)/python manage.py migrate --verbosity 0
	@$(VENV)/python manage.py demo
	@exec $(VENV)/python manage.py up

test: install-dev ## Run every test against real services that it starts and stops itself.
	@$(VENV)/python tools/assets.py --dev
	@exec $(VENV)/python -m tools.test $(ARGS)

check: install-dev ## Check style, types, imports, migrations, schemas, words and this repository.
	@exec $(VENV)/python -m tools.check

bench: install-dev ## Measure this machine: pass, enqueueing, launch.
	@exec $(VENV)/python -m tests.bench

properties: install-dev ## Check properties on 100,000 generated cases, launches on 10,000 (up to two hours).
	@exec $(VENV)/python -m pytest tests/allocation/engine/test_properties.py \
		tests/allocation/engine/test_preemption_properties.py \
		tests/execution/machine/test_machine.py \
		-n auto --hypothesis-profile=properties -o faulthandler_timeout=7200
	@exec $(VENV)/python -m pytest tests/execution/specifications -n 0 \
		--recorded 10000 --contained 300 -o faulthandler_timeout=7200

screenshots: install-dev ## Take a picture of every page, wide and narrow, light and dark.
	@$(VENV)/python tools/assets.py --dev
	@exec $(VENV)/python -m tests.browser.screenshots $(ARGS)

fuzz: install-dev ## Make 20,000 requests from the REST schema; every answer as documented.
	@exec $(VENV)/python -m tests.fuzz $(ARGS)

install-test: install-dev ## Play docs/installing.md on bare Debian machines, and compose.yaml (root).
	@$(VENV)/python tools/assets.py --dev
	@$(VENV)/python -m tests.install
	@exec $(VENV)/python -m tests.install.image

audit: install-dev ## List licences and known vulnerabilities of all dependencies.
	@exec $(VENV)/python -m tools.audit

chaos: install-dev ## Break an installation in every way for ten minutes, and prove it holds (root).
	@exec $(VENV)/python -m tests.chaos $(ARGS)

schema: install ## Write the schemas of REST and of the configuration into docs/.
	@$(VENV)/python manage.py spectacular --file docs/openapi.yaml --validate --fail-on-warn
	@$(VENV)/python -m apps.policies.document.json_schema > docs/configuration.schema.json

lock: install-dev ## Resolve the dependencies of pyproject.toml and package.json again.
	@$(VENV)/python -m tools.lock

clean: ## Remove everything that these commands made in this folder; data stays.
	rm -rf .venv .make.lock node_modules static/dist staticfiles
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
