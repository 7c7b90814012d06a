# Needs Python 3.11, git and make; as root on Debian or Ubuntu it installs python3-venv where that is missing.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
# Tests at a time: more than four daemons with their trainers are too much for most memories
AT_ONCE := $(shell echo $$(($(JOBS) < 4 ? $(JOBS) : 4)))
# A test with real processes waits for a third of its time: one more than there are cores keeps those busy
WAITING := $(shell echo $$(($(JOBS) < 4 ? $(JOBS) + 1 : 4)))
# Tests start hundreds of processes, each of which would compile bftrainer anew
unexport PYTHONDONTWRITEBYTECODE
# CPU builds of PyTorch come from TORCH_INDEX if it can be reached (the default index may bring gigabytes of CUDA)
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-remove --no-install-recommends
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
SPECS := trainers/digits.yaml trainers/digits-gentle.yaml trainers/spirals.yaml
# Compares what this machine did with what it was predicted to do: nothing else may run beside it
ALONE := tests/integration/test_calibration.py
# Installs bftrainer on this machine, as an administrator would, and removes it again: nothing else may run beside it
GUIDE := tests/cluster/test_admin_guide.py
# Random inputs keep every core busy; attacks measure how long main jobs wait, so they run apart
FUZZING := tests/hostile/test_fuzzing.py
DEMO := $(if $(LOG),$(SPECS) --log $(LOG),trainers/demo/spirals$(if $(filter gpu,$(SHARE)),-gpus).yaml) $(if $(SPEED),--speed $(SPEED)) $(if $(FROM),--from $(FROM)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(KEEP),--keep $(KEEP)) $(if $(GPUS),--gpus $(GPUS)) $(if $(SHARE),--share $(SHARE))
ON_TESTBED := $(SPECS) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(LOG),--log $(LOG)) $(if $(STUDY),--study $(STUDY))

# SLURM=24 or 26 runs what needs a Slurm in a chroot that has a later one
IN := $(if $(SLURM),.ci/slurm-chroot $(SLURM))
# Three minutes of a later Slurm: what is read of it, the check, parts of nodes, jobs of every kind
SMOKE := test_testbed.py test_check_of_slurm.py test_slurm_scheduler.py::TestSlurmScheduler test_parts_of_nodes.py test_main_jobs_of_every_kind.py
# What the night adds to make test, in this order
NIGHT := $(addprefix night-,tests cluster hostile soak impact slurm24 slurm26 python3.13 python3.14)
# Debian's trixie and sid have later Pythons, too, with a PyTorch for each
DEBIAN_OF_PYTHON := $(if $(filter 3.13,$(PY)),24,26)

.PHONY: help install horovod demo hpo-demo slurm-demo lsf-demo test nightly lint types docs unit integration hostile cluster smoke python soak impact slurm chromium slurm24 slurm26 wheel release bench gpu evaluation evidence clean $(NIGHT)

help:  ## Show this help
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/installed  ## Install bftrainer and all it needs for development into .venv

$(VENV)/installed: setup.cfg pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "no python3.11 found; install it or say make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		test "$$(id -u)" = 0 || { echo "install python3-venv first, or run make as root once"; exit 1; }; \
		apt-get update -qq && $(APT_INSTALL) python3-venv; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $$($(BIN)/python .ci/torch_index.py $(TORCH_INDEX)) "$(TORCH)"
	$(PIP) --editable '.[torch,huggingface,lightning,dev]' "$(TORCH)"
	@touch $@

horovod: $(VENV)/horovod  ## Build Horovod for .venv's Python and PyTorch, once (3 minutes), and install it

$(VENV)/horovod: $(VENV)/installed .ci/horovod
	.ci/horovod $(BIN)/python
	@touch $@

demo: install  ## Show bftrainer at work on this machine: four acts in about 90 s (LOG=path: a real idle-node log instead; KEEP=path: keep its record; GPUS=2: a node's, simulated if need be; SHARE=gpu: one by one)
	$(BIN)/bftrainer demo $(DEMO) --picture build/demo.svg

hpo-demo: install  ## Search for hyper-parameters on this machine: 16 trials, real training, under 3 minutes (STUDY=path of a study file)
	$(BIN)/bftrainer study demo $(or $(STUDY),trainers/studies/digits.yaml)

slurm-demo: install slurm  ## Show bftrainer on a real Slurm whose main jobs come and go (SECONDS=60, LOG=path of an SWF log, STUDY=path of a study file)
	$(IN) $(BIN)/python -m slurm.testbed demo $(ON_TESTBED)

lsf-demo: install  ## The same on an emulated LSF, for two minutes; needs no root (SECONDS=60, LOG=..., STUDY=... as before)
	$(BIN)/python -m lsf.emulator demo $(ON_TESTBED)

test: install slurm lint types  ## Everything that CI runs; where Horovod cannot be built its tests are skipped
	@$(MAKE) --no-print-directory horovod || echo "Horovod cannot be built here: its tests are skipped"
	@$(MAKE) --no-print-directory unit integration hostile cluster

nightly: install  ## All of make test, and in two hours more what takes longer than CI allows (SECONDS=600 of random faults); a part that fails keeps no other from running
	@$(MAKE) --no-print-directory --keep-going test $(NIGHT)

night-tests: install slurm chromium
	$(BIN)/python -m pytest -n $(WAITING) --dist worksteal -m nightly tests/contract tests/integration
night-cluster: install slurm
	$(BIN)/python -m pytest -m nightly tests/cluster
night-hostile:
	@$(MAKE) hostile FUZZ=300 ATTACKS=nightly
night-soak:
	@$(MAKE) soak SECONDS=$(or $(SECONDS),600)
night-impact:
	@$(MAKE) impact SEEDS=1 MIXES=cores AGAIN=--again
night-slurm24:
	@$(MAKE) cluster SLURM=24 MIXES=cores AGAIN=--again
night-slurm26:
	@$(MAKE) cluster SLURM=26 MIXES=everything AGAIN=--again
night-python3.13 night-python3.14:
	@$(MAKE) python PY=$(@:night-python%=%)

lint: install  ## ruff, and deptry: every import comes from a declared dependency
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/deptry bftrainer

types: install  ## mypy, strict; of the benchmarks, that they call what there is
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini benchmarks/*.py

docs: install  ## Write the generated pages anew from the code's own facts, and make the site of all pages in build/site
	$(BIN)/python -m bftrainer.settings.page docs
	$(BIN)/python -m bftrainer.messages.page docs
	$(BIN)/python -m bftrainer.cli.shared.reference docs
	$(BIN)/python docs/python_page.py docs/python.md
	$(BIN)/python docs/http_page.py docs/http.md
	$(BIN)/python docs/pictures/lanes.py docs/pictures
	$(BIN)/python benchmarks/evidence.py --write docs/evidence/README.md
	$(BIN)/python -m bftrainer.demo.picture docs/pictures/demo.json docs/pictures/demo.svg
	$(BIN)/sphinx-build -q --fail-on-warning -c docs -b html . build/site
	$(BIN)/python docs/openapi_page.py build/site/openapi.json
	@echo "open build/site/index.html, or: $(PYTHON) -m http.server --bind 127.0.0.1 --directory build/site"

evidence: install  ## Repeat what the documentation claims, as far as an hour allows (TRACES=folder of the published logs, ONLY=word)
	$(BIN)/python benchmarks/evidence.py $(if $(TRACES),--traces $(abspath $(TRACES))) $(if $(ONLY),--only $(ONLY))

unit: install  ## The tests of the pure core and of everything that needs no daemon
	$(BIN)/python -m pytest -n $(AT_ONCE) tests/unit

integration: install slurm chromium  ## The tests with real processes, sockets and databases
	$(BIN)/python -m pytest $(ALONE)
	$(BIN)/python -m pytest -n $(WAITING) --dist worksteal -m "not nightly" $(addprefix --ignore=,$(ALONE)) \
		tests/contract tests/integration

hostile: install  ## Attacks on whole daemons, then FUZZ (60) seconds of random messages, specs and requests
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "$(or $(ATTACKS),not nightly)" --ignore=$(FUZZING) tests/hostile
	FUZZ_SECONDS=$(or $(FUZZ),60) $(BIN)/python -m pytest -n $(AT_ONCE) $(FUZZING)

cluster: install slurm $(if $(SLURM),slurm$(SLURM))  ## The tests on a real Slurm, which they bring up themselves; skipped without root (SLURM=24 or 26: a later one)
	$(IN) $(BIN)/python -m pytest -n $(WAITING) --dist loadfile -m "not nightly" $(addprefix --ignore=,$(GUIDE)) tests/cluster
	$(IN) $(BIN)/python -m pytest $(GUIDE)
	$(if $(SLURM),@$(MAKE) --no-print-directory slurm-demo impact SEEDS=$(or $(SEEDS),1))

smoke: wheel slurm  ## A few of them on Slurm 26.05, in at most three minutes, and the wheel on the newest Python; skipped with a reason where there can be no chroot
	@.ci/slurm-chroot 26; case $$? in \
		0) .ci/slurm-chroot 26 .ci/newest-python dist/bftrainer-*.whl && \
			.ci/slurm-chroot 26 $(BIN)/python -m pytest -n $(WAITING) --dist loadfile -m "not nightly" $(addprefix tests/cluster/,$(SMOKE)) ;; \
		3) echo "the tests on Slurm 26.05 and on the newest Python are skipped" ;; \
		*) exit 1 ;; esac

python: build/python$(PY)/installed  ## The unit tests on PY=3.13 or 3.14, in the chroot of Slurm 24.11 or 26.05
	.ci/slurm-chroot $(DEBIAN_OF_PYTHON) build/python$(PY)/bin/python -m pytest -n $(AT_ONCE) tests/unit

build/python$(PY)/installed: setup.cfg pyproject.toml | install slurm
	.ci/slurm-chroot $(DEBIAN_OF_PYTHON) sh -c "apt-get update -qq && $(APT_INSTALL) python3-torch"
	.ci/slurm-chroot $(DEBIAN_OF_PYTHON) /usr/bin/python3 -m venv --system-site-packages $(@D)
	.ci/slurm-chroot $(DEBIAN_OF_PYTHON) $(@D)/bin/pip install -qq --editable '.[torch,dev]'
	@touch $@

soak: install slurm  ## Faults at random on a real Slurm for SECONDS (900), with trainers and main jobs that must not mind
	$(IN) $(BIN)/python -m tests.cluster.soak --seconds $(or $(SECONDS),900) --seed $(or $(SEED),1)

impact: install slurm  ## Do main jobs notice bftrainer? Two mixes of jobs on a real Slurm, without it, with it, without again (SEEDS=1-5, MIXES=cores)
	for mix in $(or $(MIXES),cores everything); do \
		$(IN) $(BIN)/python benchmarks/slurm_impact.py --mix $$mix --seeds $(or $(SEEDS),1-5) $(AGAIN) --check \
			--out build/slurm-impact$(SLURM) || exit 1; done

slurm:  ## Install Debian's Slurm, munge, sudo and a database where they are missing and we are root
	@missing=; for program in sbatch slurmctld slurmd munged sudo slurmdbd mariadbd; do \
		PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if test -z "$$missing"; then :; \
	elif test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
		echo "$$missing missing, and no root or apt-get to install them: the tests that need them are skipped"; \
	else apt-get update -qq && $(APT_INSTALL) slurm-wlm munge sudo && { \
		$(APT_INSTALL) slurmdbd mariadb-server-core mariadb-client-core || \
		echo "no database beside what is installed here: the tests of Slurm's accounting are skipped"; }; fi

chromium:  ## Install Debian's Chromium with its driver, for the tests of the page, where it is missing and we are root
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
		echo "no chromium, and no root or apt-get to install it: the tests of the page in a browser are skipped"; \
	else apt-get update -qq && $(APT_INSTALL) chromium chromium-driver || \
		echo "chromium cannot be installed here: the tests of the page in a browser are skipped"; fi

slurm24 slurm26: slurm  ## Build a chroot with a later Slurm, once: 24.11 or 26.05 (build/slurm24, build/slurm26)
	.ci/slurm-chroot $(subst slurm,,$@)

wheel: install  ## Build a wheel into dist/
	rm -f dist/*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

release: install  ## Build wheel and sdist into dist/, check them, and list all that the wheel installs (SBOM, CycloneDX)
	rm -rf dist build/installed
	$(PIP) --editable '.[release]'
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --without-pip build/installed
	$(BIN)/python -m pip --python build/installed/bin/python install -qq --disable-pip-version-check dist/*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.cdx.json \
		build/installed/bin/python
	build/installed/bin/bftrainer --version

bench: install  ## Time the allocators against each other, place GPUs, then the daemon's event loop under attack (35 minutes)
	$(BIN)/python benchmarks/allocate.py --repeat 50
	$(BIN)/python benchmarks/shared_gpus.py --repeat 100
	$(BIN)/python benchmarks/shared_gpus.py --milp 20
	$(BIN)/python benchmarks/loop.py

gpu: install  ## Pack this checkout and its wheels into build/gpu, for a bare machine with a GPU (PY=3.12: its Python; FORKS=all: with packages that scripts import); there, in its folder project: sh benchmarks/gpu_run.sh
	rm -rf build/gpu && mkdir -p build/gpu/project build/gpu/wheels
	git archive HEAD | tar -x -C build/gpu/project
	$(BIN)/pip wheel -q --no-deps -w build/gpu/wheels .
	$(BIN)/pip download -q --only-binary=:all: $(if $(PY),--python-version $(PY)) -d build/gpu/wheels build/gpu/wheels/bftrainer-*.whl
	$(if $(FORKS),$(BIN)/pip download -q --no-deps --prefer-binary $(if $(PY),--only-binary=:all: --python-version $(PY)) -d build/gpu/more -r benchmarks/gpu_packages.txt)

evaluation: install  ## Run docs/evidence/evaluation.md's replays anew: TRACES=folder of the published log, OUT=folder for results
	@test -n "$(TRACES)" || { echo "say make evaluation TRACES=folder of the published log and workloads"; exit 1; }
	$(BIN)/python benchmarks/paper.py --traces $(TRACES) --out $(or $(OUT),build/evaluation) --jobs $(JOBS)

clean:  ## Remove what was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
