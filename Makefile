# `make report` builds the environment, makes one run of the embedded panel and the site.
# `make test` runs every check. Everything is installed from the lock files, by hash.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes

.PHONY: report reproduce env test lint lock bench measure phantom lab clean

report: env
	@$(BIN)/drift report --refresh

# For reviewers, offline: are the answers the sealed ones, and do the published numbers follow from them?
reproduce: env
	@$(BIN)/drift verify --no-labels
	@$(BIN)/drift reproduce

env: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name one with make PYTHON=python3.11")'
	@echo "setting up $(VENV) from requirements.lock"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements.lock
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready requirements-test.lock
	@echo "adding the test tools from requirements-test.lock"
	@$(PIP) -r requirements-test.lock
	@touch $@

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest

# Each benchmark prints its figures as JSON; timings are ratios measured in one run.
bench: $(VENV)/.ready-test
	@for script in benchmarks/*.py; do echo "$$script"; $(BIN)/python $$script || exit 1; done

# Measures judge and shape coder on coded sets again and keeps the figures: make measure JUDGE_DATA=folder
measure: env
	@for set in $(JUDGE_DATA)/*_dev.jsonl; do $(BIN)/drift judge evaluate $$set || exit 1; done
	@for set in chatgpt_refusals xstest; do $(BIN)/drift shapes $(JUDGE_DATA)/$${set}_dev.jsonl --against orig_label --keep || exit 1; done
	@$(BIN)/drift shapes tests/judging/texts/shapes.jsonl --against shape --name own_texts --keep
	@$(BIN)/drift shapes tests/judging/texts/shapes_heldout.jsonl --against shape --name held_out --keep

# Derives the readings of the shipped phantom again, after a change of what a reading says, and
# packs them. Asks nothing again unless data/phantom was removed: its truth has then changed.
phantom: env
	@cd data && rm -rf phantom/readings phantom/series.json phantom/churn.jsonl phantom/findings.jsonl
	@$(BIN)/drift refresh --panel phantom --runs 120
	@$(BIN)/drift board --panel phantom --nights 8
	@$(BIN)/drift shapes --panel phantom
	@$(BIN)/drift entail --panel phantom --judge careful --run 20260120T120000Z
	@for judge in careful careless talkative obliging; do $(BIN)/drift entail --panel phantom --judge $$judge || exit 1; done
	@find data/phantom/readings data/phantom/transcripts data/phantom/labels -type f ! -name '*.gz' -exec gzip -9n {} +

# After a change of the rules: declares it in the shipped laboratory record, and labels its stored
# answers with the present judge. Nothing is asked again.
lab: env
	@$(BIN)/drift register --panel lab
	@$(BIN)/drift rescore --panel lab
	@find data/lab/labels -type f ! -name '*.gz' -exec gzip -9n {} +

# Needs uv; pins the newest versions that pyproject.toml allows.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --extra build pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --extra build --extra test -c requirements.lock pyproject.toml -o requirements-test.lock

clean:
	rm -rf $(VENV) .cache report/_site report/_generated
