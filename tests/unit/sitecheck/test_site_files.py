"""What the check of a site says of its files: each way to break them, and what it finds."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrainer.model.finding import Finding, Level
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.sitecheck import files
from bftrainer.state_dir import filesystem, lock
from bftrainer.state_dir.risks import in_memory

EXEC_PREFIX = "sudo -n -u {user} --"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, which tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="bftrainer-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def site(place: Path) -> Settings:
    """A site's settings; every user may go through its folders."""
    (place / "state").mkdir(mode=0o700)
    (place / "run").mkdir(mode=0o755)
    given = {
        "mode": "site",
        "exec_prefix": EXEC_PREFIX,
        "state_dir": place / "state",
        "socket": place / "run" / "daemon.sock",
        "pilot_python": "/bin/sh",
        "min_free_mb": 0,
    }
    return load(given, file=None, environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"})


def level(findings: list[Finding], check: str) -> Level:
    return next(one.level for one in findings if one.check == check)


def test_a_site_as_it_should_be(site: Settings) -> None:
    found = files.file_findings(site, ())
    assert level(found, "state directory") is (Level.WARNING if in_memory(site.state_dir) else Level.OK)
    assert level(found, "disk") is Level.OK
    assert level(found, "socket") is Level.OK


@pytest.mark.parametrize(
    ("mode", "said"),
    [(0o666, "others may change it"), (0o664, "others may change"), (0o600, "users cannot read")],
)
def test_a_file_of_settings_is_for_all_to_read_and_for_none_to_change(
    tmp_path: Path, mode: int, said: str
) -> None:
    path = tmp_path / "config.yaml"
    path.touch()
    path.chmod(0o644)
    good = files.settings_file(path, site=path.stat().st_uid == 0)
    assert good.level is Level.OK
    path.chmod(mode)
    found = files.settings_file(path, site=path.stat().st_uid == 0)
    if path.stat().st_uid == 0 or mode & 0o022:
        assert (found.level, found.found.startswith(said)) == (Level.WRONG, True)
        assert "chmod" in found.remedy
    assert files.settings_file(tmp_path / "none", site=True).level is Level.WRONG


@pytest.mark.parametrize("whole_site", [True, False])
def test_a_file_of_settings_that_others_can_exchange_is_wrong(tmp_path: Path, whole_site: bool) -> None:
    if whole_site and os.geteuid() != 0:
        pytest.skip("a site's settings are root's")
    path = tmp_path / "config.yaml"
    path.touch()
    path.chmod(0o644)
    assert files.settings_file(path, site=whole_site).level is Level.OK
    tmp_path.chmod(0o777)
    found = files.settings_file(path, site=whole_site)
    assert (found.level, "may put something else in its place" in found.found) == (Level.WRONG, True)


def test_a_file_of_settings_of_another_user_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.yaml"
    path.touch(mode=0o644)
    monkeypatch.setattr(files.os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(files, "ROOT_UID", path.stat().st_uid + 2)
    found = files.settings_file(path, site=False)
    assert found.level is Level.WRONG
    assert "decides as whom trainers run" in found.found


def test_an_open_state_directory_is_wrong(site: Settings) -> None:
    (site.state_dir / "key").touch()
    (site.state_dir / "key").chmod(0o644)
    assert files.state_dir(site)[0].level is not Level.WRONG, "others cannot go through the folder"
    site.state_dir.chmod(0o750)
    (found,) = files.state_dir(site)
    assert (found.level, found.remedy) == (Level.WRONG, f"say: chmod 700 {site.state_dir}")
    own = files.state_dir(site.model_copy(update={"mode": "single"}))[0]
    assert (own.level, "until the daemon starts" in own.found) == (Level.WARNING, True)
    (site.state_dir / "notes").touch()
    (found,) = files.state_dir(site)
    assert (found.level, "take a folder of its own" in found.remedy) == (Level.WRONG, True)


def in_a_folder_of_all(site: Settings) -> Path:
    site.state_dir.parent.chmod(0o777)
    return site.state_dir


def in_a_folder_of_all_yet_to_be_made(site: Settings) -> Path:
    return in_a_folder_of_all(site).parent / "new"


def in_a_groups_folder(site: Settings) -> Path:
    site.state_dir.parent.chmod(0o775)
    return site.state_dir


def as_a_file(site: Settings) -> Path:
    (site.state_dir.parent / "file").touch()
    return site.state_dir.parent / "file"


def below_a_file(site: Settings) -> Path:
    return as_a_file(site) / "state"


def on_proc(site: Settings) -> Path:
    return Path("/proc/bftrainer")


def with_a_key_of_another(site: Settings) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    (site.state_dir / "key").touch()
    os.chown(site.state_dir / "key", 12_345, -1)
    return site.state_dir


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (in_a_folder_of_all, "everybody may put something else"),
        (in_a_folder_of_all_yet_to_be_made, "everybody may put something else"),
        (in_a_groups_folder, "may put something else"),
        (as_a_file, "is no folder"),
        (below_a_file, "is no folder"),
        (on_proc, "keeps no files"),
        (with_a_key_of_another, "another user has put something"),
    ],
)
def test_what_the_daemon_refuses_is_wrong(
    site: Settings, broken: Callable[[Settings], Path], said: str
) -> None:
    (found,) = files.state_dir(site.model_copy(update={"state_dir": broken(site)}))
    assert (found.level, said in found.found) == (Level.WRONG, True), found


def test_a_file_system_without_locks_is_wrong(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", none)
    (found,) = files.state_dir(site)
    assert (found.level, "has no locks" in found.found) == (Level.WRONG, True)


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_state_directory_in_memory_is_warned_of(
    site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"30 22 0:40 / {site.state_dir} rw - {kind} none rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    assert files.state_dir(site)[0].level is Level.WARNING
    site.state_dir.rmdir()
    assert files.state_dir(site)[0].level is Level.WARNING


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is root, and gives files away")
def test_a_daemon_as_root_is_warned_of(site: Settings) -> None:
    (found,) = files.account(site)
    assert (found.level, "an account of its own" in found.remedy) == (Level.WARNING, True)
    assert files.account(site.model_copy(update={"mode": "single"})) == []
    os.chown(site.state_dir, 12_345, -1)
    assert files.account(site)[0].level is Level.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_sockets_folder_is_the_daemons_or_roots(site: Settings) -> None:
    os.chown(site.socket.parent, 12_345, -1)
    assert files.socket_folder(site).level is Level.WRONG
    os.chown(site.state_dir, 12_345, -1)
    assert files.socket_folder(site).level is Level.OK


def test_a_state_directory_on_a_network_file_system_is_wrong(
    site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"30 22 0:40 / {site.state_dir} rw - lustre 1@o2ib:/x rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    (found,) = files.state_dir(site)
    assert (found.level, "lustre" in found.found) == (Level.WRONG, True)
    allowed = site.model_copy(update={"state_dir_on_network": True})
    assert files.state_dir(allowed)[0].level is Level.WARNING


def test_a_full_disk_is_wrong(site: Settings) -> None:
    found = files.state_dir(site.model_copy(update={"min_free_mb": 10_000_000}))[1]
    assert (found.check, found.level) == ("disk", Level.WRONG)


def test_a_state_directory_that_is_not_there_is_no_fault(site: Settings) -> None:
    site.state_dir.rmdir()
    assert files.state_dir(site)[0].level is Level.NOT_CHECKED


def test_users_must_reach_the_socket_and_none_may_put_another_in_its_place(site: Settings) -> None:
    folder = site.socket.parent
    folder.chmod(0o750)
    found = files.socket_folder(site)
    assert (found.level, found.remedy) == (Level.WRONG, f"chmod o+x {folder}")
    folder.chmod(0o1777)
    found = files.socket_folder(site)
    assert (found.level, "any user may put a socket" in found.found) == (Level.WRONG, True)
    folder.rmdir()
    assert files.socket_folder(site).level is Level.NOT_CHECKED
    long = site.model_copy(update={"socket": folder / ("x" * 100)})
    assert files.socket_folder(long).level is Level.WRONG


def test_the_nodes_python_is_named_with_a_way_to_try_it(
    site: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = files.pilot_files(site)
    assert (found.level, "srun" in found.remedy) == (Level.NOT_CHECKED, True)
    (found,) = files.pilot_files(site.model_copy(update={"scheduler": "lsf", "lsf_queue": "killable"}))
    assert found.remedy.startswith("bsub -I -q killable ") and "srun" not in found.remedy
    (found,) = files.pilot_files(site.model_copy(update={"pilot_python": "/nonexistent/python"}))
    assert found.level is Level.WARNING
    single = site.model_copy(update={"mode": "single"})
    assert [one.check for one in files.pilot_files(single)] == ["pilot_python", "pilot_log_dir"]
    table = tmp_path / "mountinfo"
    table.write_text("30 22 0:40 / / rw - nfs4 filer:/x rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    assert [one.level for one in files.pilot_files(single)] == [Level.OK]


def test_a_template_of_the_sites_own_must_give_the_secret_as_ours_does(
    site: Settings, tmp_path: Path
) -> None:
    assert files.pilot_template(site) == []
    path = tmp_path / "pilot.j2"
    own = site.model_copy(update={"pilot_template": str(path)})
    assert files.pilot_template(own)[0].level is Level.WRONG
    path.write_text("export BFTRAINER_SECRET={{ secret }}\n")
    assert files.pilot_template(own)[0].level is Level.WRONG
    path.write_text((Path(__file__).parents[3] / "jobscripts" / "slurm-pilot.sh.j2").read_text())
    assert files.pilot_template(own)[0].level is Level.OK


@pytest.mark.parametrize(
    ("mode", "found"),
    [(0o755, Level.OK), (0o1777, Level.WARNING), (0o777, Level.WRONG), (None, Level.NOT_CHECKED)],
)
def test_a_folder_in_which_users_could_make_others_folders_is_told_of(
    site: Settings, place: Path, mode: int | None, found: Level
) -> None:
    scratch = place / "scratch"
    if mode is not None:
        scratch.mkdir()
        scratch.chmod(mode)
    own = site.model_copy(update={"trainer_dir": f"{scratch}/{{user}}/bftrainer"})
    assert [one.level for one in files.users_folders(own)] == [found]
    assert files.users_folders(site) == [], "below each trainer's workdir"
