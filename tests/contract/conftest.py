"""The real worlds are made of what the integration tests are made of."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))
