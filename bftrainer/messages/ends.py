"""Messages on trainers that fail, or seem to come to nothing, as launchers and the engine see it."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

SILENT_START = Diagnostic(
    501,
    "its script has not reached elastic.Run yet",
    "Wait if it still imports its packages. Else set `launcher: torchrun` for a script that uses "
    "torch.distributed, `nodes: {{min: 1, max: 1}}` for one that does not, or let it use elastic.Run",
    "If it never reaches elastic.Run, each node runs all of the script by itself, and the trainer fails in "
    "the end.",
)
NATIVE_APART = Diagnostic(
    502,
    "{why}: each of its {count} processes ran all of it by itself",
    "Set `launcher: torchrun` for a script that uses torch.distributed, `nodes: {{min: 1, max: 1}}` for one "
    "that does not, or let it use elastic.Run",
    "Under `launcher: native`, the default, only elastic.Run has the nodes train together. See [Your own "
    "script](your-script.md).",
)
HOROVOD_APART = Diagnostic(
    503,
    "{why}: each of its {count} processes ran all of it by itself",
    "Let the script call elastic.attach() and hvd.init()",
    "These give each process its rank. See [Horovod](horovod.md).",
)
RANKS_APART = Diagnostic(
    504,
    "its {ranks} processes never formed a group (torch.distributed): each ran the whole script by itself",
    "Let the script call torch.distributed.init_process_group() and train with DistributedDataParallel, or "
    "use accelerate or a callback of bftrainer. For work on one process, say nodes: {{min: 1, max: 1, "
    "workers: 1}}",
    "None of the processes ever met another one at MASTER_ADDR. See [torchrun](torchrun.md).",
)
RANKS_SEEM_APART = Diagnostic(
    505,
    "its {ranks} processes have formed no group (torch.distributed) for {seconds:.0f} s",
    "Let the script call torch.distributed.init_process_group() and train with DistributedDataParallel, or "
    "use accelerate or a callback of bftrainer. For work on one process, say nodes: {{min: 1, max: 1, "
    "workers: 1}}",
    "If they never form one, each runs the whole script by itself, and the trainer fails in the end.",
)
NO_FURTHER = Diagnostic(
    506,
    "its script has begun {runs} times in a row, and never came further than {samples:,} samples",
    "Let it save where job.should_save() says so, and load what it has saved at its start",
    "Under torchrun all processes begin anew at every change of nodes. What was not saved is computed "
    "again. See [torchrun](torchrun.md).",
)
NEVER_SAVED = Diagnostic(
    507,
    "its script was started {runs} times, for {longest:.0f} s at the longest: each time for less than "
    "checkpoint.interval_s ({every:g} s)",
    "Let its script save more often, or when SIGTERM comes",
    "Nothing was saved in any of these runs, so the next one begins where the first one did.",
)
NO_PROGRESS = Diagnostic(
    508,
    "its script was started {runs} times, for {longest:.0f} s at the longest, and tells of no progress",
    "If it saves less often, say so in the spec (checkpoint.interval_s), or save when SIGTERM comes",
    "A script that does not call elastic.attach() tells of nothing. Runs so short may all have come to "
    "nothing.",
)
UNTOLD = Diagnostic(
    509,
    "its script ended with exit code 0 on {node} and told of none of the {samples:,} samples of its spec "
    "(work)",
    "Set `launcher: torchrun` for a script that uses torch.distributed, `nodes: {{min: 1, max: 1}}` for one "
    "that does not, or let it use elastic.Run",
    "Under `launcher: native` elastic.Run counts the samples. Without it, to run the script again would end "
    "the same.",
)
UNTOLD_RANKS = Diagnostic(
    510,
    "its script ended with exit code 0 on {node} and told of none of the {samples:,} samples of its spec "
    "(work)",
    "Say work: until_exit, so that its end counts. Or let it call elastic.attach(), job.progress() and "
    "job.done()",
    "bftrainer knows of samples only what the script tells. To run it again would end the same. See "
    "[torchrun](torchrun.md).",
)
TELLS_NOTHING = Diagnostic(
    511,
    "its script tells of no progress, and its spec asks for {samples:,} samples (work)",
    "Say work: until_exit, so that its end counts. Or let it call elastic.attach(), job.progress() and "
    "job.done()",
    "The trainer fails when the script ends, as none of the samples is known to be done.",
)
AFTER_LOOP = Diagnostic(
    512,
    "after its loop, its script failed on {node}: {reason}",
    "See bftrainer logs {trainer} --node {node}. `bftrainer submit --resume` runs that part again",
    "The work is done, and rank 0 has ended well. The other node's part after the loop is not.",
)
FAILED_OFTEN = Diagnostic(
    513,
    "{reason}; it has failed {failures} times within an hour, and {most} are allowed though it makes "
    "progress between",
    "Mend what the error names: bftrainer logs shows what the worker printed before",
    "A trainer goes on from its last checkpoint after a failure. The setting max_failures_per_h bounds how "
    "often within an hour.",
)
NO_FOLDER = Diagnostic(
    514,
    "no {what} at {path}: {why}",
    "See that you may write to the spec's workdir, and that its disk has room",
    "What workers print is kept below `workdir`. The words after the path are the system's.",
)
TOO_FEW_DEVICES = Diagnostic(
    515,
    "{count} workers are asked for (nodes.workers), and the node has {devices} devices ({kind}): each worker "
    "gets one of its own",
    "Give nodes.workers: auto, or a lower number",
    "Workers that shared a GPU would wait for each other. A device that has failed is out of use until its "
    "pilot ends.",
)
CANNOT_START = Diagnostic(
    516,
    "cannot start {program!r}: {why}",
    "See that the program is there on the nodes, and may be run",
    "The command starts in `workdir`, with the PATH of the pilot. Give a whole path, or put the program's "
    "folder into `env`: PATH.",
)
