"""Build the optional C extension; everything else is declared in pyproject.toml."""

import sys

from setuptools import Extension, setup

# No contraction of a*b+c: the kernels promise the same bits from every compilation.
FLAGS = ["-O3", "-std=c11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
# Apple's clang has no OpenMP: the kernels then run on one thread, which they say.
OPENMP = [] if sys.platform == "darwin" else ["-fopenmp"]
SOURCES = (
    "module.c",
    "attention.c",
    "tile_avx512.c",
    "tile_portable.c",
    "fused.c",
    "index.c",
    "recency.c",
    "digest.c",
    "read.c",
)

setup(
    ext_modules=[
        Extension(
            "pagoda._native",
            sources=[f"src/pagoda/_native/{name}" for name in SOURCES],
            depends=[
                "src/pagoda/_native/kernels.h",
                "src/pagoda/_native/rows.h",
                "src/pagoda/_native/tables.h",
            ],
            extra_compile_args=FLAGS + OPENMP,
            extra_link_args=OPENMP,
            optional=True,  # no compiler: the torch path is used, and said once
        )
    ]
)
