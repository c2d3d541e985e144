"""The one thing pyproject.toml cannot say: the C kernels. Without a compiler the install goes on with the twins."""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/holdall/binary/kernels/native")

# One wheel serves every CPython from 3.11 on; the free-threaded builds have no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

GNU = [  # GCC, clang, MinGW
    "-O3",
    "-std=c11",
    "-ffp-contract=off",  # the same bits whatever the instruction set
    "-fno-trapping-math",  # no code reads the exception flags; lets SIMD compute both sides of a choice
    "-fno-math-errno",  # nor errno; a square root is one instruction then
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-g0",  # the flags of many Pythons ask for debug information, which is larger than the code
]
FLAGS = {"msvc": ["/O2", "/std:c11", "/fp:precise"]}


class Build(build_ext):
    """Flags by compiler, which is known only once the build has begun."""

    def build_extension(self, ext: Extension) -> None:
        ext.extra_compile_args = FLAGS.get(self.compiler.compiler_type, GNU)
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": Build},
    ext_modules=[
        Extension(
            "holdall.binary.kernels._native",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
