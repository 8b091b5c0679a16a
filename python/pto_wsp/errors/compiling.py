"""What keeps a program from being compiled."""

from __future__ import annotations

from pto_wsp.errors.base import CompileError


class UnknownTarget(CompileError):
    """A target name that is not registered."""

    code = "unknown-target"
    template = "there is no target `{name}`"
    hint = "{advice}"


class UnsupportedByTarget(CompileError):
    """An instruction or directive that a target refuses."""

    code = "unsupported-by-target"
    template = "target `{target}` does not support {what}"
    label = "{reason}"


class CannotRun(CompileError):
    """A run on a target that only emits sources."""

    code = "cannot-run"
    template = "target `{target}` only emits sources: it does not run programs"
    hint = "write its sources with `Program.export` or `pto emit`, or compile for another target"


class NoCompiler(CompileError):
    """No C++17 compiler on this machine."""

    code = "no-compiler"
    template = "no C++17 compiler was found"
    label = "looked for {tried}"
    hint = "install g++ or clang++, set CXX, or `pip install pto-wsp[compiler]`"


class CompilerFailed(CompileError):
    """The C++ compiler refused generated code."""

    code = "compiler-failed"
    template = "the C++ compiler failed on the generated code:\n{output}"
    label = "command: {command}"
    hint = "the source is kept in {source}"


class CppError(CompileError):
    """C++ of a hand-written kernel that the compiler refuses."""

    code = "cpp-error"
    template = "the C++ of kernel `{kernel}` does not compile"
    label = "{message}"
    hint = "what was compiled is kept in {source}"


class BadCache(CompileError):
    """A cache directory that cannot be trusted."""

    code = "bad-cache"
    template = "the cache directory {path} cannot be used"
    label = "{reason}"
    hint = "set PTO_WSP_CACHE to a directory that only you can write"


class BadLibrary(CompileError):
    """A kernel library that is not what the program was compiled for."""

    code = "bad-library"
    template = "the kernel library {path} cannot be loaded"
    label = "{reason}"
    hint = "check the compiler that CXX names, and delete the cached library"


class UnknownPass(CompileError):
    """A pass name that is not registered."""

    code = "unknown-pass"
    template = "there is no pass `{name}`"
    hint = "{advice}"


class BadPipeline(CompileError):
    """A pipeline of passes that cannot be read."""

    code = "bad-pipeline"
    template = "the pipeline `{text}` cannot be read"
    label = "expected {expected}, found {found}"
    hint = "passes are separated by commas, options are in braces: `inline,unroll{{factor=4}},dce`"


class CannotInline(CompileError):
    """A call that its callee cannot replace."""

    code = "cannot-inline"
    template = "the call of `{callee}` cannot be inlined"
    label = "{reason}"


class CannotRestructure(CompileError):
    """A schedule operator that would change results, or that the workload has no place for."""

    code = "cannot-restructure"
    template = "`{operator}` is refused"
    label = "{reason}"
    hint = "keep the loops and tasks as they are written, or change what the tasks touch"


class CannotExpand(CompileError):
    """A loop that cannot be taken apart into blocks, or whose kernels cannot work on larger tiles."""

    code = "cannot-expand"
    template = "the loop over `{loop}` cannot be expanded"
    label = "{reason}"


class TilesTooLarge(CompileError):
    """Tiles that are in use at the same time and do not fit the memory of a core."""

    code = "tiles-too-large"
    template = "the tiles of kernel `{kernel}` take {needed} bytes, and a core has {capacity}"
    label = "in use together: {live}"
    hint = "use smaller tiles, or shorten the lifetimes of some of these tiles"
