"""Refusals of settings, after where they come from."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NEEDS_SITE = Diagnostic(
    951,
    "exec_prefix counts with mode site only",
    "Leave it out",
    "A daemon of one user runs everything as this user: see [Site mode](site-mode.md).",
)
NEEDS_PREFIX = Diagnostic(
    952,
    "mode site needs an exec_prefix with {{user}}",
    "Give one such as sudo -n -u {{user}} --",
    "Pilots run as the users whose trainers they serve: see [The sudo rule](site-mode.md#the-sudo-rule).",
)
NO_SITE_HERE = Diagnostic(
    953,
    "the {scheduler} scheduler runs everything as the daemon",
    "Choose another scheduler for mode site",
    "In mode site each user's programs run as that user.",
)
UNREACHABLE_SOCKET = Diagnostic(
    954,
    "mode site: nobody else can reach the socket in state_dir {state_dir}",
    "Set socket to a path such as /run/bftrainer/daemon.sock",
    "Only the daemon's account can enter `state_dir`.",
)
MUNGE_AND_LISTEN = Diagnostic(
    955,
    "munge and listen_users go together",
    "Set both, with listen_users such as 0.0.0.0:7465, or neither",
    "With munge, users on other machines connect at `listen_users`, and name it in their setting `server`. "
    "`listen` is for agents.",
)
ONE_CLASS = Diagnostic(
    956,
    "equal shares know one class of nodes",
    "Use the allocator auto with node_classes",
    "The allocator `equal` gives each trainer as many nodes, whatever they are.",
)
IN_TWO_CLASSES = Diagnostic(
    957,
    "node {node} is in {one} and in {other}",
    "Keep one",
    "A node is of one class.",
)
PARTS_OF_WHOLE = Diagnostic(
    958,
    "gpus_per_node {n} counts with share gpu only",
    "Set share: gpu, or leave it out",
    "With `share: node` trainers get whole nodes, however many GPUs these have.",
)
PLACES_AND_NODES = Diagnostic(
    959,
    "nodes_per_trainer {nodes:g} counts with max_parallel auto only, and max_parallel is {places}",
    "Leave one of them out",
    "`nodes_per_trainer` says how many trainers `auto` lets hold nodes.",
)
UTILITIES = Diagnostic(
    960,
    "low_utility {low:g} is above high_utility {high:g}",
    "Give both, the low one no larger than the high one, such as 0.4 and 0.6",
    "A trainer keeps its nodes while its utility is between the two.",
)
WRONG_SETTING = Diagnostic(
    961,
    "{source}: {name}: {value}: {why}",
    "Give a value that the page of settings allows",
    "No setting has this name, or it does not take this value. The first words say where the value comes "
    "from: a file, the environment or the command line. [Settings](settings.md) lists all.",
)
NEEDS_RESTART = Diagnostic(
    962,
    "{why} ({kept} cannot change without a restart)",
    "Restart the daemon, or change these back",
    "`admin reload` takes over some settings only. These do not go together with those that stay.",
)
WHOLE_NODES = Diagnostic(
    963,
    "share: gpu: pilots of the scheduler {scheduler} hold whole nodes",
    "Leave share out",
    "Single GPUs are shared out only where pilots of the scheduler may hold a part of a node.",
)
NEEDS_HARVEST = Diagnostic(
    964,
    "share: gpu: pilots of single GPUs share nodes with main jobs on Slurm",
    "Set harvest: gpus as well",
    "With `harvest: gpus`, pilots ask for GPUs that main jobs leave free.",
)
NO_OBJECTIVE = Diagnostic(
    965,
    "{given!r} is no objective",
    "Give one of {known}, or a mixture with shares above 0 such as '0.7*efficiency + 0.3*priority'",
    "The objective says what the daemon maximises as it shares nodes out: see [How nodes are shared "
    "out](how-it-works.md).",
)
