"""The shim that plays power failures and failing disks: what it takes away, and what it lets stand."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.files.aof import Store
from support.files.fsync_shim import PowerLoss, find_compiler
from support.servers import python_environment

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs Linux and a C compiler")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def power(folder: Path, tmp_path: Path) -> PowerLoss:
    (folder / "before").write_bytes(b"before")
    return PowerLoss(folder, tmp_path / "scratch")


def run(power: PowerLoss, program: str) -> str:
    """Run a few lines of Python in the folder with the shim."""
    done = subprocess.run(
        [sys.executable, "-c", "import os\n" + program], cwd=power.folder, env=python_environment() | power.environment(),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SYNC_FOLDER = "d = os.open('.', os.O_RDONLY); os.fsync(d)\n"
OPEN = "f = os.open('a', os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n"


def test_what_was_there_before_stays(power: PowerLoss, folder: Path) -> None:
    run(power, "open('before', 'ab').write(b' and more'); open('new', 'w').write('x')")
    power.happen()
    assert tree(folder) == {"before": b"before"}


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_what_was_written_after_the_sync_is_gone(power: PowerLoss, folder: Path, call: str) -> None:
    run(power, OPEN + f"os.write(f, b'safe'); os.{call}(f)\n" + SYNC_FOLDER + "os.write(f, b' not safe')")
    power.happen()
    assert tree(folder) == {"before": b"before", "a": b"safe"}


def test_a_name_is_gone_when_its_directory_was_not_synced(power: PowerLoss, folder: Path) -> None:
    run(power, OPEN + "os.write(f, b'safe'); os.fsync(f)")
    power.happen()
    assert tree(folder) == {"before": b"before"}


def test_a_file_is_empty_when_only_its_directory_was_synced(power: PowerLoss, folder: Path) -> None:
    run(power, OPEN + "os.write(f, b'not safe')\n" + SYNC_FOLDER)
    power.happen()
    assert tree(folder) == {"before": b"before", "a": b""}


def test_a_rename_is_undone_until_the_directory_was_synced(power: PowerLoss, folder: Path) -> None:
    program = OPEN + "os.write(f, b'new'); os.fsync(f)\n" + SYNC_FOLDER + "os.rename('a', 'before')\n"
    run(power, program)
    power.happen()
    assert tree(folder) == {"before": b"before", "a": b"new"}


def test_a_rename_stands_when_the_directory_was_synced(power: PowerLoss, folder: Path) -> None:
    run(power, OPEN + "os.write(f, b'new'); os.fsync(f); os.rename('a', 'before')\n" + SYNC_FOLDER)
    power.happen()
    assert tree(folder) == {"before": b"new"}


def test_an_unlink_is_undone_until_the_directory_was_synced(power: PowerLoss, folder: Path) -> None:
    run(power, "os.unlink('before')")
    power.happen()
    assert tree(folder) == {"before": b"before"}


def test_files_in_a_new_directory_need_both_directories_synced(power: PowerLoss, folder: Path) -> None:
    program = "os.mkdir('sub'); os.chdir('sub')\n" + OPEN + "os.write(f, b'x'); os.fsync(f)\n" + SYNC_FOLDER
    run(power, program + "os.chdir('..')\n" + SYNC_FOLDER)
    power.happen()
    assert tree(folder) == {"before": b"before", "sub/a": b"x"}


def test_a_cut_file_is_not_longer_than_it_was_cut_to(power: PowerLoss, folder: Path) -> None:
    run(power, OPEN + "os.write(f, b'safe'); os.fsync(f)\n" + SYNC_FOLDER + "os.ftruncate(f, 2); os.write(f, b'XXXX')")
    power.happen()
    assert tree(folder)["a"] == b"sa"


def test_the_n_th_sync_fails(power: PowerLoss) -> None:
    power.rules(f"fsync {errno.EIO} 2")
    program = OPEN + (
        "for call in (os.fsync, os.fdatasync, os.fsync):\n"
        "    try: call(f); print('fine')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    assert run(power, program).split() == ["fine", str(errno.EIO), "fine"]
    assert power.syncs == 2


def test_writes_fail_from_the_n_th_on_and_only_in_the_folder(power: PowerLoss, tmp_path: Path) -> None:
    power.rules(f"write {errno.ENOSPC} 2+", "write short 1")
    program = OPEN + (
        "print(os.write(f, b'12345678'))\n"
        "for _ in range(2):\n"
        "    try: os.write(f, b'x'); print('fine')\n"
        "    except OSError as error: print(error.errno)\n"
        f"g = os.open({str(tmp_path / 'other')!r}, os.O_CREAT | os.O_WRONLY); print(os.write(g, b'abc'))\n"
    )
    assert run(power, program).split() == ["4", str(errno.ENOSPC), str(errno.ENOSPC), "3"]


def test_names_fail_to_change(power: PowerLoss) -> None:
    power.rules(f"rename {errno.EIO} 1", f"unlink {errno.EACCES} 2")
    program = OPEN + (
        "for call in (lambda: os.rename('a', 'b'), lambda: os.rename('a', 'b'), lambda: os.unlink('b'),\n"
        "             lambda: os.unlink('before')):\n"
        "    try: call(); print('fine')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    assert run(power, program).split() == [str(errno.EIO), "fine", "fine", str(errno.EACCES)]


def test_a_process_is_killed_before_a_call(power: PowerLoss, folder: Path) -> None:
    power.rules("rename kill 2")
    with pytest.raises(subprocess.CalledProcessError, match="died with <Signals") as failure:
        run(power, OPEN + "os.rename('a', 'b'); os.rename('b', 'c')")
    assert failure.value.returncode == -signal.SIGKILL
    assert set(tree(folder)) == {"before", "b"}


def test_what_is_there_becomes_safe(power: PowerLoss, folder: Path) -> None:
    run(power, OPEN + "os.write(f, b'x')")
    power.renew()
    run(power, "os.unlink('before')")
    power.happen()
    assert tree(folder) == {"before": b"before", "a": b"x"}


def test_rules_change_while_a_process_runs(power: PowerLoss) -> None:
    program = OPEN + (
        "import sys\n"
        "for _ in range(3):\n"
        "    sys.stdin.readline()\n"
        "    try: os.write(f, b'x'); print('fine', flush=True)\n"
        "    except OSError as error: print(error.errno, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "import os\n" + program], cwd=power.folder, env=python_environment() | power.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = []
        for rules in ([], [f"write {errno.ENOSPC} 1+"], []):
            power.rules(*rules)
            process.stdin.write("\n")
            process.stdin.flush()
            told.append(process.stdout.readline().strip())
    assert told == ["fine", str(errno.ENOSPC), "fine"]


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.files.aof import Store, commands, open_aof
store = Store()
aof = open_aof(Path("."), store, appendfsync={policy!r})
for n in range(1, 41):
    args = commands(f"XADD s {{n}}-1 f v")[0]
    store.run(*args)
    aof.buffer.append(0, args, 0)
    aof.flush()
    print(n, flush=True)
    if n in (10, 30):
        aof.begin_rewrite()
        aof.rewrite_started(7)
        store.write_base(aof.files.temporary_base(7))
        aof.finish_rewrite(True)
import os
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("policy", ["always", "no"])
def test_the_append_only_file_with_always_keeps_what_was_acknowledged(
    power: PowerLoss, folder: Path, policy: str
) -> None:
    from support.files.aof import open_aof

    tests = str(Path(__file__).parents[1])
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(tests=tests, policy=policy)], cwd=folder,
        env=python_environment() | power.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    acknowledged = int(process.stdout.split()[-1])
    assert (process.returncode, acknowledged) == (-9, 40), process.stderr
    power.happen()
    store = Store()
    open_aof(folder, store).close()
    # Under `no` everything since the last rewrite is gone: the shim can tell them apart.
    assert store.run("XLEN", "s") == (40 if policy == "always" else 30)
    assert os.path.exists(folder / "before")
