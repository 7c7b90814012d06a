"""What a study would cost is counted before anything of it is made: small texts that stand for much."""

from __future__ import annotations

import copy
import gc
import json
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.search.cost import TRIAL as TRIAL_BYTES
from bftrainer.search.cost import StudyBounds, addition, bytes_of_trial
from bftrainer.search.files.parse import parse
from bftrainer.search.files.space import Kind, Parameter, Params
from bftrainer.search.fill import trainer_of, values_of
from bftrainer.search.grid import Grid
from bftrainer.search.optuna.sampling import Sampling
from bftrainer.search.optuna.storage import checked, shown
from bftrainer.search.rows import TRIAL, DamagedStudyError, loaded, stored_study, stored_trial
from bftrainer.search.stopping import reporting
from bftrainer.search.trial import RungResult, Study, StudyFile, Trial
from bftrainer.spec.located_yaml import SpecError
from tests.support.studies import TEXT, spec_of

SITE = StudyBounds(trials=5000, trial_kb=32, study_mb=16)
FREE = {"command": ["run", "{params}"], "nodes": {"max": 1}}


def refused(most: StudyBounds = SITE, **keys: Any) -> str:
    """Why a study is refused; it takes little memory to say so."""
    text = json.dumps({**TEXT, "trainer": FREE, **keys}, ensure_ascii=False)
    tracemalloc.start()
    try:
        with pytest.raises(SpecError) as found:
            parse(text, "s.yaml", Path("/"), most=most)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    return str(found.value)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (
            {"float": [0.0, 1.0], "step": 1e-12},
            "space.p: 1,000,000,000,001 values are on the grid, and at most 100,000 may be",
        ),
        ({"int": [0, 10**12]}, "space.p: 1,000,000,000,001 values are on the grid, and at most 100,000 may"),
        ({"int": [0, 15_000_000]}, "space.p: 15,000,001 values are on the grid"),
        ({"int": [0, 15_000_000], "log": False, "step": 2}, "Give a larger step"),
    ],
)
def test_the_values_of_a_grid_are_counted_and_not_listed(own: dict[str, Any], told: str) -> None:
    assert told in refused(space={"p": own}, sampler="grid", trials=1)


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random", "cmaes"])
@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"float": [0.0, 1e300], "step": 1e-300}, "step: 1e-300 cannot be used. "),
        ({"float": [0.0, 1.0], "step": 5e-324}, "cannot be used. Give at least 1.1e-16"),
        ({"float": [-1e300, 1e300], "step": 1.0}, "cannot be used. Give at least 2.2e+284"),
        ({"int": [0, 10**30]}, "Give whole numbers from -9007199254740992 to 9007199254740992, or use float"),
        ({"int": [-(10**60), 0]}, "Give whole numbers from"),
        ({"float": [0.0, float("inf")]}, "finite number"),
        ({"float": [float("nan"), 1.0]}, "finite number"),
        ({"float": [0.0, 1.0], "step": float("nan")}, "finite number"),
        ({"choice": [1.0, float("nan")]}, "finite number"),
        ({"choice": [float("-inf"), "a"]}, "finite number"),
    ],
)
def test_numbers_that_no_sampler_can_bear_are_refused(own: dict[str, Any], told: str, sampler: str) -> None:
    text = json.dumps({**TEXT, "trainer": FREE, "space": {"p": own}, "sampler": sampler})
    text = text.replace("NaN", ".nan").replace("-Infinity", "-.inf").replace("Infinity", ".inf")
    with pytest.raises(SpecError) as found:
        parse(text, "s.yaml", Path("/"))
    assert told in str(found.value)


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random", "cmaes"])
@pytest.mark.parametrize(
    "own",
    [
        {"float": [0.0, 1.0], "step": 2e-5},
        {"int": [-(2**53), 2**53], "points": 5},
        {"float": [-1e300, 1e300], "points": 3},
        {"float": [1e-300, 1e300], "log": True, "points": 3},
        {"int": [0, 9], "step": 3},
    ],
)
def test_what_is_accepted_can_be_sampled(own: dict[str, Any], sampler: str) -> None:
    if sampler != "grid":
        own = {key: value for key, value in own.items() if key != "points"}
    spec = spec_of(space={"p": own}, sampler=sampler, trainer=FREE)
    (name, value), *rest = Sampling(spec).ask(1)
    assert name == "p" and not rest and spec.space[0].low <= float(value) <= spec.space[0].high


def test_a_grid_of_many_points_is_counted_up_to_the_bound_alone() -> None:
    space = {"a": {"choice": list(range(256))}, "b": {"choice": list(range(256))}}
    space |= {f"p{i}": {"choice": [0]} for i in range(96)}
    before = time.process_time()
    told = refused(space=space, sampler="grid", trials=100_000)
    assert "trials: the points of the grid are above 5,000, the most here (max_trials). Give fewer" in told
    spec = spec_of(space=space, sampler="grid", trials=100_000, trainer=FREE)
    assert spec.trials == 65_536
    sampling = Sampling(spec)
    assert dict(sampling.ask(65_535))["a"] == dict(sampling.ask(65_535))["b"] == 255
    assert dict(sampling.ask(257))["b"] == 1
    assert time.process_time() - before < 10.0, "29 s where each point is made"


def test_the_command_of_a_trial_is_counted_before_it_is_filled() -> None:
    trainer = {"command": ["true", "{params}" * 1900], "nodes": {"max": 1}}
    told = refused(trainer=trainer, space={"p": {"choice": ["é" * 7700]}}, trials=256)
    assert "trainer.command: with a trial's values, command and env have up to 87,8" in told
    assert "bytes, and at most 32 kB (max_spec_kb)" in told
    many = {"command": ["true"], "env": {"A": "{p}" * 1000}, "nodes": {"max": 1}}
    assert "at most 32 kB" in refused(trainer=many, space={"p": {"choice": ["x" * 100]}})


def test_the_bytes_of_all_trials_are_counted() -> None:
    told = refused(trainer=FREE, space={"p": {"choice": ["x" * 15_000]}}, trials=5000)
    assert "5,000 trials have up to 151 MB, and at most 16 MB" in told


@pytest.mark.parametrize(
    ("own", "value"), [({"choice": [0, 1]}, 1), ({"int": [0, 2**53]}, 2**52), ({"float": [0.0, 1.0]}, 0.1)]
)
def test_known_points_take_no_more_memory_than_was_counted(own: dict[str, Any], value: float) -> None:
    spec = spec_of(
        space={f"p{n}": copy.deepcopy(own) for n in range(100)}, trainer=FREE, sampler="random", trials=400
    )
    study = Study.new(1, spec, "ann", 0.0)
    before = memory()
    try:
        point = json.dumps({f"p{n}": value for n in range(100)})
        added = addition(study, 0, [json.loads(point) for _ in range(400)], SITE)
        assert memory() - before <= 400 * bytes_of_trial(spec)[1]
    finally:
        tracemalloc.stop()
    assert len(added.points) == 400


def memory() -> int:
    """The bytes that Python's objects have; from the first call on it counts them."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_all_unfinished_studies_of_a_user_are_counted_together() -> None:
    keys: dict[str, Any] = {"space": {"p": {"choice": ["x" * 7000]}}, "trainer": FREE}
    one = spec_of(**keys, sampler="random", trials=1000)  # 14 MB
    two, four = (replace(SITE, taken=n * 1000 * sum(bytes_of_trial(one))) for n in (2, 4))
    assert parse(json.dumps({**TEXT, **keys, "trials": 1000}), "s.yaml", Path("/"), most=two).trials == 1000
    told = refused(four, **keys, trials=1000)
    assert "1,000 trials have up to 16 MB, and at most 7.6 MB, what your other studies leave of 64 MB" in told
    study = Study.new(5, spec_of(**keys, sampler="random", trials=500), "ann", 0.0)
    assert addition(study, 500, [], two).trials == 500
    assert addition(study, 0, [], four).trials == 0
    with pytest.raises(BftrainerError, match=r"as many as fit into 7\.6 MB, what your other"):
        addition(study, 500, [], four)


def test_no_trial_has_more_bytes_than_were_counted() -> None:
    own = {
        "p": {"choice": ["é", 'a"b', True, 10**60]},
        "q": {"float": [-1e300, -1e-300]},
        "r": {"int": [0, 9]},
    }
    trainer = {"command": ["{params}", "{p}{q}", "{r}-{seed}-{trial}"], "nodes": {"max": 1}}
    spec = spec_of(space=own, trainer={**trainer, "env": {"KEY": "{p}"}}, sampler="random", trials=40)
    sampling, (most, params) = Sampling(spec), bytes_of_trial(spec)
    for number in range(40):
        found = sampling.ask(number)
        filled = trainer_of(spec, number, found, run=1, samples=1, checkpoint_dir="/c")
        words = [*filled.command, *(word for pair in filled.env for word in pair)]
        assert sum(len(word.encode()) for word in words) <= most
        assert len(str(values_of(spec, number, found)["params"])) <= params


def every(space: tuple[Parameter, ...], before: Params = ()) -> list[Params]:
    """The points of a grid, by making each."""
    if not space:
        return [before]
    first, *rest = space
    if not first.applies(dict(before)):
        return every(tuple(rest), before)
    values = [(first.name, first.value(i)) for i in range(first.count())]
    return [point for one in values for point in every(tuple(rest), (*before, one))]


@pytest.mark.parametrize(("wanted", "most"), list(product([None, 0.5, "b", 3, 7], [1, 7, 10_000])))
def test_points_by_number_are_those_that_one_by_one_are_made(wanted: Any, most: int) -> None:
    def when(name: str, *values: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        asked = tuple(value for value in values if wanted is None or value != wanted)
        return ((name, asked),) if asked else ()

    space = (
        Parameter(name="a", kind=Kind.FLOAT, low=0.0, high=1.0, step=0.25),
        Parameter(name="b", kind=Kind.CHOICE, choices=("a", "b", True), when=when("a", 0.5, 1.0)),
        Parameter(name="c", kind=Kind.INT, low=1, high=4, when=when("b", "b", True)),
        Parameter(name="d", kind=Kind.FLOAT, low=1.0, high=100.0, log=True, points=3),
        Parameter(name="e", kind=Kind.CHOICE, choices=(1, 2), when=(*when("c", 3, 1), *when("d", 100.0))),
        Parameter(name="f", kind=Kind.INT, low=0, high=1, when=when("a", 7)),
    )
    grid, made = Grid(space, most), every(space)
    assert grid.size == min(most, len(made))
    assert [grid.point(n) for n in range(grid.size)] == made[:most]


def test_conditions_that_combine_in_too_many_ways_are_refused() -> None:
    own: dict[str, Any] = {f"p{i}": {"choice": [0, 1]} for i in range(40)}
    own |= {f"q{i}": {"choice": [0, 1], "when": {f"p{k}": 1 for k in range(40)}} for i in range(40)}
    most = StudyBounds(trials=100_000, trial_kb=32, study_mb=1000)
    assert "5,000 ways. Let fewer parameters depend" in refused(
        most, space=own, sampler="grid", trials=100_000
    )


def test_a_storages_text_is_measured_before_it_is_matched() -> None:
    with pytest.raises(ValueError, match=r"has 31,600 characters, at most 1,000. Give sqlite"):
        checked("://:" * 7900, Path("/"))
    assert len(shown("://:" * 7900)) <= 1000


@pytest.mark.parametrize(
    "keys",
    [
        {"sampler": "grid", "space": {"lr": {"float": [0.0, 1.0], "step": 1e-12}}},
        {"sampler": "grid", "space": {"lr": {"int": [0, 15_000_000]}}},
        {"space": {"lr": {"choice": ["x" * 15_000]}}, "trainer": {**FREE, "command": ["{params}" * 1900]}},
        {"space": {"lr": {"float": [0.0, 1e300], "step": 1e-300}}},
    ],
)
def test_a_stored_study_is_counted_as_a_new_one_is(keys: dict[str, Any]) -> None:
    study = Study.new(7, spec_of(), "ann", 0.0, StudyFile(text="", file="s.yaml", base="/"))
    kept = replace(stored_study(study), text=json.dumps({**TEXT, **keys}))
    with pytest.raises(DamagedStudyError, match=r"the study 7 \(s\) cannot be read: .*(at most|at least)"):
        loaded(kept, [stored_trial(Trial(number=0, params=(("lr", 0.5),)))])


@pytest.mark.parametrize(
    "brief", [{"priority": "x"}, {"added": ["x"]}, {"added": 3}, {"tried": "x"}, {"tried": None}]
)
def test_a_stored_study_whose_figures_make_no_sense_is_damaged(brief: dict[str, Any]) -> None:
    study = Study.new(7, spec_of(), "ann", 0.0, StudyFile(text=json.dumps(TEXT), file="s.yaml", base="/"))
    assert loaded(stored_study(study), ()).spec.name == "s"
    with pytest.raises(DamagedStudyError, match=r"the study 7 \(s\) cannot be read: "):
        loaded(replace(stored_study(study), brief=brief), ())


def test_a_stored_trial_on_a_rung_that_there_is_not_is_damaged() -> None:
    study = Study.new(7, spec_of(), "ann", 0.0, StudyFile(text=json.dumps(TEXT), file="s.yaml", base="/"))
    odd = stored_trial(Trial(number=0, params=(("lr", 0.5),), rung=99))
    with pytest.raises(DamagedStudyError, match=r"the study 7 \(s\) cannot be read: "):
        loaded(stored_study(study), [odd])


def test_studies_of_all_users_are_counted_together() -> None:
    told = refused(replace(SITE, of_all=999_000_000), trials=4000, space={"p": {"float": [0, 1]}})
    assert "at most 1.0 MB, what all users' other studies leave of 1,000 MB" in told


def test_a_wide_character_makes_a_choice_wide_and_is_counted() -> None:
    wide, narrow = (
        spec_of(space={"p": {"choice": ["x" * 3000 + one]}}, trainer=FREE, trials=1) for one in "\U0001f600x"
    )
    assert bytes_of_trial(wide)[1] > 3 * bytes_of_trial(narrow)[1]


def a_trial(number: int, **more: Any) -> Trial:
    """A trial that is as large as it may be."""
    names = tuple(sorted(f"{number}-{i}-" + "\U0001f600" * 80 for i in range(100)))
    trial = Trial(number=number, params=(("lr", number + 0.5),))
    study = Study.new(1, spec_of(), "ann", 0.0)
    if more.pop("silent", False):
        return reporting(study, trial, names)
    for step in range(1, 128):
        trial = trial.reported(1000 * number + 300 + step, step + 0.5)
    return trial


def growth(silent: bool) -> tuple[int, Trial]:
    """The bytes that a hundred trials take which were stored and read again, and one of them."""

    def hundred(first: int) -> list[Trial]:
        trials = (stored_trial(a_trial(first + n, silent=silent)).data for n in range(100))
        return [TRIAL.validate_python(json.loads(json.dumps(data))) for data in trials]

    memory()
    known = hundred(1000)  # with them what is made once, whoever asks first
    before = memory()
    kept = hundred(0)
    return memory() - before, [*kept, *known][7]


@pytest.mark.parametrize("silent", [False, True])
def test_a_trial_takes_no_more_memory_than_was_counted_whatever_its_script_reports(silent: bool) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # here threads of other tests take some, too
        grown, trial = fresh.submit(growth, silent).result()
    assert grown <= 100 * TRIAL_BYTES
    assert trial == a_trial(7, silent=silent)


def test_of_an_older_study_no_more_is_kept_than_its_results() -> None:
    spec = spec_of(sampler="tpe", trials=5000)
    results = (RungResult(rung=0, samples=800, value=0.5),)
    trials = {n: replace(a_trial(n), params=(("lr", 0.5),), results=results) for n in range(20)}
    own = replace(spec, warm_start="1")
    before = memory()
    try:
        known = Study.new(1, spec, "ann", 0.0).put(*trials.values()).known_to(own)
        assert memory() - before <= 20 * 800
    finally:
        tracemalloc.stop()
    assert len(known) == 20 and not any(trial.course for trial in known)


def test_of_an_older_study_no_more_trials_are_kept_than_are_learnt_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bftrainer.search.trial.MOST_LEARNT", 8)
    spec = spec_of(sampler="tpe", trials=5000)
    result = RungResult(rung=0, samples=800, value=0.5)
    trials = [Trial(number=n, params=(("lr", 0.5),), results=(result,)) for n in range(50)]
    assert len(Study.new(1, spec, "ann", 0.0).put(*trials).known_to(spec)) <= 8
