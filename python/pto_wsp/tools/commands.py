"""What the commands do that only read, and those that change a module. None of them runs anything."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path

from pto_wsp.analysis.buffers import buffer_use
from pto_wsp.device.describe import describe
from pto_wsp.device.reader import HOST, get_device, preset_names
from pto_wsp.errors import BadOption, MissingPackage, NotCalibrated, PtoError, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.passes.pipeline import PASSES, PipelineStep, parse_pipeline, prepare, run_pipeline
from pto_wsp.prove.prove import prove
from pto_wsp.prove.waits import symbolic_waits
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.export import c_library_folder, write_tree
from pto_wsp.runtime.prepared import Prepared, check_schedule
from pto_wsp.support.record import replace
from pto_wsp.targets import registry
from pto_wsp.targets.base import Target
from pto_wsp.text.python_text import to_python
from pto_wsp.tools.files import make_folder, modules_of, read_module, write_text
from pto_wsp.tools.run_module import with_entry
from pto_wsp.types.tile import ScalarType


def parse(args: Namespace) -> int:
    """Write Python that builds the module of a file, or of every file of a folder."""
    if not Path(args.path).is_dir():
        write_text(to_python(read_module(args.path)), args.output)
        return 0
    return _each([str(file) for file in modules_of(args.path)], lambda path: _parsed(Path(path), args))


def _parsed(file: Path, args: Namespace) -> str:
    module = read_module(str(file))
    inside = file.parent.relative_to(args.path)
    folder = file.parent if args.output is None else make_folder(str(Path(args.output) / inside))
    made = folder / f"{file.stem}_builder.py"
    write_text(to_python(module), str(made))
    return f"{_counted(module)} -> {made}"


def _each(paths: Iterable[str], what: Callable[[str], str]) -> int:
    """Do something with each file and say what was done; return 1 if any error was reported."""
    failed = 0
    for path in paths:
        try:
            done = what(path)
        except PtoError as error:
            failed = 1
            print(error, file=sys.stderr)
        else:
            print(f"{path}: {done}")
    return failed


def print_(args: Namespace) -> None:
    """Write the module of a file in the form that every module is printed in."""
    write_text(str(read_module(args.file)), args.output)


def check(args: Namespace) -> int:
    """Say of each file, or of every file of a folder, whether it holds a sound module."""
    target = None if args.target is None else registry.get(args.target)

    def checked(path: str) -> str:
        module = read_module(path)
        if target is not None:
            inlined = inline_calls(module)
            check_schedule(inlined, target.name)
            target.require_spaces(inlined)
            target.check(inlined)
        return _counted(module)

    return _each((file for given in args.files for file in _files_of(given)), checked)


def _files_of(path: str) -> list[str]:
    return [str(file) for file in modules_of(path)] if Path(path).is_dir() else [path]


def prove_(args: Namespace) -> int:
    """Prove for all sizes that iterations of `P` are independent and regions lie in their tensors."""
    if args.waits and args.all:
        raise BadOption(option="--all", expected="no `--waits` with it", found="both", advice="")
    module = verify(with_entry(read_module(args.file), args.entry))
    if args.waits:
        waits = "".join(f"{wait}\n" for wait in symbolic_waits(module))
        write_text(waits or f"{module.entry}: no task waits for another one\n", None)
        return 0
    proof = prove(module)
    findings = proof.findings if args.all else (*proof.refuted, *proof.unknown)
    write_text("".join(f"{finding}\n" for finding in findings) + proof.summary + "\n", None)
    return 1 if proof.refuted else 0


def opt(args: Namespace) -> None:
    """Write what passes make of a module."""
    if args.list:
        for option, is_given in (("--output", args.output is not None), ("--print-after", args.print_after)):
            if is_given:
                raise BadOption(option=option, expected="`--passes` with it", found="`--list`", advice="")
        for each in PASSES.values():
            options = ",".join(f"{name}={value}" for name, value in each.options.items())
            print(f"{each.name + (f'{{{options}}}' if options else ''):<24} {each.doc}")
        return
    steps = parse_pipeline(args.passes)
    module = run_pipeline(read_module(args.file), steps, _shown if args.print_after else None)
    write_text(str(module), args.output)


def _shown(step: PipelineStep, module: Module) -> None:
    print(f"// ----- after {step} -----\n{module}", file=sys.stderr)


def emit(args: Namespace) -> None:
    """Write a program as the sources of a target, or print the code of its kernels."""
    target, module = registry.get(args.target), read_module(args.file)
    if args.output is None:
        for option, is_given in (("--entry", args.entry is not None), ("--force", args.force)):
            if is_given:
                raise BadOption(option=option, expected="`--output DIR` with it", found="none", advice="")
        write_text(_kernel_code(prepare(module), target, args.kernel), None)
        return
    if args.kernel is not None:
        found = f"`--kernel {args.kernel}` together with it"
        raise BadOption(option="--output", expected="a whole program", found=found, advice="")
    program = Prepared(verify(with_entry_workload(with_entry(module, args.entry))), target)
    tree = target.emit(program.module)
    write_tree(tree, args.output, force=args.force)
    print(f"{len(tree.files)} files -> {args.output}")


def _kernel_code(module: Module, target: Target, name: str | None) -> str:
    kernels = [kernel for kernel in module.kernels if name in (None, kernel.name)]
    if not module.kernels:
        raise BadOption(option="FILE", expected="a file with kernels", found="none", advice="")
    if name is not None and not kernels:
        advice = did_you_mean(name, [kernel.name for kernel in module.kernels])
        raise BadOption(option="--kernel", expected="the name of a kernel", found=f"`{name}`", advice=advice)
    chosen = replace(module, kernels=tuple(kernels), entry="")
    target.require_spaces(chosen)
    tree = target.emit(chosen)
    return "\n".join(tree.files[path] for path in tree.kernels)


def targets(_: Namespace) -> None:
    """List the targets."""
    for name in registry.names():
        print(f"{name:<16} {registry.get(name).about}")


def devices(args: Namespace) -> None:
    """List devices whose time can be simulated, or describe one with the source of each figure."""
    if args.calibrate:
        if args.name is not None:
            raise BadOption(option="NAME", expected="no `--calibrate` with it", found="both", advice="")
        from pto_wsp.calibration.host import calibrate

        print(calibrate(lambda text: print(f"measuring {text} ...", flush=True)))
        return
    if args.name is not None:
        print(describe(get_device(args.name)))
        return
    for name in preset_names():
        print(f"{name:<20} {get_device(name).about}")
    try:
        about = get_device(HOST).about
    except NotCalibrated:
        about = "this machine, not calibrated: `pto devices --calibrate`"
    print(f"{HOST:<20} {about}")


def info(args: Namespace) -> None:
    """Describe a module, or, without one, the installation."""
    if args.file is not None:
        _describe(read_module(args.file))
        return
    cache = ArtifactCache()
    rows: dict[str, Callable[[], object]] = {
        "package": lambda: Path(__file__).parents[1],
        "python": lambda: sys.version.split()[0],
        **{
            name: fact
            for target in registry.names()
            for name, fact in registry.get(target).facts(cache).items()
        },
        "lib": c_library_folder,
        "cache": lambda: cache.directory,
        "targets": lambda: ", ".join(registry.names()),
        "passes": lambda: ", ".join(PASSES),
    }
    for name, value in rows.items():
        try:
            print(f"{name:<10} {value()}")
        except PtoError as error:
            print(f"{name:<10} {error.message}")


def _describe(module: Module) -> None:
    print(f"module {module.name}: {_counted(module)}" + (f", entry {module.entry}" if module.entry else ""))
    inlined = {kernel.name: kernel for kernel in inline_calls(module).kernels}
    for kernel in module.kernels:
        use = buffer_use(inlined[kernel.name])
        tiles = f"tiles {use.separate} bytes, {use.shared} where they share" if use.separate else ""
        print(f"  {kernel.name}({_kernel_params(kernel)})" + (f": {tiles}" if tiles else ""))
    for workload in module.workloads:
        tasks = len([*w.tasks(workload.body)])
        params = ", ".join(p.name for p in workload.open_params)
        print(f"  {workload.name}({params}): {tasks} calls of kernels")


def _kernel_params(kernel: KernelFunction) -> str:
    scalars = (p for p in kernel.params if isinstance(p.type, ScalarType))
    views = (p for p in kernel.params if not isinstance(p.type, ScalarType))
    return ", ".join(
        [*(f"{p.role} {p.name}: {p.type}" for p in views), *(f"{p.name}: {p.type}" for p in scalars)]
    )


def _counted(module: Module) -> str:
    counts = ((len(module.kernels), "InCore"), (len(module.workloads), "Orchestration"))
    found = " and ".join(f"{count} {kind}" for count, kind in counts if count)
    return f"{found or 'no'} function{'s' if len(module.kernels) + len(module.workloads) != 1 else ''}"


def lsp(_: Namespace) -> None:
    """Serve an editor over standard input and output until it ends the session.

    Raises:
        MissingPackage: pygls is not installed.
    """
    try:
        from pto_wsp.tools.language_server.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise MissingPackage(package="pygls", extra="lsp", what="`pto lsp`") from None
    make_server().start_io()
