# Everything a developer runs; `make` alone lists it. Needs Python 3.11 or newer with its venv module, nothing else:
# the first target that needs the virtual environment makes it.

PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo-output
ARGS ?=
HADOOP_ARGS ?=
# Tests on a Hadoop run in two processes with a cluster each, because jobs wait for one thing or another a third of the
# time; those on a cluster of `make hadoop-up` in one, because they may break it for each other.
HADOOP_WORKERS ?= $(if $(APNC_HADOOP_FOLDER),0,2)

bin := $(VENV)/bin
pip := $(bin)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-hadoop hadoop-up hadoop-down lint format clean

help:
	@echo 'make demo     cluster two real samples and score the result'
	@echo 'make test     run the quick test suite        (ARGS="-k kernels -x": arguments for pytest)'
	@echo 'make test-hadoop  run the tests on a real Hadoop, started for them; needs Java and Maven'
	@echo 'make hadoop-up    start a Hadoop on this machine and print what to export (HADOOP_ARGS="--folder DIR")'
	@echo 'make hadoop-down  end it'
	@echo 'make lint     check style and formatting'
	@echo 'make format   repair what can be repaired of it'
	@echo 'make clean    remove the virtual environment and everything built'
	@echo 'Variables: PYTHON=$(PYTHON) VENV=$(VENV)'

# Installed as editable by every target: a copy would go stale with the next change of a source file, and demo and
# test share one environment. So only what setup.cfg and pyproject.toml say can outdate an installation.
$(VENV)/installed: setup.cfg pyproject.toml
	@echo 'Installing apnc and what it needs into $(VENV) (takes a minute or two)'
	$(PYTHON) -m venv $(VENV)
	$(pip) install --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(pip) install --editable '.[test]'
	@touch $@

demo: $(VENV)/installed
	$(bin)/apnc cluster data_samples/digits.csv -k 10 -o $(DEMO)/digits --overwrite \
	    --method nystrom --kernel rbf --kernel-params 'sigma=auto*0.5' --label-column digit
	$(bin)/apnc cluster data_samples/breast_cancer.svm -k 2 -o $(DEMO)/breast_cancer --overwrite \
	    --method stable --kernel rbf --scale unit --label-column 1
	@echo
	@echo 'Labels: $(DEMO)/digits/labels.csv  $(DEMO)/breast_cancer/labels.csv'
	@echo 'Models: $(DEMO)/digits/model.npz   $(DEMO)/breast_cancer/model.npz'

test: $(VENV)/installed-test
	$(bin)/python -m pytest -n auto $(ARGS)

test-hadoop: $(VENV)/installed-test
	$(bin)/python -m pytest -m hadoop tests/hadoop -n $(HADOOP_WORKERS) --dist loadfile $(ARGS)

hadoop-up hadoop-down:
	@$(PYTHON) -m tests.hadoop.cluster $(@:hadoop-%=%) $(HADOOP_ARGS)

lint: $(VENV)/installed-test
	$(bin)/ruff check .
	$(bin)/ruff format --check .

format: $(VENV)/installed-test
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find apnc mr_jobs tests data_samples -name __pycache__ -prune -exec rm -rf {} +
