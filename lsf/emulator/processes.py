"""Real jobs: started as processes of this machine and signalled as LSF would do it."""

from __future__ import annotations

import grp
import os
import pwd
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsf.emulator import sessions
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.state import ClusterState

MARK = "LSF_EMULATOR"
"""In the environment of every process of a job: the folder of the emulator that has started it."""
MOST_HOSTS_TEXT = 4096
"""A longer LSB_HOSTS is left out."""
NOT_STARTED = 127
BEGIN = 'cd -- "$1" 2>/dev/null || cd /; exec {out} {err}; shift 3; exec "$@"'
"""First commands of a job's process, as its user: the user names folder and files, and root may open all."""


class Processes:
    """The processes of jobs, by (job, run)."""

    def __init__(self, folder: Path, watch: Callable[[int, Callable[[], None]], None]) -> None:
        """Scripts and host files lie in `folder`; `watch` calls back once a process has ended."""
        self._folder, self._watch = folder, watch
        self._running: dict[tuple[int, int], subprocess.Popen[bytes]] = {}

    def start(self, job: Job, state: ClusterState, ended: Callable[[int], None]) -> int:
        """Start a job and return its pid; `ended` is called with its exit code, perhaps at once (pid 0)."""
        key = (job.id, job.run)
        try:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                self._words(job),
                env=self._environment(job, state),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                **_identity(job.request.uid),
            )
        except (OSError, subprocess.SubprocessError, LookupError, TypeError, ValueError) as error:
            with (self._folder / "errors").open("a", encoding="utf-8") as file:
                file.write(f"job {job.id}: {error}\n")
            ended(NOT_STARTED)
            return 0
        self._running[key] = process
        self._watch(process.pid, lambda: self._reap(key, ended))
        return process.pid

    def _reap(self, key: tuple[int, int], ended: Callable[[int], None]) -> None:
        process = self._running.pop(key)
        sessions.kill(process.pid)  # what a job leaves behind goes with it
        code = process.wait()
        ended(128 - code if code < 0 else code)

    def signal(self, job: int, run: int, number: int) -> None:
        """Signal all processes of a job; SIGKILL also reaches those that have left its session."""
        process = self._running.get((job, run))
        if process is None:
            return
        if number == signal.SIGKILL:
            sessions.kill(process.pid)
        else:
            sessions.send(sessions.members(process.pid), number)

    def end_all(self) -> None:
        """SIGKILL for every process of every job of this emulator."""
        for process in self._running.values():
            sessions.kill(process.pid)
            process.wait()
        self._running.clear()
        sessions.send(sessions.marked(f"{MARK}={self._folder}"), signal.SIGKILL)

    def _words(self, job: Job) -> list[str]:
        """A shell that goes to the job's folder, opens its files and becomes the job: its command, or its
        script, which its own first line or sh runs."""
        request = job.request
        to = ">" if request.overwrite else ">>"
        begin = BEGIN.format(out=f'{to}"$2"', err=f'2{to}"$3"' if request.error else "2>&1")
        names = (name.replace("%J", str(job.id)) or os.devnull for name in (request.output, request.error))
        words = list(request.words)
        if request.script:
            path = self._folder / f"job-{job.id}.sh"
            path.write_text(request.script, encoding="utf-8")
            path.chmod(0o755)
            words = [str(path)] if request.script.startswith("#!") else ["/bin/sh", str(path)]
        return ["/bin/sh", "-c", begin, "job", request.cwd, *names, *words]

    def _environment(self, job: Job, state: ClusterState) -> dict[str, str]:
        request, found = job.request, job.placement
        assert found is not None  # noqa: S101  it has just been placed
        rows = list(zip(found.hosts.tolist(), found.slots.tolist(), strict=True))
        pairs = [(state.hosts.names[at], count) for at, count in rows]
        if job.launch_host:
            pairs = [(job.launch_host, 1), *pairs]
        names = [name for name, count in pairs for _ in range(count)]
        hostfile = self._folder / f"hosts-{job.id}"
        hostfile.write_text("".join(f"{name}\n" for name in names))
        given = {
            **{key: value for key, value in request.env.items() if not key.startswith("LSB_")},
            MARK: str(self._folder),
            "LSB_JOBID": str(job.id),
            "LSB_JOBINDEX": "0",
            "LSB_JOBNAME": request.name or request.shown,
            "LSB_QUEUE": request.queue,
            "LSB_SUB_HOST": request.from_host,
            "LSB_INTERACTIVE": "N",
            "LSB_RESTART": "Y" if job.run else "N",
            "LSB_EFFECTIVE_RSRCREQ": request.requirement,
            "LSB_MCPU_HOSTS": " ".join(f"{name} {count}" for name, count in pairs),
            "LSB_DJOB_HOSTFILE": str(hostfile),
            "LSB_DJOB_NUMPROC": str(len(names)),
            "LS_SUBCWD": request.cwd,
            "PATH": f"{self._folder / 'bin'}{os.pathsep}{request.env.get('PATH', os.defpath)}",
        }
        if len(text := " ".join(names)) <= MOST_HOSTS_TEXT:
            given["LSB_HOSTS"] = text
        if job.devices:  # of the host that the script runs on, in its own numbering: there are no cgroups
            given["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, job.devices[rows[0][0]]))
        if request.error:
            given["LSB_ERRORFILE"] = request.error.replace("%J", str(job.id))
        return given


def _identity(uid: int) -> dict[str, Any]:
    """Options of Popen for a process of a user, where we may start one."""
    if os.geteuid() != 0 or uid == 0:
        return {}
    entry = pwd.getpwuid(uid)
    groups = [group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem]
    return {"user": uid, "group": entry.pw_gid, "extra_groups": groups}
