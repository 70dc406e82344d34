# Everything runs in .venv, which the first target that needs it makes: Python 3.11 or later, pip and make are enough.
#   make demo     edit three real checkpoints and resume their training
#   make test     run the tests, and of the slow ones this commit's eighth (ARGS="tests/test_plan.py -k rename" chooses,
#                 ARGS="--turn all" leaves none out)
#   make check    lint, format, types, then the tests: what CI runs
#   make oracle   hold what becomes of optimizer state against training itself, for every optimizer of optax (long;
#                 ARGS="--part 1/8" tries the first eighth)
#   make powers   try every optimizer of optax out, and write what was seen to optimizer/knowledge/measured.py
#   make check-all  as make check, and in full what it takes a sample of: all of that table anew, every edit in every
#                   layout of every state, random plans, runs struck at every moment, rescues, derived plans,
#                   distributions, and the site; and of the oracle, which takes 200 minutes of a processor, the day's
#                   sixteenth (on GitHub all of it each night, in eight jobs)
#   make mutants  change the code in one place after the other, N times in each of some modules, and say what no test
#                 notices (N=10 ARGS="--modules tree.paths")
#   make plans    hold N random plans against flat NumPy (N=2000 SEED=7)
#   make fuzz     give every reader N inputs that nobody writes (N=100000 SEED=7 ARGS="--kinds msgpack"), and add up
#                 what became of them in docs/proof/fuzz.json
#   make rescues  rescue 220 checkpoints that are damaged at random, and write what came of them to docs/proof/rescues.json
#   make versions run the tests with the oldest versions that pyproject.toml allows, and with the newest that there are
#   make soak     strike runs for HOURS, and add the counts to docs/proof/faults.json (HOURS=1; ARGS="--seed 7 --sections calls")
#   make docs     build the site of the documentation into build/site; it gets an environment of its own in build/docs-env
#   make bench    measure edits beside restore-edit-save and cp -r (SIZE=1.6GB; ARGS="--device gpu" adds a device)
#   make bench-peers  merge ten checkpoints beside mergekit and a NumPy script; mergekit gets an environment of its own
#                 in build/peers-env (MEMBER=300MB; a few GB with torch)
#   make samples  train the sample checkpoints anew
#   make clean    remove what the other targets made

BIN := .venv/bin
INSTALLED := .venv/installed.stamp
SIZE ?= 1.6GB
MEMBER ?= 300MB
MERGEKIT := mergekit==0.1.5 torch transformers safetensors
ARGS ?=
N ?= 2000
SEED ?= 1
HOURS ?= 1
TODAY := $$(date +%s) / 86400

.PHONY: help demo test check check-all oracle powers plans fuzz rescues soak mutants versions lint docs bench bench-peers samples clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(INSTALLED)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh sample_checkpoints/demo.sh

test: $(INSTALLED)
	@$(BIN)/python -m pytest $(ARGS)

lint: $(INSTALLED)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary

check: lint
	@$(MAKE) --no-print-directory test

oracle: $(INSTALLED)
	@PYTHONPATH=. JAX_PLATFORMS=cpu $(BIN)/python -m tests.oracle $(ARGS)

powers: $(INSTALLED)
	@PYTHONPATH=. JAX_PLATFORMS=cpu $(BIN)/python -m tests.optimizer.factory_trials

check-all: lint docs
	@$(MAKE) --no-print-directory oracle ARGS="--part $$(( $(TODAY) % 16 + 1 ))/16"
	@POWERS=all $(BIN)/python -m pytest tests/judge tests/oracle tests/optimizer --every-combination
	@$(BIN)/python -m pytest tests/operations tests/compute tests/engine tests/probe tests/store tests/verification tests/conversions --every-combination
	@$(BIN)/python -m pytest tests/hosts tests/buckets --every-combination
	@DERIVED_TREES=20000 DERIVED_PLANS=300 $(BIN)/python -m pytest tests/matching tests/cli tests/library tests/pages --every-combination
	@$(BIN)/python -m pytest tests/test_*.py tests/draft tests/export tests/faults tests/fuzz tests/layout tests/mutants --every-combination
	@$(BIN)/python -m pytest tests/packaging --every-combination
	@$(BIN)/python -m pytest tests/browser --every-combination -n 0 -s
	@$(MAKE) --no-print-directory versions ARGS="tests/judge tests/operations tests/store tests/layout tests/probe tests/matching tests/cli/test_derive.py"
	@RESCUES=220 $(BIN)/python -m pytest tests/salvage --every-combination -n 0 -s
	@PLANS=300 PLANS_SEED=$$(( $(TODAY) )) $(BIN)/python -m pytest tests/random_plans --every-combination

plans: $(INSTALLED)
	@PLANS=$(N) PLANS_SEED=$(SEED) $(BIN)/python -m pytest tests/random_plans -n 0 -s $(ARGS)

mutants: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.mutants $(N) --seed $(SEED) --results docs/proof/mutants.json $(ARGS)

fuzz: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.fuzz $(N) --seed $(SEED) --judged $$(($(N) / 50)) --counts docs/proof/fuzz.json $(ARGS)

versions: $(INSTALLED)
	@mkdir -p build && : > build/newest.txt && $(BIN)/python -m tests.packaging.oldest > build/oldest.txt
	@set -e; for which in oldest newest; do \
	  echo "With the $$which versions …"; \
	  $(BIN)/python -m venv --clear build/$$which; \
	  build/$$which/bin/python -m pip install --quiet -c build/$$which.txt -e '.[dev,demo]'; \
	  build/$$which/bin/python -m pytest $(ARGS); \
	done

rescues: $(INSTALLED)
	@RESCUES=220 RESCUES_TO=docs/proof/rescues.json $(BIN)/python -m pytest tests/salvage/test_random_damage.py -n 0 -s

soak: $(INSTALLED)
	@PYTHONPATH=. nice -n 19 $(BIN)/python -m tests.faults --hours $(HOURS) $(ARGS)

bench: $(INSTALLED)
	@$(BIN)/python benchmarks/bench.py --size $(SIZE) --json build/bench.json --picture build/bench.png $(ARGS)

DOCS := build/docs-env

# Material says at each build which program will follow it.
docs: $(INSTALLED) $(DOCS)/installed.stamp
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build

$(DOCS)/installed.stamp: pyproject.toml constraints.txt
	@$(BIN)/python -m venv --clear $(DOCS)
	@$(DOCS)/bin/pip install --quiet -c constraints.txt \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

PEERS := build/peers-env

bench-peers: $(INSTALLED) $(PEERS)/installed.stamp
	@$(BIN)/python benchmarks/peers.py --python $(PEERS)/bin/python --size $(MEMBER) --json build/peers.json $(ARGS)

$(PEERS)/installed.stamp: Makefile
	@$(BIN)/python -m venv --clear $(PEERS)
	@$(PEERS)/bin/pip install --quiet $(MERGEKIT)
	@touch $@

samples: $(INSTALLED)
	@$(BIN)/python sample_checkpoints/train.py

clean:
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A Debian Python may lack ensurepip, hence the second way to a pip inside .venv.
$(INSTALLED): pyproject.toml constraints.txt
	@set -e; \
	if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  for python in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	    if $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'surgery needs Python 3.11 or later, and none was found.' >&2; \
	    echo '  Looked for: $(PYTHON) python3.13 python3.12 python3.11 python3 python' >&2; \
	    echo '  Install one, or name it: make PYTHON=/path/to/python3.12 …' >&2; \
	    exit 1; \
	  fi; \
	  echo "Making .venv with $$($$found --version) …"; \
	  rm -rf .venv; \
	  $$found -m venv .venv 2>/dev/null || { \
	    rm -rf .venv; \
	    $$found -m venv --without-pip .venv; \
	    $$found -m pip --python .venv/bin/python install --quiet pip; \
	  }; \
	fi
	@echo 'Installing into .venv …'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[dev,demo]'
	@touch $@
