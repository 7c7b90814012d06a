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
TRIALS_ABOVE = Diagnostic(
    923,
    "{said} above {most:,}, {which}",
    "Give fewer",
    "The daemon keeps each trial in memory and in its database. An admin can raise max_trials.",
)
STUDY_TOO_LARGE = Diagnostic(
    924,
    "{what} up to {size}, and at most {most} may be",
    "Give fewer trials, name fewer parameters, or shorten their choices",
    "Each trial has a command, an environment and parameters of its own, and the daemon keeps them all.",
)
POINTS_ABOVE = Diagnostic(
    925,
    "{points:,} points, and there is room for {room:,}",
    "Give fewer points at once, or add trials: --trials N",
    "Each point is tried in a trial that has not begun.",
)
GRID_HAS_POINTS = Diagnostic(
    926,
    "a grid has its own points",
    "Leave points out",
    "A grid tries every combination of its values once.",
)
POINTS_FORM = Diagnostic(
    927,
    "'points' is no list of objects",
    'Write each point such as {{"lr": 0.1}}',
    "A point names parameters of the space, with a value for each.",
)
NO_GRID = Diagnostic(
    928,
    "not a grid, as nothing says which values are tried",
    "Add points: N{otherwise}",
    "A range has endless values, and a grid tries each of a few.",
)
GRID_TOO_LARGE = Diagnostic(
    929,
    "{count:,} values are on the grid, and at most {most:,} may be",
    "Give a larger step, or points: N",
    "Each value of the grid is tried with each value of the other parameters.",
)
TANGLED = Diagnostic(
    930,
    "the conditions (when) of its parameters combine in more than {most:,} ways",
    "Let fewer parameters depend on each other, or give sampler: random",
    "To count the points of a grid, the ways in which parameters are left out are counted.",
)
RESERVED_NAME = Diagnostic(
    931,
    "{name!r} is reserved, as {{{name}}} in a command stands for {what}",
    "Choose another name",
    "Names in braces are filled in for each trial: parameters, and a few words besides.",
)
NO_WARM_START_FROM = Diagnostic(
    932,
    "warm_start: {name!r} {why}",
    "Leave warm_start out, name another study, or widen the space",
    "A sampler can learn from results of the same metric and direction, with values within the bounds of the "
    "new space.",
)
STORAGE_FAILS = Diagnostic(
    933,
    "{url}: {why}",
    "Check that it is a storage of Optuna, and that you may write to it",
    "Optuna could not write the study into this database. The words after the URL are Optuna's, or the "
    "database's.",
)
NO_STORAGE_FOLDER = Diagnostic(
    934,
    "there is no folder {folder}",
    "Make it",
    "Optuna makes the file of a storage, and not the folder with it.",
)
DAMAGED_STUDY = Diagnostic(
    935,
    "the study {id} ({name}) cannot be read: {why}",
    "Submit it anew, or restore the daemon's database from a backup",
    "What the daemon has stored of it is damaged. Other studies go on.",
)
USUALLY_MAXIMIZED = Diagnostic(
    936,
    "{metric!r} without a direction would be minimised, so that its lowest value is the best",
    "Say direction: maximize, or direction: minimize if you mean it",
    "Of metrics such as accuracy more is better. A study minimises where it gives no direction.",
)
