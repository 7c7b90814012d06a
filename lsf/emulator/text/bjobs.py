"""Output of bjobs without -o: the default table, the wide one, and -l."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HEADER = "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME"
WIDE = "  PROJ_NAME CPU_USED MEM SWAP PIDS START_TIME FINISH_TIME"
CONTINUED = " " * 45
MOST_NAME, MOST_HOST = 10, 11
INDENT, LINE = " " * 21, 79

Row = Mapping[str, str]
"""Field in capitals -> value."""


def table(rows: Sequence[Row]) -> str:
    """The default table: names are cut, and further hosts of a job have lines of their own."""
    lines = [HEADER]
    for row in rows:
        name = row["JOB_NAME"]
        short = name if len(name) <= MOST_NAME else f"*{name[1 - MOST_NAME :]}"
        first, *others = _hosts(row["EXEC_HOST"])
        lines.append(
            f"{row['JOBID']:<7} {row['USER'][:7]:<7} {row['STAT']:<5} {row['QUEUE'][:10]:<10} "
            f"{row['FROM_HOST'][:MOST_HOST]:<11} {first[:MOST_HOST]:<11} {short:<10} {row['SUBMIT_TIME']}"
        )
        lines += [f"{CONTINUED}{host[:MOST_HOST]}" for host in others]
    return "".join(f"{line}\n" for line in lines)


def wide(rows: Sequence[Row], *, more: bool = True) -> str:
    """One line a job and nothing cut: `more` is -W, else -w."""
    lines = [HEADER + (WIDE if more else "")]
    for row in rows:
        hosts = ":".join(_hosts(row["EXEC_HOST"]))
        line = (
            f"{row['JOBID']:<7} {row['USER']:<7} {row['STAT']:<5} {row['QUEUE']:<10} {row['FROM_HOST']:<11} "
            f"{hosts:<11} {row['JOB_NAME']:<10} {row['SUBMIT_TIME']}"
        )
        if more:
            line += (
                f" {row['PROJ_NAME']:<10} {row['CPU_USED']} {row['MEM'] or '-':<6} {row['SWAP'] or '-':<6} "
                f"{row['PIDS'] or '-'} {row['START_TIME'] or '-'} {row['FINISH_TIME'] or '-'}"
            )
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def _hosts(text: str) -> list[str]:
    """`h1:h1:h2` as ["2*h1", "h2"]; ["-"] for none."""
    counts: dict[str, int] = {}
    for word in filter(None, text.split(":")):
        count, _, name = word.rpartition("*")
        counts[name] = counts.get(name, 0) + int(count or 1)
    return [f"{count}*{name}" if count > 1 else name for name, count in counts.items()] or ["-"]


def wrapped(text: str, *, whole: bool = False) -> str:
    """A paragraph of -l: lines of 79 characters, cut in the midst of words; `whole` (-UF): one line."""
    if whole:
        return f"{text}\n"
    lines, rest = [text[:LINE]], text[LINE:]
    room = LINE - len(INDENT)
    while rest:
        lines.append(INDENT + rest[:room])
        rest = rest[room:]
    return "".join(f"{line}\n" for line in lines)
