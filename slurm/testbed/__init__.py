"""A real Slurm to try bftrainer on: `python -m slurm.testbed up`, or `Testbed` as a context.

from slurm.testbed import Testbed

with Testbed(nodes=4) as bed:
    print(bed.run(["sinfo"]).stdout)
"""

from benchmarks.testbeds.errors import TestbedError
from slurm.testbed.bed import Testbed, why_not

__all__ = ["Testbed", "TestbedError", "why_not"]
