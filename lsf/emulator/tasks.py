"""jsrun and blaunch: they start the tasks of a job on its hosts, all of which are this machine.

It lies in the folder `bin` of the emulator under both names. A task sees in LSF_EMULATOR_HOST which host it
is on. It needs nothing but Python.
"""

import os
import re
import subprocess
import sys

FAILED = 255
VALUED = {
    *(
        "-n",
        "--nrs",
        "-r",
        "--rs_per_host",
        "-a",
        "--tasks_per_rs",
        "-g",
        "--gpu_per_rs",
        "-c",
        "--cpu_per_rs",
    ),
    *("-b", "--bind", "-d", "--launch_distribution", "-U", "--erf_input", "-E", "--env", "-p", "--np", "-l"),
    *("-z", "-u", "-h", "--chdir", "--stdio_stdout", "--stdio_stderr", "-o", "-k"),
}
"""Options that have a value; those of one letter may have it glued to them."""


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options and the rest: what the task is."""
    given: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word.startswith("--") and "=" in word:
            name, _, given[name] = word.partition("=")
        elif word in VALUED and words:
            given[word] = words.pop(0)
        elif word[:2] in VALUED and not word.startswith("--"):
            given[word[:2]] = word[2:]
        else:
            given[word] = ""
    return given, words


def hosts_of_job() -> list[str]:
    """The hosts of the job that this runs in, a launch host aside, which has one slot and stands first."""
    words = os.environ.get("LSB_MCPU_HOSTS", "").split()
    pairs = list(zip(words[::2], words[1::2], strict=False))
    if len(pairs) > 1 and pairs[0][1] == "1" and pairs[1][1] != "1":
        pairs = pairs[1:]
    return [name for name, _ in pairs]


def placed(given: dict[str, str], hosts: list[str]) -> list[str]:
    """The host of each task of jsrun: resource sets go to the hosts in turn, `-r` to each."""
    sets = int(given.get("-n") or given.get("--nrs") or given.get("-p") or given.get("--np") or len(hosts))
    each = int(given.get("-r") or given.get("--rs_per_host") or -(-sets // max(1, len(hosts))))
    tasks = int(given.get("-a") or given.get("--tasks_per_rs") or 1)
    found = [host for host in hosts for _ in range(each)][:sets]
    if len(found) < sets:
        raise ValueError(f"Could not find resources for {sets} resource sets on {len(hosts)} hosts")
    return [host for host in found for _ in range(tasks)]


def devices(given: dict[str, str], hosts: list[str]) -> list[dict[str, str]]:
    """Return CUDA_VISIBLE_DEVICES of each task of jsrun: the GPUs of its resource set. Sets of one host
    have different ones."""
    each = int(given.get("-g") or given.get("--gpu_per_rs") or 0)
    tasks = int(given.get("-a") or given.get("--tasks_per_rs") or 1)
    found = []
    for rank, host in enumerate(hosts):
        first = hosts[:rank].count(host) // tasks * each
        names = ",".join(str(number) for number in range(first, first + each))
        found.append({"CUDA_VISIBLE_DEVICES": names} if each else {})
    return found


def run(task: list[str], hosts: list[str], devices: list[dict[str, str]]) -> int:
    """Start a task on each host with its devices, wait for all, and return the worst exit code."""
    if len(hosts) == 1:
        os.environ.update(LSF_EMULATOR_HOST=hosts[0], **devices[0])
        os.execvp(task[0], task)  # noqa: S606  so that signals and standard input reach it
    started = []
    for rank, host in enumerate(hosts):
        env = {
            **os.environ,
            **devices[rank],
            "LSF_EMULATOR_HOST": host,
            "PMIX_RANK": str(rank),
            "JSM_NAMESPACE_RANK": str(rank),
        }
        started.append(subprocess.Popen(task, env=env))
    codes = [process.wait() for process in started]
    return max(128 - code if code < 0 else code for code in codes)


def main() -> int:
    """Start what the command line says."""
    name = os.path.basename(sys.argv[0])
    given, rest = split(sys.argv[1:])
    hosts = hosts_of_job()
    if not hosts:
        sys.stderr.write(f"{name}: not in a job\n")
        return FAILED
    try:
        if name == "jsrun":
            where = placed(given, hosts)
        elif "-z" in given:
            where = given["-z"].split()
        elif "-u" in given:
            with open(given["-u"], encoding="utf-8") as file:
                where = file.read().split()
        else:
            where = re.split(r"\s+", rest.pop(0)) if rest else []
        if not rest or not where or not set(where) <= set(hosts):
            raise ValueError(f"no task, or not on hosts of the job: {' '.join(hosts)}")
        return run(rest, where, devices(given if name == "jsrun" else {}, where))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
