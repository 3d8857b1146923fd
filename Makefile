# Everything happens in .venv; `make PYTHON=/path/to/python3` chooses the Python it is made from.
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
# Workers side by side are slowed down many times by BLAS threads that wait for each other.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Tests compile much and run little.
QUICK_XLA := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
LOWEST := build/lowest
# Newer packages warn of calls that older ones make.
OLD_CALLS := -W ignore::DeprecationWarning -W ignore::FutureWarning
INSTALL := $(BIN)/python -m pip install --quiet --no-compile  # Python compiles what it imports

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it may not keep what it compiled, every process takes seconds more to import packages.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test lowest lint types slow calibrate coverage levels answers checks digits reproduce campaign docs site links bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.base  ## set up and compare PCA, cPCA and cLVM on synthetic data
	@$(BIN)/clvm demo

test: lint types  ## set up, check style and types, run the tests
	$(ONE_THREAD) $(QUICK_XLA) $(BIN)/python -m pytest -n $(WORKERS)

lowest: $(VENV)/.lowest  ## run the tests with the lowest versions that pyproject.toml allows
	$(ONE_THREAD) $(QUICK_XLA) $(LOWEST)/bin/python -m pytest -n $(WORKERS) $(OLD_CALLS)

lint: $(VENV)/.dev  ## check style, formatting, spelling and docstrings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/interrogate --quiet src

types: $(VENV)/.dev  ## check types
	$(BIN)/mypy

slow: $(VENV)/.dev  ## run the tests that take minutes: SVI for every combination, counts of cells
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m slow

calibrate: $(VENV)/.dev  ## check coverage and ranks of posteriors on simulated data; writes docs
	$(ONE_THREAD) $(BIN)/python -m benchmarks.calibrate --write

coverage: $(VENV)/.dev  ## check the coverage of bootstrap intervals on simulated data; writes docs
	$(ONE_THREAD) $(BIN)/python -m benchmarks.coverage --write

levels: $(VENV)/.dev  ## measure level and power of the test of contrast; writes docs
	$(ONE_THREAD) $(BIN)/python -m benchmarks.contrast_levels --write

answers: $(VENV)/.dev  ## compare what methods show of real data by default; writes docs
	$(ONE_THREAD) $(BIN)/python -m benchmarks.default_answer --write

checks: $(VENV)/.dev  ## measure how often a fit warns of its model on simulated data; writes docs
	$(ONE_THREAD) $(BIN)/python -m benchmarks.fit_checks --write

digits: $(VENV)/.dev  ## train autoencoders on digits on textures, hours; writes docs
	$(BIN)/python docs/make_digits.py

reproduce: $(VENV)/.dev  ## repeat the paper's experiments, ten minutes; writes docs
	$(BIN)/python docs/make_reproduced.py

campaign: $(VENV)/.dev  ## send ten thousand strange inputs through the package; writes docs
	$(ONE_THREAD) $(BIN)/python -m campaign.run --write --workers $(WORKERS)

docs: $(VENV)/.docs  ## build the site in build/site; warnings are errors
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONWARNINGS=ignore $(ONE_THREAD) $(BIN)/python -m sphinx -b html -W --keep-going --quiet docs build/site
	@echo "The site is in build/site/index.html."

site: docs  ## check the built site in a browser: headings, alternative texts, contrast, sizes, links
	$(BIN)/python docs/check_site.py build/site

links: $(VENV)/.docs  ## check the addresses on the site that lead elsewhere
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m sphinx -b linkcheck --quiet -D nb_execution_mode=off -D plot_gallery=0 docs build/links

bench: $(VENV)/.bench  ## set up and run the benchmarks
	$(BIN)/python -m benchmarks.run

clean:  ## remove the environment, caches and everything built
	rm -rf $(VENV) demo dist build docs/auto_gallery docs/jupyter_execute docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks campaign examples -name __pycache__ -prune -exec rm -rf {} +

# Each stamp file stands for an environment that was completed; a broken one is made again.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "PYTHON=$(PYTHON) is not Python 3.11 or newer, which contrastive-lvm needs;" \
		"install one and name it with make PYTHON=/path/to/python3." >&2; exit 1; }
	@echo "Setting up $(VENV) ..." >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) "pip>=25.1"
	@touch $@

$(VENV)/.base: pyproject.toml $(VENV)/.python
	@echo "Installing contrastive-lvm ..." >&2
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.python
	@echo "Installing contrastive-lvm, all extras and the development tools ..." >&2
	@$(INSTALL) --editable ".[all]" --group dev
	@touch $(VENV)/.base $@

$(VENV)/.lowest: pyproject.toml $(VENV)/.python
	@echo "Installing the lowest versions in $(LOWEST) ..." >&2
	@$(PYTHON) -m venv --clear $(LOWEST)
	@sed -n '/^dependencies/,/^all/p' pyproject.toml | grep -oE '"[a-z-]+(\[[a-z]+\])?>=[0-9.]+' \
		| sed -E 's/"|\[[a-z]+\]//g; s/>=/==/' > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet "pip>=25.1"
	@$(LOWEST)/bin/python -m pip install --quiet --no-compile --constraint $(LOWEST)/constraints.txt \
		--editable ".[all]" --group dev
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.dev
	@echo "Installing what builds the site ..." >&2
	@$(INSTALL) --group docs
	@touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	@echo "Installing the tools to compare with ..." >&2
	@$(INSTALL) --group bench
	@touch $@
