"""Checks the daemon's machine: the process and its limits, sudo's rule, munge, systemd's unit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import resource
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from bftrainer.api.munge import Munge, MungeError
from bftrainer.model.finding import Finding, not_checked, ok, warning, wrong
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.values import Settings
from bftrainer.sitecheck.sudo_rule import RULE, findings, is_safe_program
from bftrainer.state_dir.lock import holder_of

DESCRIPTORS = 8192
"""A daemon needs one for each connection."""
COMMAND_S = 10.0
UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
"""From which port on every user may listen."""
UNIT = (
    "LoadState",
    "ActiveState",
    "User",
    "MemoryMax",
    "LimitNOFILE",
    "WatchdogUSec",
    "OOMPolicy",
    "KillMode",
)


def descriptors(settings: Settings) -> Finding:
    """Return how many files the daemon may open, or this shell if it does not run here."""
    holder = holder_of(settings.state_dir)
    limit, of = resource.getrlimit(resource.RLIMIT_NOFILE)[1], "this shell"  # a daemon raises it so far
    limit = DESCRIPTORS if limit == resource.RLIM_INFINITY else limit
    if holder is not None and holder.host == socket.gethostname():
        with contextlib.suppress(OSError, TypeError, IndexError):
            text = Path(f"/proc/{holder.pid}/limits").read_text(encoding="ascii")
            limit, of = int(re.findall(r"^Max open files\s+(\d+)", text, re.MULTILINE)[0]), "the daemon"
    if limit < DESCRIPTORS:
        said = f"{of} may open {limit} files; each agent and each client takes one"
        return warning("descriptors", said, f"LimitNOFILE in its unit, or ulimit -n {DESCRIPTORS}")
    return ok("descriptors", f"{of} may open {limit} files")


def ports(settings: Settings, file: Path = UNPRIVILEGED) -> list[Finding]:
    """Return whether every user of this machine can take the daemon's ports while it is down."""
    if settings.mode == "single":
        return []
    given = {"listen": settings.listen, "listen_users": settings.listen_users}
    known = {name: at.rpartition(":")[2] for name, at in given.items() if at}
    try:
        free_from = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        free_from = 1024
    open_to_all = {name: port for name, port in known.items() if int(port) >= free_from}
    if not open_to_all:
        return [ok("ports", "no other user can take them")] if known else []
    named = ", ".join(f"{name} ({port})" for name, port in open_to_all.items())
    return [
        warning(
            "ports",
            f"{named}: every user here can take it while the daemon is down, which then cannot start",
            f"take ports below {free_from}, with the drop-in jobscripts/bftrainer-ports.conf",
        )
    ]


async def munge(settings: Settings) -> Finding:
    """Return whether a credential can be made and read on this machine."""
    if not settings.munge:
        return ok("munge", "not used: setting munge is off")
    asked = Munge(settings.munge_socket)
    try:
        uid = await asked.decode(await asked.encode("bftrainer check"), "bftrainer check")
    except MungeError as error:
        return wrong("munge", str(error), f"start munged; it should listen at {settings.munge_socket}")
    return ok("munge", f"makes and reads credentials (as user {uid})")


async def sudo(settings: Settings, user: str) -> list[Finding]:
    """Check that sudo lets the daemon's account submit and cancel as `user`, and nothing else as anybody."""
    check, prefix = "sudo rule", settings.exec_prefix
    if settings.mode == "single":
        return []
    if not prefix or Path(prefix[0]).name != "sudo":
        return [not_checked(check, f"exec_prefix runs {prefix[0] if prefix else 'nothing'}, not sudo")]
    account = _account(settings)
    if account is None:
        return [not_checked(check, f"there is no {settings.state_dir} whose owner is the daemon's account")]
    whose = [] if os.geteuid() == account.pw_uid else ["-U", account.pw_name]
    if whose and os.geteuid() != 0:
        return [
            not_checked(check, f"only root and {account.pw_name} can ask", "run the check as one of them")
        ]
    code, listed = await _run([prefix[0], "-n", "-l", *whose])
    if code or not RULE.search(listed):  # sudo says with exit code 0, too, that there is none
        remedy = "write /etc/sudoers.d/bftrainer as docs/site-mode.md has it"
        return [wrong(check, f"sudo lists nothing for {account.pw_name}: {_last(listed)}", remedy)]
    kind = SCHEDULERS[settings.scheduler]
    paths = programs(settings)
    found = findings(listed, account.pw_name, lambda path: is_safe_program(path, set(paths.values())), kind)
    if user:
        for path in paths.values():
            code, said = await _run([prefix[0], "-n", "-l", *whose, "-u", user, path])
            if code:
                remedy = (
                    f"is {user} a member of the group that the rule names? Is {path} its path in the rule?"
                )
                found.append(
                    wrong(check, f"{account.pw_name} may not run {path} as {user}: {_last(said)}", remedy)
                )
    else:
        found.append(not_checked(f"{check} for a user", "no user was named", "say --user NAME"))
    return found or [ok(check, f"{account.pw_name} may submit and cancel as {user}, and nothing else")]


def programs(settings: Settings) -> dict[str, str]:
    """The paths of the commands that the daemon runs as users: in the folder that the settings name for the
    batch system's commands, else where PATH finds them."""
    kind = SCHEDULERS[settings.scheduler]
    folder = str(getattr(settings, kind.folder)) if kind.folder else ""
    found = {name: shutil.which(name, path=folder or None) for name in kind.orders}
    return {name: path or str(Path(folder or "/usr/bin") / name) for name, path in found.items()}


async def unit(settings: Settings) -> list[Finding]:
    """The unit that systemd has."""
    if shutil.which("systemctl") is None or not Path("/run/systemd/system").exists():
        return [not_checked("systemd unit", "systemd does not run here")]
    scope = [] if settings.mode == "site" else ["--user"]
    words = ["systemctl", *scope, "show", "bftrainer.service", f"--property={','.join(UNIT)}"]
    code, said = await _run(words)
    if code:
        return [not_checked("systemd unit", _last(said))]
    return unit_findings(dict(line.split("=", 1) for line in said.splitlines() if "=" in line))


def unit_findings(known: Mapping[str, str]) -> list[Finding]:
    """Return the findings on the unit's properties. Pure."""
    check, remedy = (
        "systemd unit",
        "compare it with jobscripts/bftrainer.service, and mend it (systemctl edit)",
    )
    if known.get("LoadState") != "loaded":
        install = "install jobscripts/bftrainer.service, so that a daemon that fails is started again"
        return [warning(check, f"bftrainer.service is {known.get('LoadState', 'unknown')}", install)]
    found = []
    if known.get("WatchdogUSec") in {"0", "infinity", ""}:
        found.append(warning(check, "WatchdogSec is off: a daemon that hangs is not started again", remedy))
    if known.get("MemoryMax") == "infinity":
        found.append(
            warning(check, "MemoryMax is off: the daemon and its helpers have no bound together", remedy)
        )
    if known.get("OOMPolicy") not in {"continue", None}:
        said = f"OOMPolicy={known['OOMPolicy']}: if a helper runs out of memory, systemd stops the daemon"
        found.append(wrong(check, said, remedy))
    if known.get("KillMode") != "process":
        said = f"KillMode={known.get('KillMode')}: helpers of running trainers end with a daemon that crashes"
        found.append(wrong(check, said, remedy))
    limit = known.get("LimitNOFILE", "")
    if limit.isdecimal() and int(limit) < DESCRIPTORS:
        found.append(warning(check, f"LimitNOFILE={limit}: each agent and client takes one", remedy))
    return found or [ok(check, f"bftrainer.service is {known.get('ActiveState', 'there')}, with its limits")]


def _account(settings: Settings) -> pwd.struct_passwd | None:
    """The daemon's account: the owner of its state directory."""
    try:
        return pwd.getpwuid(settings.state_dir.stat().st_uid)
    except (OSError, KeyError):
        return None


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


async def _run(words: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of a command that changes nothing."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        return 127, f"cannot run {words[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(COMMAND_S):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"{words[0]} took more than {COMMAND_S:g} s"
    return process.returncode or 0, out.decode(errors="replace")
