#!/usr/bin/env python3
"""Print pip's option for the index of PyTorch's CPU builds, or nothing if that index cannot be reached.

pip would warn several times for every package that it looks for there. This tries once and says one line.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 5.0


def main() -> None:
    (index,) = sys.argv[1:] or ["https://download.pytorch.org/whl/cpu"]
    trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    try:
        urllib.request.urlopen(f"{index}/torch/", timeout=TIMEOUT_S, context=trusted).close()  # noqa: S310
    except (OSError, urllib.error.URLError):
        sys.stderr.write(f"{index} cannot be reached: PyTorch comes from pip's own index\n")
    else:
        sys.stdout.write(f"--extra-index-url {index}\n")


if __name__ == "__main__":
    main()
