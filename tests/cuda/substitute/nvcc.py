"""A substitute for nvcc, for tests: a C++ compiler with an emulation of blocks makes a library of the host.

Environment: PTO_SUBSTITUTE_FLAGS, further options of the C++ compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

EMULATION = Path(__file__).parents[1] / "emulation"
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-march=native", "-fPIC", "-shared", "-Wall", "-Werror")

ENTRY = """
#include <thread>
#include <vector>

namespace pto::wsp::cuda {
struct Launch {
  const Program* program;
  char* scratch;
};
static int32_t block_body(void* of) {
  const auto& launch = *static_cast<Launch*>(of);
  run_program(*launch.program, launch.scratch);
  return 0;
}
}  // namespace pto::wsp::cuda

extern "C" __attribute__((visibility("default"))) void pto_wsp_emulate(
    const pto::wsp::cuda::Program* program, uint32_t blocks, uint64_t shared_bytes) {
  using namespace pto::wsp::cuda;
  std::vector<std::thread> threads;
  for (uint32_t b = 0; b < blocks; ++b) {
    threads.emplace_back([=] {
      emulation::own_number = b;
      emulation::own_blocks = blocks;
      char* const scratch = static_cast<char*>(aligned_alloc(64, (shared_bytes + 63) / 64 * 64));
      memset(scratch, 0xff, shared_bytes);
      Launch launch{program, scratch};
      emulation::run_block(block_body, &launch);
      free(scratch);
    });
  }
  for (std::thread& thread : threads) thread.join();
}
"""


def main(arguments: list[str]) -> int:
    """Compile as nvcc would, or print what tells versions apart."""
    if arguments == ["--version"]:
        print("a substitute for nvcc", *FLAGS, os.environ.get("PTO_SUBSTITUTE_FLAGS", ""))
        return 0
    output = arguments[arguments.index("-o") + 1]
    (source,) = (each for each in arguments if each.endswith(".cu"))
    includes = [each for each in arguments if each.startswith("-I")]
    assert {"-cubin", "-fmad=false", "-std=c++17"} < {*arguments}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "program.cpp"
        text.write_text(Path(source).read_text() + ENTRY)
        flags = [*FLAGS, *os.environ.get("PTO_SUBSTITUTE_FLAGS", "").split()]
        command = ["g++", *flags, "-pthread", *includes, f"-I{EMULATION}", str(text), "-o", output]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
