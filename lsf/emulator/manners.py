"""Faults of the emulated LSF: what real ones do at times, each to be switched on by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """All off: an LSF that behaves. Launch nodes, kill-only signals and late reports are parts of the `Site`.

    Attributes:
        long_times: Times have seconds and a year; without, they have neither, as on Summit.
        short_hosts: exec_host says `42*h1` instead of naming h1 42 times (LSB_SHORT_HOSTLIST).
        padded_hosts: Host names are padded with spaces in spite of a delimiter.
        down: Next commands that hear `LSF is down. Please wait ...` and retry.
        hang: Commands hear it once and get no answer; nothing is done.
        unanswered: Next commands that get no answer, but what they ask for is done.
        unreachable: Next bsub calls that say `Cannot connect to LSF. Please wait ...` before they succeed.
        on_stderr: bsub says on its standard error what it has submitted, as with BSUB_STDERR.
        missing: Next bjobs calls that leave out every job that has started.
        stale_s: Age up to which bslots repeats an answer, as if no time had passed (s).
        lost_races: Next bsub calls whose hosts a main job takes just before.
        race_s: Time that these main jobs run (s).
        elsewhere: LSF chooses other hosts than bsub asks for.
        disjoint: Each window of bslots has slots of its own; else a window has those of longer ones, too.
        no_windows: bslots finds none.
        consistent_exit: `No unfinished job found` is an error (LSB_BJOBS_CONSISTENT_EXIT_CODE=Y).
        bjobs_code: The exit code of every bjobs, whatever it has printed; 0: the right one.
        no_exit_codes: bjobs shows no exit code of a job that has failed.
        wrapped: bsub is a site's wrapper as on Summit: it refuses -n.
        parse_scripts: `bsub FILE` reads the options in the file (LSB_BSUB_PARSE_SCRIPT).
    """

    long_times: bool = False
    short_hosts: bool = False
    padded_hosts: bool = False
    down: int = 0
    hang: bool = False
    unanswered: int = 0
    unreachable: int = 0
    on_stderr: bool = False
    missing: int = 0
    stale_s: float = 0.0
    lost_races: int = 0
    race_s: float = 60.0
    elsewhere: bool = False
    disjoint: bool = False
    no_windows: bool = False
    consistent_exit: bool = False
    bjobs_code: int = 0
    no_exit_codes: bool = False
    wrapped: bool = False
    parse_scripts: bool = True
