// SPDX-License-Identifier: MIT
/// \file
/// Tasks that are taken by hand: at each moment exactly those whose earlier tasks are complete, in any order
/// of submission, completion and execution by others.
#include "../../../cpp/capi/by_hand.hpp"

#include "../seeds.hpp"
#include "accesses.hpp"

namespace {

using namespace accesses;

class Play {
 public:
  explicit Play(uint64_t seed) : seed_(seed), maker_(seed), program_(maker_.make(memory_)) {
    earlier_ = earlier_of(program_);
  }

  void run() {
    while (complete_.count() < program_.size()) {
      const int what = maker_.below(16);
      if (what == 0) {
        execute();
      } else if (what < 6) {
        for (int i = 1 + maker_.below(20); i > 0; --i) submit();
      } else {
        complete_one();
      }
      take_all();
    }
    CHECK_EQ(by_hand_.take(true), PTO_NO_TASK);
  }

 private:
  /// Submits the next task, or two that are allocated in the other order: numbers are no places.
  void submit() {
    const size_t next = tasks_.num_submitted(), left = program_.size() - next;
    if (left == 0) return;
    const bool are_two = left > 1 && maker_.below(3) == 0;
    const uint32_t second = are_two ? add_task(tasks_, program_[next + 1]) : 0;
    tasks_.submit(add_task(tasks_, program_[next]));
    if (are_two) tasks_.submit(second);
    by_hand_.notice_submitted();
  }

  void complete_one() {
    if (taken_.none()) return;
    size_t place = taken_._Find_first();
    for (int i = maker_.below(int(taken_.count())); i > 0; --i) place = taken_._Find_next(place);
    if (maker_.below(2) == 0) {
      CHECK(by_hand_.begin_run(tasks_.number_at(uint32_t(place))));
      CHECK(!by_hand_.begin_run(tasks_.number_at(uint32_t(place))));
    }
    CHECK(by_hand_.complete(tasks_.number_at(uint32_t(place))));
    CHECK(!by_hand_.complete(tasks_.number_at(uint32_t(place))));
    taken_.reset(place);
    complete_.set(place);
  }

  /// Others run what was submitted, which they cannot while tasks are taken.
  void execute() {
    CHECK_EQ(by_hand_.close(), taken_.none());
    if (taken_.any()) return;
    for (uint32_t place = 0; place < tasks_.num_submitted(); ++place) {
      tasks_.at(place).set(capi::Task::State::kComplete);
      complete_.set(place);
    }
    by_hand_.open(tasks_.num_submitted());
  }

  void take_all() {
    Set found;
    for (int32_t number; (number = by_hand_.take(false)) != PTO_NO_TASK;) {
      uint32_t place = 0;
      while (tasks_.number_at(place) != uint32_t(number)) ++place;
      CHECK(!found.test(place));
      found.set(place);
    }
    Set expected;
    for (size_t place = 0; place < tasks_.num_submitted(); ++place)
      if (!taken_.test(place) && !complete_.test(place) && (earlier_[place] & ~complete_).none())
        expected.set(place);
    if (found != expected)
      check::fail(__FILE__, __LINE__,
                  "seed " + std::to_string(seed_) + ": task " +
                      std::to_string((found ^ expected)._Find_first()) + " is ready or not, wrongly");
    taken_ |= found;
  }

  const uint64_t seed_;
  int32_t memory_[kMaxCells] = {};
  Maker maker_;
  Program program_;
  std::vector<Set> earlier_;
  capi::Tasks tasks_;
  capi::ByHand by_hand_{tasks_};
  Set taken_, complete_;
};

TEST(tasks_are_ready_when_what_they_wait_for_is_complete) {
  seeds::for_seeds(1, std::chrono::milliseconds(1500), [](uint64_t seed) { Play(seed).run(); });
}

}  // namespace
