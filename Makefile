# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test slow lint types bench digits clean
help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet -e '.[test,examples]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install --quiet -e '.[test,examples,dev]'
	@touch $@

demo: $(VENV)/.base ## compile, simulate and verify the digits network that ships with the repository
	$(BIN)/tpusim run examples/digits/digits.onnx --chip bm1684x --mode int8 --data examples/digits/calibration.npz \
	  --test-data examples/digits/test.npz --labels examples/digits/labels.npz

test: $(VENV)/.test ## the default tests
	$(BIN)/python -m pytest -q -n 2

slow: $(VENV)/.test ## the larger models
	$(BIN)/python -m pytest -q -m slow

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## pyright
	$(BIN)/pyright

bench: $(VENV)/.test ## measure: prints ratios, side by side in one process
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

digits: $(VENV)/.test ## train the digits network again (rewrites examples/digits)
	$(BIN)/python examples/digits/train.py

clean: ## remove everything that make made
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .ruff_cache .hypothesis
