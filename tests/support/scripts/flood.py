"""A script that says the same to its agent again and again, as fast as it can: `flood.py FOLDER MESSAGE...`

Each MESSAGE is JSON. In it "#" stands for a number that grows.
"""

import itertools
import json
import os
import socket
import sys
from pathlib import Path

orders = json.loads(os.environ["BFTRAINER_WORKER"])
channel = socket.socket(fileno=orders["fd"])
Path(sys.argv[1], "flooding").touch()
for number in itertools.count():
    lines = (message.replace("#", str(number)) for message in sys.argv[2:])
    channel.sendall("".join(f"{line}\n" for line in lines).encode())
