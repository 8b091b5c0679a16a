// SPDX-License-Identifier: MIT
/// \file
/// Failing cases become small, and the choices of a case can be made again.
#include "random_loops.hpp"
#include "random_rows.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_seeds {

namespace {

size_t count_tasks(const std::vector<uint8_t>& bytes) {
  const auto program = pto::wsp::bytecode::read_sections(bytes.data(), bytes.size());
  size_t count = 0;
  for (const auto& in : program.instructions) count += in.op == assembler::Op::TASK ? 1 : 0;
  return count;
}

/// The smallest program of a generator with at least two tasks.
template <class Workload>
choices::Case smallest(uint64_t seed) {
  auto check = [](uint64_t s) {
    if (count_tasks(Workload(s).bytes()) >= 2) throw check::Failed{"two tasks"};
  };
  choices::Case one;
  if (!seeds::failure_of(one, seed, check)) return {};
  const size_t found = one.made[0].size();
  choices::Case small = seeds::Shrinker(std::move(one), seed, check).run();
  CHECK(seeds::failure_of(small, seed, check).has_value());
  CHECK(small.made[0].size() <= found);
  return small;
}

struct Small : random_workload::Workload {
  explicit Small(uint64_t seed) : random_workload::Workload(seed, 60) {}
};

template <class Workload>
void check_generator(size_t most_choices) {
  int num_checked = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const choices::Case small = smallest<Workload>(seed);
    if (small.programs.empty()) continue;
    CHECK(small.made[0].size() <= most_choices);
    CHECK(count_tasks(small.programs[0]) <= 3);
    CHECK(program_text::Printer(small.programs[0]).print().find("task") != std::string::npos);
    ++num_checked;
  }
  CHECK(num_checked > 0);
}

}  // namespace

TEST(programs_become_as_small_as_they_can) {
  check_generator<Small>(80);
  check_generator<random_rows::Workload>(80);
  check_generator<random_loops::Nest>(80);
  check_generator<random_loops::Phases>(80);
}

TEST(a_case_is_made_again_from_its_choices) {
  choices::Case one, again;
  auto make = [](uint64_t seed) { random_loops::Parts{seed}; };
  CHECK(!seeds::failure_of(one, 7, make));
  again.replayed = one.made;
  CHECK(!seeds::failure_of(again, 8, make));  // whatever the seed
  CHECK(one.made == again.made && one.programs == again.programs);
}

}  // namespace test_seeds
