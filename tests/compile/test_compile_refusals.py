"""What does not compile, and what a compile leaves behind: errors, limits, the cache."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from compile.conftest import KERNELS, SOFTMAX

import rooftile
from rooftile.compile.run import compile_all
from rooftile.errors import InputError, TargetError
from rooftile.records.resources import KernelResources


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("softmax_kernel", {"BLOCK": 1000}, r"kernels.py:18: arange's range must be a power of 2\n"
         r"    offs = tl.arange\(0, BLOCK\)$"),
        ("softmax_kernel", {"BLOCK": 64, "num_wraps": 4}, "'num_wraps' must be an argument of"),
        ("softmax_kernel", {"BLOCK": 64, "signature": "*bf16"}, "lacks a type for x_ptr"),
        ("softmax_kernel", {"BLOCK": 64, "signature": "*bf17" + ",i32" * 4}, "T one of i1, i8"),
        ("softmax_kernel", {"BLOCK": 64, "signature": "z=i32"}, "signature names 'z'"),
        ("softmax_kernel", {"BLOCK": 64, "signature": "i32," * 6}, "has 6 types, softmax_kernel"),
        ("softmax_kernel", {"signature": SOFTMAX}, "constant BLOCK of softmax_kernel has no value"),
        ("softmax_kernel", {"call": "absent"}, "write a function absent"),
        ("softmax_kernel", {"call": "nothing"}, "nothing does not launch softmax_kernel"),
        ("softmax_kernel", {"call": "failing"}, "failing fails: KeyError: 'weights'"),
        ("softmax", {}, "has no kernel 'softmax'; it has softmax_kernel, two_pass"),
        ("example", {}, "must be a function under @triton.jit"),
    ],
)  # fmt: skip
def test_what_does_not_compile_says_what_was_wanted(kernel, options, message):
    """Triton's message with the user's line; a name or type that is not there."""
    with pytest.raises(InputError, match=message):
        rooftile.compile_kernel(f"{KERNELS}:{kernel}", "sm_90", **options)


def test_a_fault_in_a_called_function_is_shown_there():
    """At the line of the callee."""
    with pytest.raises(InputError) as caught:
        rooftile.compile_kernel(f"{KERNELS}:caller_kernel", "sm_90", signature="*i32", BLOCK=48)
    assert "return x + tl.arange(0, SIZE)" in str(caught.value)
    assert "kernels.py:85: " in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("absent.py:k", "absent.py does not exist"),
        ("no.such.module:k", "cannot import no.such.module"),
        ("k", "kernel must be file.py:name or package.module:name"),
    ],
)
def test_a_kernel_that_is_not_there(kernel, message):
    """The file, the module, the form."""
    with pytest.raises(InputError, match=message):
        rooftile.compile_kernel(kernel, "sm_90")


@pytest.mark.parametrize("target", ["sm_75", "sm_95", "gfx908"])
def test_a_target_that_cannot_be_compiled_for(target):
    """It lists those that can."""
    with pytest.raises(InputError, match=r"target must be one of .*sm_90.*gfx942"):
        rooftile.compile_kernel(f"{KERNELS}:softmax_kernel", target, signature=SOFTMAX, BLOCK=64)


def test_a_compiler_that_aborts_takes_only_its_own_configuration():
    """The others are compiled; the one that died says how."""
    outcomes = compile_all(
        f"{KERNELS}:dying_kernel", ["sm_90"], [{"BLOCK": n} for n in (256, 512, 1024)],
        signature="*i32:16",
    )  # fmt: skip
    assert [type(outcome) for outcome in outcomes] == [KernelResources, str, KernelResources]
    assert outcomes[1].startswith("the compiler died of SIGABRT")


def test_a_compile_that_takes_too_long_is_given_up():
    """With the time it had."""
    (outcome,) = compile_all(
        f"{KERNELS}:softmax_kernel", ["sm_90"], [{"BLOCK": 65536, "num_warps": 4}],
        signature=SOFTMAX, timeout_s=0.05,
    )  # fmt: skip
    assert outcome == "compile takes longer than 0.05 s"


def test_the_interpreter_cannot_compile(monkeypatch):
    """It is refused before anything starts, with the reason."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(InputError, match="TRITON_INTERPRET must not be set to compile"):
        rooftile.compile_kernel(f"{KERNELS}:softmax_kernel", "sm_90")


def test_this_process_stays_free_of_triton():
    """Compiling happens elsewhere: nothing is loaded here but the standard library and msgspec."""
    code = (
        "import sys, rooftile\n"
        f"k = rooftile.compile_kernel({KERNELS + ':add_kernel'!r}, signature='*fp32,*fp32,i32',"
        " BLOCK=64)\n"
        "print(k.kernel, 'triton' in sys.modules)"
    )
    src = os.path.dirname(os.path.dirname(rooftile.__file__))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": src},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["add_kernel", "False"]


def test_a_kernel_without_a_file_is_refused():
    """A lambda, a number."""
    for kernel in (3, lambda: None):
        with pytest.raises(InputError, match=r"kernel must be file\.py:name"):
            rooftile.compile_kernel(kernel, "sm_90")


def test_errors_of_targets_are_input_errors():
    """So that the command line shows them as such."""
    assert issubclass(TargetError, InputError)
