"""The suite runs again without what macOS, and then without what Windows lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.platforms.names import WINDOWS_LACKS_MODULES, macos_lacks, windows_lacks

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = [
    "tests/contract/test_formats.py", "tests/sink/test_atomic.py", "tests/sink/test_plans.py",
    "tests/source/test_file_source.py", "tests/source/test_folders.py", "tests/convert/test_convert.py",
    "tests/convert/test_overwrite.py",
]  # fmt: skip
# What writes a gigabyte, and what starts processes that see all of Linux again.
CHOSEN = "not gigabyte and not another_process and not ctrl_c and not disk_that_fills and not every_changed_byte"
# What `make test` runs: some seconds for each system. All formats keep the same contract; OINF speaks for them.
SHORT = [
    "tests/contract/test_formats.py", "tests/sink/test_atomic.py", "tests/source/test_file_source.py",
    "tests/source/test_folders.py", "tests/convert/test_convert.py",
]  # fmt: skip
SHORT_CHOSEN = f"{CHOSEN} and (TestOinf or not test_formats) and not any_model and not random_bytes and not resident"
WHOLE = [
    "tests/contract", "tests/sink", "tests/source", "tests/format", "tests/model", "tests/operations",
    "tests/convert/test_carry.py", "tests/convert/test_changes.py", "tests/convert/test_convert.py",
    "tests/convert/test_overwrite.py", "tests/convert/test_skeleton.py", "tests/quant/test_quant_golden.py",
    "tests/params", "tests/profiles",
]  # fmt: skip

# Tests of calls that only Linux has.
LINUX = [
    "tests/sink/test_atomic.py::test_copies_in_the_kernel_fall_back",
    "tests/sink/test_atomic.py::test_copies_in_the_kernel_copy",
    "tests/sink/test_atomic.py::test_the_disk_starts_while_a_synced_file_is_written",
]
# A pickle of __import__, which stands aside for one that hides modules.
HIDDEN = ["tests/format/torch/test_torch_hostile.py::test_calls_are_refused_by_name_and_not_made"]
LEFT_OUT = {
    "macos": [
        *LINUX,
        *HIDDEN,
        # Access lists of folders change no permissions there.
        "tests/sink/test_modes.py::test_the_default_access_list_of_a_folder_counts",
        # The C library here has no renamex_np.
        "tests/sink/test_no_clobber_folders.py::test_no_empty_folder_stands_in_for_the_new_one",
    ],
    "windows": [
        *LINUX,
        *HIDDEN,
        # Folders have no FIFOs, which would block here, where there is no O_NONBLOCK.
        "tests/source/test_file_source.py::test_fifos_devices_and_missing_files",
        "tests/source/test_folders.py::test_members_that_are_no_files",
        # The walk is by names; tests/platforms/inside_windows.py swaps folders and files.
        "tests/source/test_folders.py::test_a_folder_swapped_for_a_link_is_not_followed",
        # An array of the file blocks it; tests/platforms/inside_windows.py says how.
        "tests/sink/test_atomic.py::test_a_model_can_be_saved_over_the_file_it_comes_from",
        # Folders and files have no owner and no mode that Python knows.
        "tests/sink/test_modes.py",
        "tests/sink/test_resumable.py::test_a_file_that_is_replaced_keeps_its_permissions",
        "tests/sink/test_resumable.py::test_a_part_of_another_user_is_not_continued",
        # Without forks there is no process whose peak of memory starts anew, and no lock to lose.
        "tests/model/test_model.py::test_opening_bytes_copies_none_of_them",
        "tests/operations/test_saving_many.py",
        "tests/format/aero/test_aero_document_hashes.py::test_a_million_and_one_chunks_are_refused",
        "tests/format/aero/test_aero_document_hashes.py::test_names_of_more_than_512_megabytes_are_refused",
        "tests/params/test_params.py::test_a_fork_while_the_lock_is_held_does_not_hang",
    ],
}
SYSTEMS = ("macos", "windows")


def run_reduced(system: str, *arguments: str, cases: int, seconds: int) -> str:
    """Run pytest as on ``system``, and print what it was run without; its report is shown where it fails."""
    left_out = [part for name in LEFT_OUT[system] for part in ("--deselect", name)]
    command = [sys.executable, "-m", "tests.platforms.reduced", system, "-p", "no:cacheprovider", "-p", "no:xdist"]
    inside = [f"tests/platforms/inside_{name}.py" for name in (system, "both")]
    environment = {**os.environ, "HOLDALL_DAMAGE_CASES": str(cases)}
    done = subprocess.run(
        [*command, "--timeout", "300", *left_out, *inside, *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    print("\n".join(re.findall(r"^without .*", done.stdout, re.M)))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("named", [*SAMPLE, *SHORT, *WHOLE, *LEFT_OUT["macos"], *LEFT_OUT["windows"]])
def test_what_is_run_and_left_out_exists(named: str) -> None:
    """pytest does not mind a test to leave out that is not there."""
    path, _, function = named.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


def check_that_it_names_what_it_took_away(system: str, report: str) -> None:
    lacks = macos_lacks() if system == "macos" else windows_lacks()
    for module, names in lacks.items():
        assert f"without {len(names)} names of {module}: {' '.join(names)}" in report


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_short_run_without_what_the_system_lacks(system: str) -> None:
    report = run_reduced(system, *SHORT, "-k", SHORT_CHOSEN, cases=10, seconds=300)
    check_that_it_names_what_it_took_away(system, report)
    (passed,) = re.findall(r"^(\d+) passed", report, re.M)
    assert int(passed) > 150


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_sample_without_what_the_system_lacks(system: str) -> None:
    report = run_reduced(system, *SAMPLE, "-k", CHOSEN, cases=10, seconds=300)
    check_that_it_names_what_it_took_away(system, report)


@pytest.mark.simulated
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_without_what_the_system_lacks(system: str) -> None:
    run_reduced(system, *WHOLE, "-k", CHOSEN, cases=300, seconds=3500)


def test_the_lists_hold_what_is_known_to_be_missing() -> None:
    macos, windows = macos_lacks(), windows_lacks()
    assert {"copy_file_range", "posix_fadvise", "sched_getaffinity", "memfd_create", "fdatasync"} <= {*macos["os"]}
    assert not {"pread", "pwrite", "fork", "fsync", "O_CLOEXEC", "O_NOFOLLOW", "replace", "link"} & {*macos["os"]}
    assert {"pread", "preadv", "pwrite", "fork", "fchmod", "register_at_fork", "geteuid", "O_CLOEXEC", "O_NONBLOCK",
            "O_NOFOLLOW", "O_DIRECTORY", "mkfifo", "statvfs"} <= {*windows["os"]}  # fmt: skip
    assert not {"open", "close", "read", "write", "lseek", "fstat", "replace", "dup2", "pipe"} & {*windows["os"]}
    assert {"SIGHUP", "SIGALRM", "SIGKILL"} <= {*windows["signal"]}
    assert {"MAP_PRIVATE", "PROT_READ", "MADV_WILLNEED"} <= {*windows["mmap"]}
    assert {"fcntl", "resource"} <= {*WINDOWS_LACKS_MODULES}
