"""Output of lsid and lshosts."""

from __future__ import annotations

from collections.abc import Sequence

LSID = """\
IBM Spectrum LSF Community Edition 10.1.0.15, May 13 2025
Copyright IBM Corp. 1992, 2016. All rights reserved.
US Government Users Restricted Rights - Use, duplication or disclosure restricted by GSA ADP Schedule \
Contract with IBM Corp.

My cluster name is {cluster}
My master name is {master}
"""
TITLES = ("HOST_NAME", "type", "model", "cpuf", "ncpus", "maxmem", "maxswp", "server", "nprocs", "ncores")
LAST = ("nthreads", "maxtmp")


def lsid(cluster: str, master: str) -> str:
    """Version, cluster and master host."""
    return LSID.format(cluster=cluster, master=master)


def lshosts(rows: Sequence[Sequence[str]]) -> str:
    """Twelve values of each host, in the order of the titles; the first column fits the longest name."""
    wide = max([9, *(len(row[0]) for row in rows)])
    widths = (wide, 7, 9, 8, 8, 10, 10, 7, 8, 8, 8)
    lines = [(*TITLES, *LAST), *((*row[:6], f"{row[6]:>5}", *row[7:]) for row in rows)]
    return "".join(
        " ".join(f"{cell:<{width}}" for cell, width in zip(line[:-1], widths, strict=True)) + f" {line[-1]}\n"
        for line in lines
    )
