"""Parts of the daemon that `bftrainer status` calls degraded, with a message for each."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

ENGINE = Diagnostic(
    270,
    "the engine has failed at something: {why}",
    "Send the lines of the log around it to bftrainer's developers",
    "A fault of bftrainer. The daemon goes on with the last good plan.",
)
SCHEDULER = Diagnostic(
    271,
    "the batch system does not answer: {why}",
    "See that its commands work as the daemon's account: bftrainer admin check",
    "Trainers run on, and no pilot is submitted until a poll is answered.",
)
NODES = Diagnostic(
    272,
    "nodes cannot be used: {why}",
    "See bftrainer pool, and the settings that say which nodes pilots may use",
    "Nodes are down, in no partition of pilots, or cannot reach the daemon.",
)
QUEUE = Diagnostic(
    273,
    "main jobs cannot all be seen: {why}",
    "Let the daemon's account see all jobs: bftrainer admin check names what hides them",
    "Nodes for a job that the daemon does not see are given back only when the batch system preempts pilots.",
)
STORE = Diagnostic(
    274,
    "the store fails: {why}",
    "See that the disk of state_dir has room and works",
    "The daemon goes on in memory. New trainers are refused until what it knows can be written.",
)
DISK = Diagnostic(
    275,
    "the disk of state_dir has little room: {why}",
    "Make room there, or lower min_free_mb",
    "A full disk would keep the daemon from writing down what happens.",
)
CLOCK = Diagnostic(
    276,
    "the clock was set, or differs: {why}",
    "Let the machine keep its time by NTP",
    "The daemon's own clock goes on. Times of the batch system are translated.",
)
READS = Diagnostic(
    277,
    "answers are late or refused: {why}",
    "See whether the disk of state_dir is slow, and who asks so much",
    "Reading from the store, or work for a request, takes longer than it may.",
)
CONNECTIONS = Diagnostic(
    278,
    "connections are refused: {why}",
    "See in bftrainer status which bound was hit, and by whom",
    "All places for connections are taken. Idle ones make room for others.",
)
PILOTS = Diagnostic(
    279,
    "no pilot can be submitted: {why}",
    "Try the words that bftrainer pilot --dry-run prints, as the daemon's account",
    "The batch system refuses them, as for an account or a partition that does not exist.",
)
AGENTS = Diagnostic(
    280,
    "an agent was sent away: {why}",
    "See the log of its pilot",
    "An agent that sends too much, or what makes no sense, is cut off and connects again.",
)
ANSWERS = Diagnostic(
    281,
    "the solver does not work: {why}",
    "Install another and set solver, or go on without: auto has plans of its own",
    "Without the MILP, plans are not proven to be the best where trainers have side constraints.",
)
ALLOCATOR = Diagnostic(
    282,
    "another allocator makes the plans: {why}",
    "See whether the solver works, and has a licence for so large a problem",
    "The one that the settings ask for has failed. The next decision tries it again.",
)
DESCRIPTORS = Diagnostic(
    283,
    "the daemon may open few files: {why}",
    "Raise the limit (ulimit -n, or LimitNOFILE of the systemd unit)",
    "Each connection needs a descriptor, so that fewer are served.",
)
STUDIES = Diagnostic(
    284,
    "studies fail: {why}",
    "See the log, and bftrainer study show",
    "A study that was stored cannot go on. The others do.",
)
