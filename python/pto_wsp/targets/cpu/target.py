"""The target `cpu`: kernels as a shared library for this machine."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
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
from pto_wsp.targets.cpu import toolchain
from pto_wsp.targets.cpu.build import Build
from pto_wsp.targets.cpu.check import check_kernel
from pto_wsp.targets.cpu.emit import Library, emit_library
from pto_wsp.targets.cpu.features import Features, resolve_features
from pto_wsp.targets.cpu.makefile import build_files
from pto_wsp.targets.cpu.native import included_files
from pto_wsp.targets.cpu.tree import portable, program_tree

_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)


class CpuTarget(Target):
    """Runs programs on the CPU of this machine."""

    name = "cpu"
    runs_networks = True

    def __init__(self, expander: str = "bytecode") -> None:
        self._expander = expander

    @property
    def expander(self) -> str:
        """What expands the tasks of a workload: `bytecode`, or `source`, which is compiled."""
        return self._expander

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in the kernels of `module` that is refused."""
        for kernel in module.kernels:
            if kernel.body is not None or kernel.native is not None:
                check_kernel(kernel, self.name)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder that builds the program with `make`, for the vectors of this machine."""
        module, features = portable(module), resolve_features()
        has_walk = self._expander == "source"
        files = partial(build_files, features=features, has_walk=has_walk)
        library = self.library(module.kernels)
        return program_tree(
            self.name, module, library, files, has_walk=has_walk, has_function=True, has_networks=True
        )

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

    def build_walk(self, source: str, cache: LibraryCache) -> Path:
        """Return a library of a walk, from `cache` or newly compiled."""
        compiler = toolchain.find_compiler(cache)
        key = cache_key_of_walk(source, build_environment(resolve_features(), compiler))
        build = Build(compiler, (), "", cache)
        return cache.library(key, lambda output: build.walk(source, output))[0]

    def library(self, kernels: Sequence[KernelFunction]) -> Library:
        """Return the generated code of `kernels` for this machine.

        Raises:
            UnsupportedByTarget, NoneKernelBody, TilesTooLarge: it cannot be generated.
        """
        for kernel in kernels:
            check_kernel(kernel, self.name)
        return emit_library(kernels, resolve_features().lanes)


def cache_key_of_walk(source: str, environment: str) -> str:
    """Return the name of a walk in the cache; comments, which name places, do not count."""
    header = (toolchain.include_directory() / "pto" / "wsp" / "walk.hpp").read_text(encoding="utf-8")
    text = "\0".join((_COMMENT.sub("", source), header, environment))
    return hashlib.sha256(text.encode()).hexdigest()


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
