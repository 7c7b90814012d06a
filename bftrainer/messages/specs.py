"""Refusals of a spec, after the file and the line."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

SHRINKING_INIT = Diagnostic(
    611,
    "down.init_s is {seconds}, but shrinking has no new nodes",
    "Leave it out",
    "init_s is the time that new nodes take to be ready.",
)
BATCH_FORMS = Diagnostic(
    612,
    "a batch is either global, or per_node, or adapts from initial to max",
    "Give one of them",
    "Each says in a way of its own how many samples a step has.",
)
BOUNDS_WITHOUT_INITIAL = Diagnostic(
    613,
    "max and max_per_worker bound a batch that adapts",
    "Give initial with them",
    "A batch that does not adapt needs no bounds.",
)
ADASCALE = Diagnostic(
    614,
    "lr: adascale is for a batch that adapts",
    "Give none, linear or sqrt",
    "AdaScale follows from the gain that is measured as the batch adapts.",
)
RATE_STAYS = Diagnostic(
    615,
    "with a global batch the learning rate stays",
    "Leave lr and warmup_steps out",
    "A step has as many samples on any number of nodes, so no rate needs to follow.",
)
ADAPTS_TO = Diagnostic(
    616,
    "a batch adapts from initial to max, and max is {most}",
    "Give initial, {initial}, or more",
    "The batch grows from the initial one to the largest as training gains from it.",
)
ADAPTS_BY = Diagnostic(
    617,
    "with a batch that adapts, lr is adascale, linear or sqrt, and there are no warmup_steps",
    "Give one of these, and leave warmup_steps out",
    "The rate follows the batch at every step, so there is no change to warm up for.",
)
NAME = Diagnostic(
    618,
    "{name!r} is no name of a trainer",
    "Use lower-case letters, digits, '.', '_' and '-', at most 63, starting with a letter or digit, and not "
    "digits alone",
    "Names stand on command lines and in paths of folders. Digits alone are a trainer's number.",
)
NO_VARIABLE = Diagnostic(
    619,
    "{key!r} is not a variable that a spec can set",
    "Rename it",
    "Variables that bftrainer or the loader of programs reads cannot be set by a spec.",
)
SETS_VARIABLE = Diagnostic(
    620,
    "{begin}... sets a variable, which a shell does",
    "Put it into env: {{...}}",
    "The command is started without a shell.",
)
NODES_AND_GPUS = Diagnostic(
    621,
    "there are both nodes and gpus",
    "Keep one: nodes: {{max: N}} asks for whole nodes, gpus: {{max: N}} for GPUs of nodes",
    "A trainer is given either whole nodes or single GPUs.",
)
GPU_WORKERS = Diagnostic(
    622,
    "gpus: workers: {workers}: each GPU has one worker",
    "Leave workers out",
    "With gpus, a place is a GPU, and a worker runs on each.",
)
NO_CURVE = Diagnostic(
    623,
    "scalability: given, but there is no curve to go by",
    "Give one, or leave scalability out",
    "Without scalability: given, bftrainer measures how fast the trainer is on n nodes.",
)
STARTED_OFTEN = Diagnostic(
    624,
    "command: {command!r}: {program} starts processes of its own, and nodes.workers: {workers} would start "
    "it so often on each node",
    "Let the command be the script, [python, train.py], with launcher: torchrun. Or leave workers out",
    "bftrainer starts the command once for each worker. See [The command](your-script.md#the-command).",
)
STARTED_APART = Diagnostic(
    625,
    "command: {command!r}: {program} starts processes of its own, on each node apart",
    "Let the command be the script, [python, train.py], with launcher: torchrun. Or keep it to one node "
    "with nodes: {{max: 1}}",
    "Every node would train all by itself, into the same files. bftrainer starts the script on each node, "
    "with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. See [The command](your-script.md#the-command).",
)
FOR_TORCHRUN = Diagnostic(
    626,
    "{key}: {given}, but launcher: {launcher} stops and keeps workers in its own way",
    "Leave {key} out, it is for launcher: torchrun",
    "Only processes of torchrun begin anew at every change of nodes.",
)
TWO_CURVES = Diagnostic(
    627,
    "curve: these are neither points nor two curves",
    "Give points [nodes, samples/s], or two curves over GPUs: {{local: ..., across: ...}}",
    "A curve says how fast the trainer is on some numbers of nodes.",
)
BRANCHES = Diagnostic(
    628,
    "curve: local and across tell GPUs of one node from those of several",
    "Give both, and gpus",
    "GPUs of one node exchange gradients faster than those of several.",
)
BRANCHES_GIVEN = Diagnostic(
    629,
    "curve: what is measured does not tell local from across",
    "Add scalability: given, or give one curve",
    "Measured speeds are kept by the number of GPUs alone.",
)
WORKERS = Diagnostic(
    630,
    "{given} is no number of workers",
    "Give auto, for one on each GPU of a node, or a number from 1 to {most}",
    "A worker is a process of the script.",
)
BESIDE_SIZES = Diagnostic(
    631,
    "{said} beside sizes: {sizes}",
    "Leave {key} out, the sizes say all",
    "sizes lists all numbers of nodes that the trainer may have.",
)
SIZE_TWICE = Diagnostic(
    632,
    "sizes: {size} occurs {count} times",
    "Keep one of them",
    "sizes lists all numbers of nodes that the trainer may have, each once.",
)
NO_MAX = Diagnostic(
    633,
    "there is neither max nor sizes",
    "Add max: N, or sizes such as [1, 2, 4, 8]",
    "bftrainer gives no trainer more nodes than its spec allows.",
)
ABOVE_MAX = Diagnostic(
    634,
    "{which} is above max {most}",
    "Raise max, or lower {key}",
    "There would be no number of nodes that the spec allows.",
)
NO_MULTIPLE = Diagnostic(
    635,
    "{key} {size} is no multiple of {of}",
    "Give {near}",
    "With multiple_of, the trainer has only multiples of it.",
)
NO_NODES = Diagnostic(
    636,
    "there is neither nodes nor gpus",
    "Give one: nodes: {{max: N}} asks for whole nodes, gpus: {{max: N}} for GPUs of nodes",
    "bftrainer gives no trainer more nodes than its spec allows.",
)
WRONG_KEY = Diagnostic(
    637,
    "{key}: {why}",
    "Correct it in the line that the message names",
    "The key is unknown or missing, or its value is no text, number or list as it takes. [The trainer "
    "spec](trainer-spec.md) and [Studies](studies.md) list all keys.",
)
CURVE = Diagnostic(
    638,
    "no curve has {what}",
    "Give points of 1 node or more, each number once, with finite speeds above 0. Or leave the curve out",
    "A curve says how fast the trainer is on some numbers of nodes. Without one, bftrainer measures it.",
)
NOT_YAML = Diagnostic(
    639,
    "not YAML: {why}",
    "Correct it in the line that the message names",
    "A spec is one document of YAML, with plain keys, each once, lists, texts and numbers. Aliases and tags "
    "let a small file grow without bounds.",
)
TOO_LARGE = Diagnostic(
    640,
    "{what}, which is more than a spec may have",
    "Shorten it",
    "The daemon bounds how long a spec is, how many values it has, and how deep these lie in each other.",
)
EMPTY = Diagnostic(
    641,
    "empty; {needs}",
    "Fill it",
    "The file has no values, or only remarks.",
)
NO_SPEC = Diagnostic(
    642,
    "{given} is no {kind}",
    "Begin {begin}",
    "A spec is a mapping of keys to values. In a list of specs, `- ` stands before each.",
)
IS_STUDY = Diagnostic(
    643,
    "this is a study",
    "Submit it with bftrainer study submit",
    "A study has `trainer` and `space`, and no command of its own: see [Studies](studies.md).",
)
NO_WORKDIR = Diagnostic(
    644,
    "no folder {folder!r}",
    "Make it, or name another",
    "The script runs in the folder `workdir`. A relative path starts where the spec is.",
)
NO_SCRIPT = Diagnostic(
    645,
    "there is no {script!r} in {folder!r}",
    "Correct the name, or say with workdir where it is",
    "The paths in a command start in `workdir`.",
)
NO_SAMPLES = Diagnostic(
    646,
    "a training of {samples:g} samples has nothing to do",
    "Give work: {{samples: N}}, above 0",
    "How long a training takes follows from its samples and its speed.",
)
TURNS_ON_WHOLE = Diagnostic(
    647,
    "share: time: {name!r} would take turns on whole nodes, and single GPUs are shared out here (share: gpu)",
    "Leave share out",
    "This site gives trainers single GPUs. Trainers that take turns hold whole nodes.",
)
WORKERS_OF_GPUS = Diagnostic(
    648,
    "nodes.workers: {workers}: each GPU is a worker's here (share: gpu), and a node has {gpus}",
    "Leave workers out",
    "This site gives trainers single GPUs, each with one worker.",
)
GPUS_OF_WHOLE = Diagnostic(
    649,
    "gpus: {name!r} asks for {least} to {most} GPUs, and whole nodes are shared out here (share: node)",
    "Give nodes: {{max: N}}, or ask the site's admins for share: gpu",
    "This site gives trainers whole nodes, with all their GPUs.",
)
