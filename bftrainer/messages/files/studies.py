"""Refusals of a study, after the file and the line."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_STUDY = Diagnostic(
    901,
    "no study",
    "Begin with 'name: ...', 'trainer: ...', 'space: ...'",
    "A study file is a mapping in YAML: see [A study file](studies.md#a-study-file).",
)
TRAINER_SPEC = Diagnostic(
    902,
    "this is a trainer, not a study",
    "Submit it by bftrainer submit",
    "It has a `command`, and neither `trainer` nor `space`.",
)
SAID_BY_STUDY = Diagnostic(
    903,
    "trainer.{key}: the study says it for all its trainers",
    "Leave it out here",
    "Names follow from the study's name, work from its budget; weight and priority are keys of the study.",
)
NOT_IN_SPACE = Diagnostic(
    904,
    "trainer: {{{name}}} is no parameter",
    "Name one of the space: {known}",
    "Braces in the command and in values of `env` stand for parameters. Other braces belong into the script.",
)
UNUSED = Diagnostic(
    905,
    "space.{name}: neither command nor env of the trainer uses it",
    'Write "{{{name}}}" where its value belongs',
    "A parameter that reaches no script changes nothing, and its search would be in vain.",
)
ONE_RANGE = Diagnostic(
    906,
    "a parameter has one of float: [low, high], int: [low, high] and choice: [...], and {given} is given",
    "Give one of them",
    "Each says in a way of its own which values there are: see [The space](studies.md#the-space).",
)
NOT_OF_CHOICE = Diagnostic(
    907,
    "{key} is for float and int",
    "Leave it out beside choice",
    "A list of choices has no scale and no steps.",
)
SWAPPED = Diagnostic(
    908,
    "[{low:g}, {high:g}]: the lowest value comes first",
    "Swap them",
    "A range goes from its lowest to its highest value.",
)
NOT_WHOLE = Diagnostic(
    909,
    "an int parameter has whole numbers",
    "Use float",
    "Bounds and steps of `int` are whole, as its values are.",
)
LOG_FROM_ABOVE_0 = Diagnostic(
    910,
    "log: true needs numbers above 0, and the lowest is {low:g}",
    "Raise it",
    "A logarithmic scale has no 0.",
)
LOG_AND_STEP = Diagnostic(
    911,
    "log and step do not go together",
    "Leave one of them out",
    "Steps are even on a linear scale only.",
)
TWICE = Diagnostic(
    912,
    "choice: {one!r} occurs twice",
    "Keep one of them",
    "It would be tried twice as often as the others.",
)
NO_PARAMETER_ABOVE = Diagnostic(
    913,
    "{name}: when names {other!r}, which is no parameter above it",
    "Name one that stands above, or move this one down",
    "Parameters get their values in the order of the file, and a condition looks at those before it.",
)
POINTS_OF_A_GRID = Diagnostic(
    914,
    "{points} points make a grid, and the sampler is {sampler}",
    "Add sampler: grid, or leave points out",
    "Other samplers choose values anywhere in the range.",
)
STEP_TOO_LARGE = Diagnostic(
    915,
    "{step:g} is larger than the range from {low:g} to {high:g}, so that {name} would be {low:g} in each "
    "trial",
    "Give at most {span:g}, or widen the range",
    "Values are the lowest one and whole steps above it.",
)
NOT_BELOW_BUDGET = Diagnostic(
    916,
    "{least:,} samples are not below the budget of {budget:,}",
    "Lower {key}, or raise budget",
    "Trials that are to end early end before the budget of those that are kept.",
)
ONE_TRIAL = Diagnostic(
    917,
    "a single trial has no others to be worse than",
    "Give stopping: none",
    "The median rule compares a trial with others.",
)
STARTUP = Diagnostic(
    918,
    "{startup:,} others are never there with {trials:,} trials",
    "Give at most {most:,}, or raise trials",
    "The median rule waits until so many others have a value.",
)
GRID_IS_COMPLETE = Diagnostic(
    919,
    "a grid has all of its points already",
    "Leave it out, or take sampler: tpe",
    "Known points and earlier studies tell a sampler where to look. A grid tries every point once.",
)
NO_WARM_START = Diagnostic(
    920,
    "{sampler} does not learn from an earlier study",
    "Take sampler: tpe",
    "Only tpe takes results of other studies into account.",
)
TOO_MANY_POINTS = Diagnostic(
    921,
    "{points:,} points for {trials:,} trials",
    "Raise trials, or give fewer",
    "Each known point is tried in a trial of its own.",
)
STORAGE_URL = Diagnostic(
    922,
    "{given!r}{why}",
    "Give sqlite:////FOLDER/FILE.db, or postgresql://... or mysql://... of a server",
    "Optuna keeps studies in databases, and a URL names one: see [Studies](studies.md).",
)
