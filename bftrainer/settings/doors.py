"""The places where the daemon, an agent or a worker takes in what somebody else has written.

docs/contributing/doors.md shows this table. A test walks the sources, and fails where a module does with
texts what no row says. So a new door has a row first: its bound, and what waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Deed(StrEnum):
    """What is done with a text or path of somebody else."""

    PARSED = "parsed"
    MATCHED = "matched"  # with a regular expression
    EXPANDED = "expanded"  # into more than it is
    RESOLVED = "resolved"  # a path is followed, looked at or opened
    UNPICKLED = "unpickled"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Door:
    """One row: what is taken in from whom, where in the sources, its bound, and the thread that it runs in.

    `modules` are paths below `bftrainer/`; `*` stands for any. Words in backticks in `bound` are settings.
    """

    what: str
    deeds: tuple[Deed, ...]
    modules: tuple[str, ...]
    bound: str
    thread: str


LOOP = "event loop"
USER = "the user's own process"
PARSED, MATCHED, EXPANDED = Deed.PARSED, Deed.MATCHED, Deed.EXPANDED
RESOLVED, UNPICKLED, ANSWERED = Deed.RESOLVED, Deed.UNPICKLED, Deed.ANSWERED

CLIENTS = (
    Door(
        "a request's head and body, and what is wrong with them",
        (PARSED, ANSWERED),
        ("api/fields.py", "api/transport/connection.py", "api/errors.py", "api/routes.py"),
        "4,096 and 16,384 bytes, then 64 kB or twice `max_spec_kb`; each within 10 s",
        LOOP,
    ),
    Door(
        "who asks, over TCP",
        (MATCHED, RESOLVED),
        ("api/munge.py", "api/callers.py"),
        "4,096 characters of a credential; munge has 10 s; 5 s for the user's name",
        "a process of munge, a thread for each look-up",
    ),
    Door(
        "a short answer: one row",
        (ANSWERED,),
        ("api/routes.py", "api/study_routes.py"),
        "what one trainer, study or poll has, at most what was submitted",
        LOOP,
    ),
    Door(
        "an answer that may be long",
        (ANSWERED, EXPANDED),
        (
            *(
                "api/answers.py",
                "daemon/answers/history.py",
                "daemon/answers/trainers.py",
                "daemon/answers/service.py",
            ),
            *("daemon/answers/exposition.py", "daemon/answers/studies.py", "daemon/answers/views/studies.py"),
        ),
        "8 MB of one, 64 MB of all; 64 requests wait, each for 10 s at most; 5 s of work",
        "lanes, by turns: `read-trainers`, `read-rows`, `answers`",
    ),
    Door(
        "a stream of changes",
        (ANSWERED,),
        ("api/stream.py",),
        "1 MB waits for a reader, 16 readers of a user, 128 of all; 60 s without taking any",
        "`feed`; sent in the event loop",
    ),
    Door(
        "what a browser asks of `bftrainer web`, and the page's own files",
        (MATCHED, RESOLVED),
        ("web/*.py",),
        "4,096 bytes, 256 connections, 12 streams; no path of a request leads to a file",
        USER,
    ),
    Door(
        "an answer of a daemon",
        (PARSED,),
        ("api/received.py", "api/follow.py"),
        "100 MB",
        USER,
    ),
)
"""What users and their commands say over the API."""

SPECS = (
    Door(
        "the YAML of a spec or study, and its values",
        (PARSED, MATCHED, EXPANDED),
        (
            "yaml_files.py",
            "spec/schema.py",
            "spec/command_line.py",
            "search/files/parse.py",
            "search/files/schema.py",
            "search/files/lint.py",
        ),
        "`max_spec_kb`, 1,024 values of a spec, 4,096 of a study, 16 levels, 8 of a user, 5 s of work",
        "`specs`, by turns",
    ),
    Door(
        "a spec's paths; only the user's command looks whether they are there",
        (PARSED, EXPANDED, RESOLVED),
        ("spec/parse.py",),
        "as the spec; the daemon joins a path to its folder, and follows none",
        "`specs`, and the user's command",
    ),
    Door(
        "the URL of a study's storage",
        (MATCHED,),
        ("search/optuna/storage.py",),
        "1,000 characters",
        "`specs`, and where it is shown",
    ),
    Door(
        "the command and environment of a trial, and its parameters",
        (MATCHED,),
        ("search/fill.py", "search/cost.py"),
        "counted at submit: `max_spec_kb` for each trial, 16 MB for all, 64 MB for a user's studies, "
        "1,000 MB for those of all users",
        "`specs`, `studies`, by turns, and where a trial is shown",
    ),
    Door(
        "trials and known points that are added to a study",
        (MATCHED,),
        ("search/cost.py",),
        "the size of a request; 1,000 points at once; counted as at submit, and again when the study takes "
        "them; 8 of a user, 5 s of work",
        "`specs`, by turns",
    ),
    Door(
        "a study's grid, rungs and brackets",
        (EXPANDED,),
        ("search/grid.py", "search/files/space.py", "search/brackets.py", "search/stopping.py"),
        "counted at submit: `max_trials`; a point of a grid is found by its number; 5 s of work",
        "`specs`, `studies`, `samplers`, by turns",
    ),
    Door(
        "a study of the store",
        (PARSED,),
        ("search/rows.py",),
        "what was submitted",
        "`engine` at the start, `read-trainers` later",
    ),
    Door(
        "the file of a study's storage, of a daemon for one user only",
        (RESOLVED, PARSED),
        ("search/optuna/mirror.py", "search/optuna/export.py", "daemon/studies/mirrors.py"),
        "1,000 characters; nothing in mode site",
        "a helper process, a thread for each study there",
    ),
    Door(
        "experiments to be planned, pictures, studies in Python",
        (PARSED, EXPANDED, RESOLVED),
        ("search/plan/*.py", "search/python.py"),
        "32 kB of an experiment; forecasts of a study: `max_trials`, 5 s of work",
        f"{USER}; of forecasts `forecasts`, by turns",
    ),
)
"""What users want to have run."""

AGENTS = (
    Door(
        "a message of an agent or of a script",
        (PARSED, MATCHED, EXPANDED),
        ("wire/parse.py", "wire/introduction.py", "wire/messages/from_agent.py", "daemon/agents.py"),
        "64 kB, 20 messages in a second, 20 levels, types and lengths of all fields",
        LOOP,
    ),
    Door(
        "a message of a script to its agent",
        (PARSED, MATCHED, RESOLVED),
        ("agent/worker.py", "agent/warm.py", "agent/files/checkpoints.py"),
        "64 kB a line; what is none is dropped",
        USER,
    ),
    Door(
        "what a script that failed has printed, of which its agent tells a line",
        (MATCHED, RESOLVED),
        ("agent/last_error.py",),
        "the last 16 kB; a line of 200 characters",
        USER,
    ),
    Door(
        "the node, as its agent finds it",
        (MATCHED, RESOLVED),
        (
            *(
                "agent/__main__.py",
                "agent/cores.py",
                "agent/devices.py",
                "agent/process.py",
                "agent/seats.py",
            ),
            "agent/files/logs.py",
        ),
        "files of the kernel",
        USER,
    ),
    Door(
        "the helpers of torchrun and Horovod, which strangers may talk to",
        (PARSED, MATCHED, RESOLVED),
        (
            *("launch/torchrun/stores.py", "launch/horovod/drivers.py", "elastic/programs/tcp_store.py"),
            *("elastic/programs/confine.py", "elastic/horovod/driver.py", "elastic/horovod/slots.py"),
        ),
        "`max_helper_memory_mb`, 4,096 connections; a line has at most 16 MB",
        "a process for each trainer; its lines in the event loop",
    ),
)
"""What runs on the nodes says."""

SCRIPTS = (
    Door(
        "what Horovod's workers send each other",
        (UNPICKLED, RESOLVED),
        ("elastic/horovod/guard.py", "elastic/horovod/mend.py"),
        "plain data and two known answers; anything else ends the message",
        USER,
    ),
    Door(
        "the state that members of a native trainer hand over, and checkpoints",
        (UNPICKLED, PARSED, MATCHED, RESOLVED),
        ("elastic/state/*.py", "elastic/snapshots/*.py"),
        "read by torch.load with weights_only: tensors and plain values, and nothing is run",
        USER,
    ),
    Door(
        "batches of a script's own data process",
        (UNPICKLED,),
        ("elastic/train/streamed.py",),
        "from a child of this process alone",
        USER,
    ),
    Door(
        "what ranks tell each other",
        (PARSED,),
        (
            "elastic/attach/collectives.py",
            "elastic/loop/evaluation.py",
            "elastic/train/*.py",
        ),
        "64 MB of JSON, or tensors",
        USER,
    ),
    Door(
        "a script's folder and what its runs wrote, where `bftrainer try` compares them",
        (PARSED, MATCHED, RESOLVED, UNPICKLED),
        ("rehearsal/*.py", "elastic/recorded/tensor_files.py"),
        "2,000 MB and 20,000 files are copied; files of tensors are unpickled, as they are the user's own",
        USER,
    ),
    Door(
        "the script, its files, and its agent's messages",
        (PARSED, MATCHED, RESOLVED),
        ("elastic/*.py",),
        "the user's own",
        USER,
    ),
)
"""What a training script's own process takes in."""

MACHINE = (
    Door(
        "what Slurm's and LSF's commands print, with other users' names and comments",
        (MATCHED, PARSED, EXPANDED, RESOLVED),
        ("schedulers/slurm/*.py", "schedulers/lsf/*.py", "schedulers/shared/*.py", "nodesets.py"),
        "`max_squeue_mb`, `command_timeout_s`, 2,000 waiting jobs of one user; names of nodes: 100,000 of "
        "one list",
        "`slurm-text`, `lsf-text`",
    ),
    Door(
        "rows of the store",
        (PARSED, RESOLVED),
        ("store/*.py", "daemon/storage/pruning.py"),
        "`max_store_mb`, 10 s for an answer; a damaged row is left out",
        "`writer`, lanes",
    ),
    Door(
        "lines of the log",
        (MATCHED,),
        ("telemetry/*.py", "model/text.py"),
        "300 lines of one kind in a minute",
        "where they are written",
    ),
    Door(
        "settings, the state directory, the sockets' places, the local scheduler: the operator's own",
        (PARSED, MATCHED, RESOLVED, EXPANDED),
        (
            *("settings/*.py", "state_dir/*.py", "sitecheck/*.py", "schedulers/local/*.py", "wire/seal.py"),
            *("api/transport/listen.py", "files.py", "yaml_files.py"),
        ),
        "the account's own files; nobody else may write them",
        "at the start, and a thread at SIGHUP",
    ),
    Door(
        "files that a command is given: logs of idle nodes, specs, replays, workers' output",
        (PARSED, MATCHED, RESOLVED),
        (
            "cli/*.py",
            "demo/*.py",
            "elsewhere.py",
            "recording/*.py",
            "replay/*.py",
            "series/*.py",
            "testing/*.py",
            "traces/*.py",
            "messages/page.py",
            "worker_output.py",
        ),
        "16 MB of a list of specs; of others the user's own patience",
        USER,
    ),
)
"""What the machine says, and what its owners write."""

DOORS = (*CLIENTS, *SPECS, *AGENTS, *SCRIPTS, *MACHINE)
