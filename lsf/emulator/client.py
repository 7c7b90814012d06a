"""The one program behind every emulated command: it asks the server and prints what that answers.

It lies in the folder `bin` of the emulator under the name of each command. It needs nothing but Python, and
finds the server's socket beside that folder.
"""

import json
import os
import socket
import sys
import time

UNANSWERED = "LSF is down. Please wait ...\n"
RETRY_S = 1.0
FAILED = 255


def asked(path: str, question: dict[str, object]) -> dict[str, object] | None:
    """The server's answer; None: there is no server. Standard input is read if the server wants it."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(path)
            link.sendall(json.dumps(question).encode() + b"\n")
            with link.makefile("rb") as lines:
                for line in lines:
                    said: dict[str, object] = json.loads(line)
                    if "stdin" in said:
                        text = sys.stdin.buffer.read().decode(errors="replace")
                        link.sendall(json.dumps(text).encode() + b"\n")
                    elif "code" in said:
                        return said
                    else:
                        sys.stderr.write(str(said["err"]))
                        sys.stderr.flush()
        except (ConnectionError, FileNotFoundError):
            return None
    return None


def main() -> int:
    """Ask until there is an answer, LSB_NTRIES times at most."""
    place, name = os.path.split(sys.argv[0])
    path = os.path.join(os.path.dirname(os.path.realpath(place)), "socket")  # the folder may be a link
    question: dict[str, object] = {
        "command": name,
        "words": sys.argv[1:],
        "cwd": os.getcwd(),
        "env": dict(os.environ),
    }
    tries = os.environ.get("LSB_NTRIES", "")
    left = int(tries) if tries.isdecimal() else None
    while True:
        said = asked(path, question)
        if said is None:
            said = {"out": "", "err": UNANSWERED, "code": FAILED, "retry_s": RETRY_S}
        sys.stdout.write(str(said["out"]))
        sys.stdout.flush()
        sys.stderr.write(str(said["err"]))
        sys.stderr.flush()
        if said.get("retry_s") is None:
            return int(str(said["code"]))
        left = left - 1 if left is not None else None
        if left is not None and left <= 0:
            return FAILED
        time.sleep(float(str(said["retry_s"])))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(FAILED)
