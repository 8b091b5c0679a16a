"""The `pto` command: arguments, exit statuses, and errors without tracebacks."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Callable, Sequence

from pto_wsp.errors import PtoError, UnusableFile
from pto_wsp.tools import commands
from pto_wsp.tools.run_module import run
from pto_wsp.tools.search import docs
from pto_wsp.tools.streams import drop_output, streams
from pto_wsp.tools.visualize import visualize

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED, BROKEN_PIPE = 130, 141

OUTPUT_ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT)
"""What printing can end with; errors of files have been reported with their names."""

DESCRIPTION = """\
Read, check, change, compile and run programs in `.pto` text.

A file named `-` is standard input, or standard output. Only `run` compiles and runs anything."""

EPILOG = """\
examples:
  pto check program.pto
  pto opt program.pto --passes inline,fuse,dce | pto print -
  pto run softmax.pto --set n=100 --input x=x.npy --output y=y.npy

exit status: 0 done; 1 the program or its data are refused; 2 the command line is."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = _parser("pto", DESCRIPTION, EPILOG)
    found = made.add_subparsers(metavar="COMMAND", required=True)
    _add_readers(found)
    _add_prove(found)
    _add_opt(found)
    _add_emit(found)
    _add_run(found)
    _add_visualize(found)
    _add_docs(found)
    summary = "serve editors: errors while typing, and what words mean"
    _add(found, "lsp", commands.lsp, summary, LSP_EPILOG)
    command = _add(found, "targets", commands.targets, "list what kernels can run on")
    command = _add(found, "devices", commands.devices, "list devices whose time can be simulated")
    command.add_argument("name", metavar="NAME", nargs="?", help="a device or a TOML file: show its figures")
    measure = "measure this machine, and write the figures of the device `host`"
    command.add_argument("--calibrate", action="store_true", help=measure)
    command = _add(found, "info", commands.info, "describe a module, or this installation")
    command.add_argument("file", metavar="FILE", nargs="?", help="a `.pto` file")
    return made


def _parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    style = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(name, description=description, epilog=epilog, formatter_class=style)


def _add(
    found: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int | None],
    summary: str,
    epilog: str = "",
) -> argparse.ArgumentParser:
    style = argparse.RawDescriptionHelpFormatter
    description = (command.__doc__ or "").splitlines()[0]
    made = found.add_parser(name, help=summary, description=description, epilog=epilog, formatter_class=style)
    made.set_defaults(command=command)
    return made


def _add_readers(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(found, "parse", commands.parse, "turn `.pto` text into Python that builds it")
    command.add_argument("path", metavar="FILE|DIR", help="a `.pto` file, or a folder of them")
    out = "where to write; by default next to the files of a folder, else to standard output"
    command.add_argument("-o", "--output", metavar="PATH", help=out)
    command = _add(found, "print", commands.print_, "print a module in its canonical form")
    command.add_argument("file", metavar="FILE", help="a `.pto` file")
    command.add_argument("-o", "--output", metavar="FILE", help="where to write")
    command = _add(found, "check", commands.check, "say whether files hold sound modules")
    command.add_argument("files", metavar="FILE|DIR", nargs="+", help="`.pto` files, or folders of them")
    command.add_argument("--target", metavar="NAME", help="also refuse what this target does not support")


PROVE_EPILOG = """\
Prints what is refuted, with the smallest counter-example, and what is unknown, with a reason. A refutation is
exit status 1. Needs the extra `pto-wsp[prove]`.

example:
  pto prove program.pto --all"""


def _add_prove(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(found, "prove", commands.prove_, "prove a program for all sizes", PROVE_EPILOG)
    command.add_argument("file", metavar="FILE", help="a `.pto` file")
    command.add_argument("--entry", metavar="NAME", help="the function; the module's entry without it")
    command.add_argument("--all", action="store_true", help="print what is proved, too")
    waits = "print which earlier tasks each task waits for, as expressions of its loop variables, instead"
    command.add_argument("--waits", action="store_true", help=waits)


def _add_opt(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    example = "example:\n  pto opt program.pto --passes 'inline,unroll{factor=8},dce'"
    command = _add(found, "opt", commands.opt, "change a module by passes", example)
    command.add_argument("file", metavar="FILE", nargs="?", default="-", help="a `.pto` file")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--passes", metavar="PIPELINE", help="passes with their options, separated by commas")
    what.add_argument("--list", action="store_true", help="list the passes")
    command.add_argument(
        "--print-after", action="store_true", help="show the module after each pass, on stderr"
    )
    command.add_argument("-o", "--output", metavar="FILE", help="where to write")


EMIT_EPILOG = """\
With `-o`, the folder holds a program: its README says how it is built and run. Without, the code of the
kernels is printed.

examples:
  pto emit softmax.pto -o softmax
  pto emit softmax.pto --kernel rowmax"""


def _add_emit(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(found, "emit", commands.emit, "write a program as the sources of a target", EMIT_EPILOG)
    command.add_argument("file", metavar="FILE", help="a `.pto` file")
    command.add_argument("--target", metavar="NAME", default="cpu", help="whose sources (default: cpu)")
    command.add_argument("--entry", metavar="NAME", help="the function; the module's entry without it")
    command.add_argument("-o", "--output", metavar="DIR", help="the folder to write")
    command.add_argument("--force", action="store_true", help="overwrite files that exist in the folder")
    command.add_argument("--kernel", metavar="NAME", help="print the code of this kernel alone")


RUN_EPILOG = """\
Arrays are `.npy` files. A tensor that the program writes and no input gives begins as zeros, of the size that
other arrays and `--set` decide; where these do not, of the size that the tasks reach, or of an InCore
function's tile. A ragged axis takes its offsets, a sparse one `offsets.npy,indices.npy`.

examples:
  pto run scale.pto --entry scale --set factor=0.5 --input x=x.npy --output y=y.npy
  pto run llama.pto --set num_tiles=32 --input input=x.npy --output output=y.npy --stats"""


def _add_run(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add(found, "run", run, "run a function on arrays of files", RUN_EPILOG)
    command.add_argument("file", metavar="FILE", help="a `.pto` file")
    command.add_argument("--entry", metavar="NAME", help="the function; the module's entry without it")
    for name, what in (
        ("set", "a size or scalar"),
        ("input", "the array of a tensor"),
        ("output", "where to write a tensor after the run"),
    ):
        value = "VALUE" if name == "set" else "FILE"
        command.add_argument(f"--{name}", metavar=f"NAME={value}", action="append", default=[], help=what)
    command.add_argument("--target", metavar="NAME", default="cpu", help="where to run (default: cpu)")
    command.add_argument("--device", metavar="NAME", help="what the target `sim` simulates, or a TOML file")
    command.add_argument("--workers", metavar="N", type=int, help="threads (default: all cores)")
    command.add_argument("--stats", action="store_true", help="say how many tasks ran, and how long")
    command.add_argument("--advise", action="store_true", help="say what costs time in the run, if anything")


VISUALIZE_EPILOG = """\
A dump is what `TaskGraph.dump` or the C function `pto_runtime_dump` wrote, a trace what `Trace.save` did.
PDF needs the extra `pto-wsp[visualize]`.

examples:
  pto visualize tasks.txt -o tasks.svg
  pto visualize run.json -o report.html"""


def _add_visualize(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "draw the tasks of a dump or a trace"
    command = _add(found, "visualize", visualize, summary, VISUALIZE_EPILOG)
    command.add_argument("file", metavar="DUMP|TRACE", help="a task dump, or a trace as JSON")
    out = "a picture (.svg, .pdf) or a report (.html)"
    command.add_argument("-o", "--output", metavar="FILE", required=True, help=out)
    command.add_argument("--graph", action="store_true", help="of a trace, draw the task graph")


LSP_EPILOG = """\
An editor starts this command and talks to it (Language Server Protocol). docs/editors.md shows settings."""

DOCS_EPILOG = """\
Every word must occur. Matches of headings come first.

examples:
  pto docs rowmax
  pto docs carried-value
  pto docs ragged axis"""


def _add_docs(found: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "search the documentation"
    command = _add(found, "docs", docs, summary, DOCS_EPILOG)
    command.add_argument("words", metavar="WORD", nargs="+", help="what to search for")
    command.add_argument(
        "-n", "--number", metavar="N", type=int, default=5, help="sections to show (default: 5)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, or that of the process; return the exit status."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as stop:  # help, or a mistake that argparse has reported
        return stop.code if isinstance(stop.code, int) else USAGE
    with streams():
        try:
            status = args.command(args) or OK
            sys.stdout.flush()
            return status
        except PtoError as error:
            print(error, file=sys.stderr)
            return FAILED
        except BrokenPipeError:
            drop_output()  # the reader has closed the pipe
            return BROKEN_PIPE
        except OSError as error:
            if error.errno not in OUTPUT_ERRORS or error.filename is not None:
                raise
            drop_output()
            reason = error.strerror or str(error)
            print(UnusableFile(what="written", path="standard output", reason=reason), file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
