"""The target `cpu`: kernels as a shared library for this machine."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import Instr, KernelFunction, Param, walk_statements
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.location import Location
from pto_wsp.targets.base import (
    Enforced,
    KernelArtifact,
    LibraryCache,
    Preferences,
    R,
    Runnable,
    SourceTree,
    Target,
    table_hash,
)
from pto_wsp.targets.c_style.spelling import INTEGERS
from pto_wsp.targets.cpu import toolchain
from pto_wsp.targets.cpu.build import Build
from pto_wsp.targets.cpu.emit import MAX_RANK, Library, emit_library
from pto_wsp.targets.cpu.features import Features, resolve_features
from pto_wsp.targets.cpu.native import included_files
from pto_wsp.targets.cpu.templates import STORAGE, TEMPLATES, Unsupported
from pto_wsp.targets.cpu.tree import portable, program_tree
from pto_wsp.types.dtype import f32
from pto_wsp.types.tile import ScalarType, ViewType

_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)


class CpuTarget(Target):
    """Kernels run on the CPU of this machine, with the widest vectors that it has."""

    name = "cpu"
    runs_networks = True

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in the kernels of `module` that is refused."""
        for kernel in module.kernels:
            if kernel.body is not None or kernel.native is not None:
                self._check_kernel(kernel)

    def _check_kernel(self, kernel: KernelFunction) -> None:
        for param in kernel.params:
            self._check_param(param, kernel.native is not None)
        for name, tile in kernel.tiles:
            if tile.dtype.name not in STORAGE:
                raise _refused(f"the tile `{name}` of type {tile.dtype}", _known_types(), kernel.loc)
        for stmt in walk_statements(kernel.body or ()):
            if isinstance(stmt, Instr):
                template = TEMPLATES[stmt.op]
                if isinstance(template, Unsupported):
                    raise _refused(f"`{stmt.op}`", template.reason, stmt.loc)

    def _check_param(self, param: Param, is_native: bool) -> None:
        dtype = param.type.dtype
        if isinstance(param.type, ScalarType):
            if param.type.dtype.is_float and dtype is not f32:
                raise _refused(f"scalars of type {dtype}", "scalar arithmetic is done in f32", param.loc)
            return
        if dtype is None or (isinstance(param.type, ViewType) and param.type.dims is None):
            raise _refused(f"the parameter `{param.name}`", "its type is not decided", param.loc)
        is_read_by_element = is_native or (isinstance(param.type, ViewType) and dtype.name in INTEGERS)
        if dtype.name not in STORAGE and not is_read_by_element:
            raise _refused(f"tensors of type {dtype}", _known_types(), param.loc)
        if isinstance(param.type, ViewType) and len(param.type.dims or ()) > MAX_RANK:
            raise _refused(f"views of more than {MAX_RANK} dimensions", "", param.loc)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder that builds the program with `make`, for the vectors of this machine."""
        if module.entry and module.entry_workload.processes:
            loc = module.entry_workload.processes[0].loc
            raise _refused("sources of a network of processes", "a host program runs one program order", loc)
        module = portable(module)
        return program_tree(module, self.library(module.kernels), resolve_features())

    def preferences(self) -> Preferences:
        """Return what products on this processor read fastest."""
        features = resolve_features()
        return Preferences(features.panel_cols, features.has_pair_dots)

    def facts(self, cache: LibraryCache) -> Mapping[str, Callable[[], object]]:
        """Return the processor's features, the width of vectors and the compiler."""
        return {
            "machine": lambda: " ".join((resolve_features().machine, *resolve_features().names)),
            "vectors": lambda: f"{resolve_features().lanes} lanes of 32 bits",
            "compiler": lambda: toolchain.find_compiler(cache).text.partition(" Copyright")[0],
        }

    def policies(self, policy: Policy[..., Directive]) -> Enforced:
        """Enforce: the engine does what every directive says."""
        return Enforced()

    def runner(self, program: Runnable[R]) -> R:
        """Return a runner on the engine."""
        return program.on_engine(self)

    def environment(self, cache: LibraryCache) -> str:
        """Return what two builds of the same kernels can differ in."""
        return build_environment(resolve_features(), toolchain.find_compiler(cache))

    def build(self, kernels: Sequence[KernelFunction], cache: LibraryCache) -> KernelArtifact:
        """Return a library of `kernels`, from `cache` or newly compiled."""
        start = time.perf_counter()
        features = resolve_features()
        library = self.library(kernels)
        compiler = toolchain.find_compiler(cache)
        environment = build_environment(features, compiler)
        key = cache_key(library, environment)
        build = Build(compiler, features.flags, environment, cache)
        path, was_made = cache.library(key, lambda output: build.library(library, output))
        return KernelArtifact(
            path=path,
            table_hash=table_hash(kernels),
            kernels=tuple(k.name for k in kernels),
            checks=library.checks,
            compiles=int(was_made) * (1 + len(library.units)),
            compile_ms=(time.perf_counter() - start) * 1e3,
            source=library.text,
        )

    def library(self, kernels: Sequence[KernelFunction]) -> Library:
        """Return the generated code of `kernels` for this machine.

        Raises:
            UnsupportedByTarget, NoneKernelBody, TilesTooLarge: it cannot be generated.
        """
        for kernel in kernels:
            self._check_kernel(kernel)
        return emit_library(kernels, resolve_features().lanes)


def build_environment(features: Features, compiler: toolchain.Compiler) -> str:
    """Return what two builds of the same kernels can differ in."""
    options = " ".join((*toolchain.FLAGS, *toolchain.SKIPPED, *toolchain.LIBRARIES, *features.flags))
    return "\0".join((options, compiler.text, features.machine, toolchain.header_hash()))


def cache_key(library: Library, environment: str) -> str:
    """Return the name of a build in the cache.

    Comments of generated code, which hold places in users' files, do not count; the places of hand-written
    kernels do, for their failures name them.
    """
    parts = [_COMMENT.sub("", library.source), environment]
    for unit in library.units:
        files = included_files(unit, toolchain.include_directory())
        parts += [unit.text, *(f"{path} {content}" for path, content in sorted(files.items()))]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _known_types() -> str:
    return f"tiles hold {', '.join(STORAGE)}"


def _refused(what: str, reason: str, loc: Location | None) -> UnsupportedByTarget:
    return UnsupportedByTarget(target=CpuTarget.name, what=what, reason=reason, loc=loc)
