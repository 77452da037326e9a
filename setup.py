"""Build the optional C extension; everything else is declared in pyproject.toml."""

import sys

from setuptools import Extension, setup

FLAGS = ["-O3", "-std=c11", "-fno-math-errno", "-fno-trapping-math"]
# Apple's clang has no OpenMP: the kernels then run on one thread, which they say.
OPENMP = [] if sys.platform == "darwin" else ["-fopenmp"]

setup(
    ext_modules=[
        Extension(
            "pagoda._native",
            sources=["src/pagoda/_native/module.c"],
            depends=["src/pagoda/_native/kernels.h"],
            extra_compile_args=FLAGS + OPENMP,
            extra_link_args=OPENMP,
            optional=True,  # no compiler: the torch path is used, and said once
        )
    ]
)
