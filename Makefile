# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BALANCED := -n 2 --dist loadgroup --no-loadscope-reorder
# What Python compiles of the tests is kept, also where the environment says to write no bytecode. It is kept next to the
# source: in another folder (PYTHONPYCACHEPREFIX) Python would compile all installed packages again, whose bytecode pip has made.
KEPT := PYTHONDONTWRITEBYTECODE=
QUICK := tests/kernels tests/test_flat.py tests/test_gradients.py tests/test_compiled.py tests/test_pipeline.py tests/test_machine.py tests/test_xdsl.py
PYTEST := $(KEPT) $(BIN)/python -m pytest -q

# The newest Python that is here: on the path, or one of pyenv's, whose folder of versions is next to its shims.
PYENVS = $(wildcard $(foreach shims,$(filter %/shims,$(subst :, ,$(PATH))),$(dir $(shims))versions/3.1[2-9].*/bin/python3))
NEWEST ?= $(firstword $(foreach name,python3.14 python3.13 python3.12,$(shell $(name) -c 'import sys; print(sys.executable)' 2>/dev/null)) \
  $(lastword $(sort $(PYENVS))))

.PHONY: help demo test newest release slow models zoo fuzz lint types bench support onnx-coverage exporters accuracy mutation right-programs hostile faults isa compat dialects constants patterns cli docs notebooks wheel-test golden groups conformance conformance-fuzz clock upstream-data digits clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet -e '.[test,examples,plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install --quiet -e '.[test,examples,plot,dev]'
	@touch $@

demo: $(VENV)/.base ## compile, simulate and verify the digits network that ships with the repository
	$(BIN)/tpusim run examples/digits/digits.onnx --chip bm1684x --mode int8 --data examples/digits/calibration.npz \
	  --test-data examples/digits/test.npz --labels examples/digits/labels.npz

test: $(VENV)/.test ## the default tests
	$(PYTEST) $(BALANCED)

$(VENV)-newest/.test: pyproject.toml
	$(NEWEST) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -e '.[test]'
	@touch $@

newest: $(if $(NEWEST),$(VENV)-newest/.test) ## the quick part of the tests on the newest Python that is here, with the newest JAX
ifeq ($(NEWEST),)
	@echo "make newest: not run: no Python above 3.11 is here (NEWEST=PATH names one)"
else
	$(VENV)-newest/bin/python -c 'import jax, sys; print("Python", sys.version.split()[0], "JAX", jax.__version__)'
	$(KEPT) $(VENV)-newest/bin/python -m pytest -q $(BALANCED) $(QUICK)
endif

slow: $(VENV)/.test ## the larger models, and what the default tests leave of rows and configurations
	$(PYTEST) -m slow $(BALANCED)

models: $(VENV)/.test ## the larger models, and one in 16 of the slow rows, as CI runs them
	$(PYTEST) -m "slow and not rotated" $(BALANCED)

zoo: $(VENV)/.test ## run the classic networks on every chip and its cores, with all checks of the machine on (long)
	$(PYTEST) -m zoo $(BALANCED)

fuzz: $(VENV)/.test ## over 10,000 new damaged program, module, table and array files
	$(PYTEST) tests/test_fuzz.py -m slow --hypothesis-profile search

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## pyright
	$(BIN)/pyright

bench: $(VENV)/.test ## measure: prints ratios, side by side in one process (ARGS=--help: what each measures)
	@for name in $(basename $(notdir $(wildcard benchmarks/how_*.py))); do echo "== $$name"; \
	if [ $$name = how_fast_is_the_search ] && [ -z "$$TPUSIM_UPSTREAM$(findstring --help,$(ARGS))" ]; then \
	echo "not run: it needs an environment with TPU-MLIR, which TPUSIM_UPSTREAM names"; continue; fi; \
	$(BIN)/python -m benchmarks.$$name $(ARGS) || exit 1; done
	@echo "== gpu (small: digits)"; $(BIN)/python -m benchmarks.gpu --small

support: $(VENV)/.test ## measure the support table of every op, chip and mode (rewrites docs/support.md and its data)
	$(BIN)/python tests/support_rows.py

onnx-coverage: $(VENV)/.test ## run ONNX's backend suites through tpusim.backend (minutes); rewrites docs/onnx_coverage.md
	PYTHONPATH=tests $(BIN)/python -m onnx_suite

exporters: $(VENV)/.test ## networks as exporters write them, on every kind of chip, compared with ONNX Runtime (minutes); rewrites docs/exporters.md
	PYTHONPATH=tests $(BIN)/python -m exporter_matrix

mutation: $(VENV)/.test ## put faults into right command streams, measure which check finds them; rewrites docs/mutation.md
	PYTHONPATH=tests $(BIN)/python -m mutation.table

proof-study: $(VENV)/.test ## wrong places and values in right programs: each is another expression over a finite field (minutes; ARGS=--help)
	PYTHONPATH=tests $(BIN)/python -m mutation.proven $(ARGS)

right-programs: $(VENV)/.test ## 2,000 random right programs of all chips, modes and cores in 22 orders each (long; ARGS=--help)
	PYTHONPATH=tests $(BIN)/python -m right_programs $(ARGS)

hostile: $(VENV)/.test ## 8,000 damaged and hostile files and folders through every command (long; ARGS=--help)
	PYTHONPATH=tests $(BIN)/python -m hostile_files $(ARGS)

faults: $(VENV)/.test ## the n-th write, rename, removal, large array or child process of run, calibrate, explore, search-qtable fails (long; ARGS=--help)
	PYTHONPATH=tests $(BIN)/python -m faults_everywhere $(ARGS)

isa: $(VENV)/.base ## write docs/isa.md: commands, legality rules, layouts, from the docstrings of tpusim/isa
	$(BIN)/python -m tpusim.isa.page docs/isa.md

compat: $(VENV)/.base ## write docs/compat.md: the rules that are TPU-MLIR's, from tpusim/compat
	$(BIN)/python -m tpusim.compat.page docs/compat.md

dialects: $(VENV)/.base ## write docs/dialects.md: the ops and attributes of the dialects top and tpu, as TPU-MLIR spells them
	$(BIN)/python -m tpusim.fidelity.dialects docs/dialects.md

patterns: $(VENV)/.test ## write docs/patterns.md: every pass and rewrite pattern, and the examples of tests/filecheck
	$(BIN)/python -c "from tpusim.canonicalize import automaton; automaton.write()"
	PYTHONPATH=tests $(BIN)/python -m pattern_page docs/patterns.md

cli: $(VENV)/.base ## write docs/cli.md: every command and option, from the program's own help
	$(BIN)/python -m tpusim.cli.page docs/cli.md

docs: $(VENV)/.base ## the site of these pages, in site/ (warnings are errors)
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel-test: $(VENV)/.test ## the wheel in empty environments of Python 3.11, 3.12 and 3.13, those that are here (installs JAX in each)
	$(BIN)/python tests/empty_environments.py

release: $(VENV)/.test ## what must hold before a version is tagged: versions, changelog, generated pages, the wheel
	PYTHONPATH=tests $(BIN)/python -m release

notebooks: $(VENV)/.test ## execute the notebooks of the site and write their outputs
	PYTHONPATH=tests $(BIN)/python -m notebooks

golden: $(VENV)/.test ## write the golden command streams of tests/golden anew
	$(PYTEST) tests/test_codegen.py -k golden --update-golden

constants: $(VENV)/.test ## fit the constants of the clock again from recorded profiles, print fitted and used (ARGS=F-01 ...)
	$(BIN)/python -m benchmarks.fit_constants $(ARGS)

accuracy: $(VENV)/.test ## measure what the accuracy table misses (ONLY=, LOCAL=: globs NETWORK/CHIP/MODE); rewrites docs/accuracy.md
	$(BIN)/python -m benchmarks.accuracy $(if $(ONLY),--only $(foreach glob,$(ONLY),'$(glob)')) $(if $(LOCAL),--local $(foreach glob,$(LOCAL),'$(glob)'))

groups: $(VENV)/.test ## group the classic networks by every strategy (ONLY=: names; minutes); rewrites docs/groups.md
	$(BIN)/python -m benchmarks.groups $(if $(ONLY),--only $(ONLY))

conformance: $(VENV)/.test ## compare with TPU-MLIR itself (TPUSIM_UPSTREAM: its environment; ONLY=: globs NETWORK/CHIP/MODE); rewrites docs/conformance.md
	$(BIN)/python -m benchmarks.conformance $(if $(ONLY),--only $(foreach glob,$(ONLY),'$(glob)'))

conformance-fuzz: $(VENV)/.test ## random networks through TPU-MLIR and tpusim (TPUSIM_UPSTREAM; N=, SEED=; IDIOMS=1: exporters' idioms in place of them; ARGS=--help)
	$(BIN)/python -m benchmarks.conformance.fuzz run $(if $(IDIOMS),--idioms) $(if $(N),--n $(N)) $(if $(SEED),--seed $(SEED)) $(ARGS)

clock: $(VENV)/.test ## cycles, bytes and groups compared with recorded profiles of TPU-MLIR; rewrites docs/clock.md
	$(BIN)/python -m benchmarks.conformance.clock

upstream-data: $(VENV)/.test ## record what TPU-MLIR gives for the small networks (TPUSIM_UPSTREAM; ONLY=: names); rewrites tests/upstream/data
	$(BIN)/python -m benchmarks.conformance.record $(if $(ONLY),--only $(ONLY))

digits: $(VENV)/.test ## train the digits network again (rewrites examples/digits)
	$(BIN)/python examples/digits/train.py

clean: ## remove everything that make made
	rm -rf $(VENV) $(VENV)-newest build dist out site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find benchmarks examples kernels tests tpusim -name __pycache__ -prune -exec rm -rf {} +
