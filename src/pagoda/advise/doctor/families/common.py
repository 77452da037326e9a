"""Signs of any program: an error without a known cause is a reason to ask for more."""

from __future__ import annotations

from ..model import Family, Sign

SIGNS = (
    Sign(
        "traceback",
        ("traceback (most recent call last)",),
        r"Traceback \(most recent call last\)",
        role="symptom",
        title="a Python traceback whose cause is not known",
        collect="the whole traceback, to its last line",
    ),
    Sign(
        "exception_line",
        (
            "error",
            "exception",
        ),
        r"^(?:.{0,120}[\s\]])?[A-Za-z_][\w.]{0,60}(?:[Ee]rror|Exception)(?:: |$)",
        role="symptom",
        title="an exception whose cause is not known",
        collect="the lines before the exception, and the version of the program",
    ),
    Sign(
        "error_level",
        (
            "critical",
            "error ",
            "error\t",
            "error:",
            "error]",
            "failed",
            "fatal ",
            "fatal:",
            "fatal]",
        ),
        r"",
        role="symptom",
        title="lines logged as errors whose cause is not known",
        levels=("ERROR", "CRITICAL", "FATAL"),
        collect="the same run with debug logging",
    ),
    Sign(
        "fatal_python",
        (
            "core dumped",
            "fatal python error",
            "terminate called",
        ),
        r"Fatal Python error|terminate called|[Cc]ore dumped",
        role="symptom",
        title="a process was ended by its runtime",
        collect="the native backtrace or core file",
    ),
    Sign(
        "killed",
        (" code",),
        r"\bexit(?:ed)?(?: with)? code:? ?-?[1-9]",
        role="symptom",
        title="a process ended with an error code",
        collect="that process's own log",
    ),
)

FAMILY = Family("common", "Any program", SIGNS, ())
