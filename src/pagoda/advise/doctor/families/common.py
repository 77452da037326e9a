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
            "cannot ",
            "critical",
            "error ",
            "error\t",
            "error:",
            "error]",
            "failed",
            "fatal ",
            "fatal:",
            "fatal]",
            "timed out",
            "unable to",
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
        "unit_failed",
        (
            "failed with result '",
            "main process exited, ",
        ),
        r"Main process exited, code=(?:exited, status=[1-9]|dumped)|Failed with result '",
        role="symptom",
        title="systemd saw a service end with a failure",
        collect="the service's own log (journalctl -u UNIT) before its end",
    ),
    Sign(
        "compiler_failed",
        (
            ": fatal error: ",
            "compilation terminated",
            "ninja: build stopped",
        ),
        r": fatal error: |^compilation terminated|ninja: build stopped",
        role="symptom",
        title="a compiler or a build failed",
        collect="the compiler's first error, above the line",
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
