"""The one thing pyproject.toml cannot say: the C kernels. Without a compiler the install goes on with the twins."""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/holdall/kernels/native")

# One wheel serves every CPython from 3.11 on; the free-threaded builds have no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

FLAGS = [
    "-O3",
    "-std=c11",
    "-ffp-contract=off",  # the same bits whatever the instruction set
    "-fno-trapping-math",  # nobody reads the exception flags; lets both sides of a choice be computed, as SIMD must
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
]

setup(
    ext_modules=[
        Extension(
            "holdall.kernels._native",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            optional=True,
            extra_compile_args=FLAGS,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
