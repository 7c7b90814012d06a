"""What a rule of sudo allows beyond sbatch and scancel as a group's users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer.model.finding import Level
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.sitecheck.sudo_rule import commands_of, findings, is_safe_program

SLURM, LSF = SCHEDULERS["slurm"], SCHEDULERS["lsf"]
DEFAULTS = """\
Matching Defaults entries for bftrainer on login1:
    !requiretty, env_reset, env_keep+=SLURM_CONF

"""
RULE = """\
User bftrainer may run the following commands on login1:
    (%trainers) NOPASSWD: /usr/bin/sbatch, /usr/bin/scancel
"""
GOOD = DEFAULTS + RULE


def safe(path: str) -> bool:
    return path.startswith("/usr/bin/")


def test_a_rule_for_two_commands_as_a_groups_members_is_right() -> None:
    assert findings(GOOD, "bftrainer", safe, SLURM) == []


@pytest.mark.parametrize(
    "line",
    [
        "(%trainers) NOPASSWD: sha224:0GomF8mNN3wlDt1HD9Xld/+Q== /usr/bin/sbatch, /usr/bin/scancel",
        "(%trainers) NOPASSWD: sha224:ab12, sha256:cd34 /usr/bin/sbatch",
        "(%trainers) TIMEOUT=10 NOPASSWD: NOEXEC: /usr/bin/sbatch",
        "(alice, #1234, %#1234) NOPASSWD: /usr/bin/sbatch",
        r'(EXAMPLE\alice, "EXAMPLE\\jo li", "%EXAMPLE\\domain users") NOPASSWD: /usr/bin/sbatch',
        "(%trainers : %trainers) NOPASSWD: /usr/bin/sbatch --parsable",
    ],
)
def test_a_rule_may_say_the_same_in_other_words(line: str) -> None:
    assert findings(f"{GOOD}    {line}\n", "bftrainer", safe, SLURM) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(%trainers) NOPASSWD: /usr/bin/sbatch, /usr/bin/env", "may also run /usr/bin/env"),
        ("(%trainers) NOPASSWD: ALL", "may also run ALL"),
        (r'("EXAMPLE\\jo li", "root") NOPASSWD: /usr/bin/sbatch', "commands as root"),
        ("(%trainers) NOPASSWD: /tmp/sbatch, /home/eve/scancel", "run /tmp/sbatch, /home/eve/scancel as"),
        ("(%trainers) NOPASSWD: sha224:ab12 /tmp/sbatch", "may also run /tmp/sbatch"),
        ("(%trainers) NOPASSWD: ALL, !/usr/bin/sbatch", "may also run ALL, !/usr/bin/sbatch"),
        ("(%trainers) NOPASSWD: sudoedit /usr/bin/sbatch", "may also run sudoedit"),
        ("(%trainers) CHROOT=/tmp NOPASSWD: /usr/bin/sbatch", "may also run CHROOT=/tmp"),
        ("(%trainers) NOPASSWD: /usr/bin/", "may also run /usr/bin/"),
        ("(%trainers) SETENV: NOPASSWD: /usr/bin/sbatch", "may choose the environment"),
        ("(%trainers) NOPASSWD: /usr/bin/sbatch, SETENV: /usr/bin/scancel", "may choose the environment"),
        ("(ALL : ALL) NOPASSWD: /usr/bin/sbatch", "may run commands as ALL"),
        ("(root, alice) NOPASSWD: /usr/bin/sbatch", "may run commands as root"),
        ("(#0) NOPASSWD: /usr/bin/sbatch", "may run commands as #0"),
        ("(#-1) NOPASSWD: /usr/bin/sbatch", "may run commands as #-1"),
        ("(%root) NOPASSWD: /usr/bin/sbatch", "may run commands as %root"),
        ("(%#0) NOPASSWD: /usr/bin/sbatch", "may run commands as %#0"),
        ("(alice : root) NOPASSWD: /usr/bin/sbatch", "may run commands as %root"),
        ("(!alice) NOPASSWD: /usr/bin/sbatch", "may run commands as !alice"),
        ("(ALL, !root) NOPASSWD: /usr/bin/sbatch", "may run commands as ALL, !root"),
    ],
)
def test_a_rule_that_allows_more_is_wrong(line: str, said: str) -> None:
    found = findings(f"{GOOD}    {line}\n", "bftrainer", safe, SLURM)
    assert [one.level for one in found] == [Level.WRONG]
    assert said in found[0].found


@pytest.mark.parametrize("word", ["!env_reset", "setenv", "env_keep+=*"])
def test_a_setting_that_lets_the_account_choose_the_environment_is_wrong(word: str) -> None:
    (found,) = findings(GOOD.replace("env_reset", word), "bftrainer", safe, SLURM)
    assert (found.level, found.found.startswith("sudo has")) == (Level.WRONG, True)
    assert findings(GOOD.replace("env_reset", "!setenv"), "bftrainer", safe, SLURM) == []


def test_on_lsf_sudo_leaves_bsub_the_secret_and_allows_its_two_commands() -> None:
    rule = GOOD.replace("sbatch", "bsub").replace("scancel", "bkill")
    secret, tries = findings(rule, "bftrainer", safe, LSF)
    assert "does not leave BFTRAINER_PILOT_SECRET to bsub" in secret.found
    assert "does not leave LSB_NTRIES to bsub and bkill: where LSF does not answer" in tries.found
    kept = rule.replace("env_keep+=SLURM_CONF", 'env_keep+="LSB_NTRIES LSF_ENVDIR BFTRAINER_PILOT_SECRET"')
    assert findings(kept, "bftrainer", safe, LSF) == []
    assert "may also run /usr/bin/bsub" in findings(kept, "bftrainer", safe, SLURM)[0].found


def test_commands_are_read_without_what_stands_before_them() -> None:
    line = "ROLE=r CWD=/x SETENV: NOPASSWD: sha512:aa== /a/sbatch -x y, /b/scancel"
    assert commands_of(line) == ["/a/sbatch -x y", "/b/scancel"]


def test_a_program_that_others_can_change_is_not_safe(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir(mode=0o755)
    program.touch(mode=0o755)
    program.chmod(0o755)
    assert is_safe_program(str(program)) is (os.geteuid() == 0)
    assert is_safe_program("/usr/bin/env")
    assert is_safe_program("/usr/bin/nothing-there"), "only root can put it there"
    assert not is_safe_program(f"{tmp_path}/no/folder/sbatch"), "its folder may be anybody's some day"
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    assert not is_safe_program(str(sticky / "sbatch")), "everybody can put it there"
    program.chmod(0o775)
    assert not is_safe_program(str(program))
    program.chmod(0o755)
    program.parent.chmod(0o777)
    assert not is_safe_program(str(program))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_program_that_the_daemon_uses_may_have_another_owner(tmp_path: Path) -> None:
    program = tmp_path / "sbatch"
    program.touch()
    program.chmod(0o755)
    os.chown(program, 12_345, -1)
    assert not is_safe_program(str(program))
    assert is_safe_program(str(program), {str(program)})
    program.chmod(0o775)
    assert not is_safe_program(str(program), {str(program)})
