"""A program between the agent and a script, such as `accelerate launch`: it passes on no open file."""

import subprocess
import sys

sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], check=False).returncode)
