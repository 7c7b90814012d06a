"""An LSF to try bftrainer on: `python -m lsf.emulator up`, or `Emulator` as a context.

from lsf.emulator import Emulator

with Emulator(hosts=4) as lsf:
    print(lsf.run("bhosts").stdout)
"""

from lsf.emulator.emulator import Emulator, EmulatorError
from lsf.emulator.manners import Manners

__all__ = ["Emulator", "EmulatorError", "Manners"]
