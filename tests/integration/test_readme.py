"""What the README shows works as it stands there; links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith("BFTRAINER_") or "SITE" in k}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One for all: its nodes keep their warm processes from one script to the next."""
    with running(always("n1", "n2", "n3", "n4")) as site:
        yield site


def test_the_script_in_the_readme_trains(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, env=ENVIRON, timeout=LONG_S)


def test_the_script_in_the_readme_is_elastic(site: Site) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = site.root / "script.py"
    script.write_text(code, encoding="utf-8")
    site.submit("readme", str(script), n_max=2)
    ended = site.until_ended("readme")
    assert (ended["status"], ended["samples"]) == ("completed", 3_000), "it ends by itself"
    assert ended["metrics"]["accuracy"] == 0.5


def test_the_scripts_in_the_tutorial_train_alike(site: Site, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "your-script.md").read_text(encoding="utf-8")
    plain, train = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "plain.py").write_text(plain, encoding="utf-8")
    environ = {**ENVIRON, "OMP_NUM_THREADS": "1"}
    by_hand = [sys.executable, "plain.py"]
    said = subprocess.check_output(by_hand, cwd=tmp_path, env=environ, timeout=LONG_S, text=True)
    script = site.root / "train.py"
    script.write_text(train, encoding="utf-8")
    site.submit("tutorial", str(script), n_max=2)
    ended = site.until_ended("tutorial")
    assert (ended["status"], ended["samples"]) == ("completed", 60_000), site.story()
    assert len(list(site.trainers.glob("*/best.pt"))) == 1
    assert abs(ended["metrics"]["accuracy"] - float(said.split()[-1])) < 0.03


def test_the_specs_in_the_repository_learn(site: Site) -> None:
    for path in sorted((ROOT / "trainers").glob("*.yaml")):
        _submit_shortened(site, path)
    for name, least in {"digits": 0.95, "digits-gentle": 0.93, "spirals": 0.95}.items():
        ended = site.until_ended(name)
        assert ended["status"] == "completed", site.story()
        assert ended["metrics"]["accuracy"] >= least, ended


def _submit_shortened(site: Site, path: Path) -> None:
    """Submit an example with less work: it has learnt well before its end."""

    def less(found: re.Match[str]) -> str:
        return f"samples: {max(int(found[1]) // 8, 30_000)}"

    text = re.sub(r"samples: (\d+)", less, path.read_text(encoding="utf-8"))
    site.client.call("POST", "trainers", body={"spec": text, "name": path.name, "base": str(path.parent)})


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))],
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


SHOWN = "\n".join(
    page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
)
COMMANDS = sorted(set(re.findall(r"python (benchmarks/[\w/]+\.py)", SHOWN)))
MODULES = sorted(set(re.findall(r"python -m (tests\.[\w.]+)", SHOWN)))


@pytest.mark.nightly  # mypy sees with every commit that they call what there is
def test_programs_that_the_docs_name_explain_themselves_wherever_one_is(tmp_path: Path) -> None:
    environ = {k: v for k, v in ENVIRON.items() if k != "PYTHONPATH"}
    explain_themselves(tmp_path, environ, *(str(ROOT / script) for script in COMMANDS))


def test_modules_that_the_docs_name_explain_themselves_in_the_checkout() -> None:
    explain_themselves(ROOT, ENVIRON, *MODULES)


def explain_themselves(folder: Path, environ: dict[str, str], *programs: str) -> None:
    assert programs
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "explain.py"), *programs],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env=environ,
        timeout=LONG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_and_targets_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    listed = subprocess.run(
        [sys.executable, "-m", "bftrainer", "--help"], check=True, capture_output=True, text=True, env=ENVIRON
    ).stdout
    for command in set(re.findall(r"bftrainer (daemon|submit|list|replay)", README)):
        assert f"  {command} " in listed
