"""Refusals of searches that are to be planned, after the file and the line."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_SPEED = Diagnostic(
    840,
    "nothing says how fast a trial is",
    "Give curve: [[1, 100.0], [2, 190.0]], workers and samples/s, in the profile or in the study's trainer",
    "A plan computes how long each stage takes from the samples a second that a trial does on n workers. See "
    "[The profile](planning.md#the-profile).",
)
NO_ROOM_FOR_TRIAL = Diagnostic(
    841,
    "a trial has at least {least:,} workers, and {nodes:,} nodes with {each:,} each have {room:,}",
    "Raise nodes or node_workers, or lower workers",
    "No trial could ever begin. See [The profile](planning.md#the-profile).",
)
LOG_BELOW_DEADLINE = Diagnostic(
    842,
    "the log spans {hours:g} h, no more than the deadline of {deadline:g} h",
    "Take a longer log, or an earlier deadline",
    "The search is replayed from many moments of the log, and each needs the time to the deadline after it. "
    "See [On idle nodes](planning.md#on-idle-nodes).",
)
TRIAL_FOR_AGES = Diagnostic(
    843,
    "a trial of {iterations:g} iterations would take {seconds:.3g} s on {workers:,} workers",
    "Give curve in samples/s, iteration_samples in samples, and work for at most {most:g} s",
    "No plan can be computed for such times: one of these numbers has probably another unit. See "
    "[The profile](planning.md#the-profile).",
)
