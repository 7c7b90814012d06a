"""Warnings on a spec and its script as it is submitted."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

STARTS_PROCESSES = Diagnostic(
    601,
    "its command starts processes of its own ({program}), in which bftrainer.elastic does not work",
    "Let the command be the script itself, with `launcher: torchrun`",
    "bftrainer starts the script on each node, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. See "
    "[The command](your-script.md#the-command).",
)
SHELL_STAYS = Diagnostic(
    602,
    "its command is a shell, which passes no signal on to the script, and whose exit code is that of the "
    "last program it runs",
    "Let the command be the script itself, or the shell's last words `exec python train.py`",
    "Without the signal the script cannot save before its node is taken. The trainer's end is judged by the "
    "exit code.",
)
SHELL_STARTS = Diagnostic(
    603,
    "{name} calls {program}, which starts processes of its own, in which bftrainer.elastic does not work",
    "Write `exec python ...` there, and `launcher: torchrun` in the spec",
    "On several nodes each would train all by itself, and write the same files. bftrainer starts the script "
    "on each node, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.",
)
NO_RUN = Diagnostic(
    604,
    "{script} imports nothing of bftrainer.elastic: on several nodes each would train by itself, and the "
    "trainer then fails",
    "Use elastic.Run, or `launcher: torchrun` for a script that forms its own group",
    "Under `launcher: native` only elastic.Run has the nodes train together. See [The library](library.md).",
)
NO_WORK_TOLD = Diagnostic(
    605,
    "{script} imports nothing of bftrainer.elastic, and so tells of none of the samples that `work` asks for",
    "Say `work: until_exit`, or let it call elastic.attach(), job.progress() and job.done()",
    "The trainer fails when the script ends, as none of the samples is known to be done. See "
    "[torchrun](torchrun.md).",
)
NO_CALLBACK_STEPS = Diagnostic(
    606,
    "{script} uses Hugging Face's Trainer without bftrainer's callback: when its number of nodes changes, "
    "epochs are counted wrongly",
    "Add bftrainer.elastic.huggingface.ElasticCallback",
    "A step then has another number of samples, so that samples are left out. See [Hugging "
    "Face](huggingface.md).",
)
NO_CALLBACK_PLACE = Diagnostic(
    607,
    "{script} uses Lightning's Trainer without bftrainer's callback: when its nodes change, it goes on, but "
    "not at the sample where it was",
    "Add bftrainer.elastic.lightning.ElasticCallback",
    "It goes on from what it saves itself. See [Lightning](lightning.md).",
)
