// SPDX-License-Identifier: MIT
/// \file
/// `WorkDescriptor`: 24 bytes that describe one unit of work, and what its parameters mean (spec 4).
///
/// | bytes  | field       | meaning                                              |
/// |--------|-------------|------------------------------------------------------|
/// | 0..3   | `work_id`   | position of this unit in its plan                     |
/// | 4      | `tier`      | kernel tier, an index of a dispatch table             |
/// | 5      | `flags`     | `FLAG_FIRST`, `FLAG_LAST`, `FLAG_INIT`                |
/// | 6..7   | `reserved`  | 0                                                    |
/// | 8..23  | `params[4]` | four words named by `params::Attention` or `params::MoE` |
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "platform.hpp"

namespace pto {
namespace runtime {

/// One unit of work. Trivial: copy it byte by byte, keep it in device memory.
struct alignas(8) WorkDescriptor {
  uint32_t work_id;
  uint8_t tier;
  uint8_t flags;
  uint16_t reserved;  ///< SHALL be 0
  uint32_t params[4];

  static constexpr uint8_t FLAG_FIRST = 0x01;  ///< first chunk of a sequence
  static constexpr uint8_t FLAG_LAST = 0x02;   ///< last chunk of a sequence
  /// Initialize accumulators. `WorkPlanner::generate` leaves it 0: the scheduler of the work sets it on
  /// the first item of each run over one (request, head).
  static constexpr uint8_t FLAG_INIT = 0x04;
};

static_assert(sizeof(WorkDescriptor) == 24 && alignof(WorkDescriptor) == 8, "24 bytes, aligned to 8");
static_assert(offsetof(WorkDescriptor, work_id) == 0 && offsetof(WorkDescriptor, tier) == 4 &&
                  offsetof(WorkDescriptor, flags) == 5 && offsetof(WorkDescriptor, reserved) == 6 &&
                  offsetof(WorkDescriptor, params) == 8,
              "the layout of spec 4.1.2");
static_assert(std::is_trivial_v<WorkDescriptor> && std::is_standard_layout_v<WorkDescriptor>, "plain bytes");

namespace params {

/// Split-KV attention: one (request, head) and a range of its KV positions.
struct Attention {
  PTO_SHARED static constexpr void set(WorkDescriptor& d, uint32_t request_idx, uint32_t head_idx,
                                       uint32_t kv_start, uint32_t kv_len) {
    d.params[0] = request_idx;
    d.params[1] = head_idx;
    d.params[2] = kv_start;
    d.params[3] = kv_len;
  }

  PTO_SHARED static constexpr uint32_t request_idx(const WorkDescriptor& d) { return d.params[0]; }
  PTO_SHARED static constexpr uint32_t head_idx(const WorkDescriptor& d) { return d.params[1]; }
  PTO_SHARED static constexpr uint32_t kv_start(const WorkDescriptor& d) { return d.params[2]; }
  PTO_SHARED static constexpr uint32_t kv_len(const WorkDescriptor& d) { return d.params[3]; }
  PTO_SHARED static constexpr uint32_t kv_end(const WorkDescriptor& d) { return d.params[2] + d.params[3]; }
};

/// Mixture of experts: one (batch, expert) and a range of its tokens.
struct MoE {
  PTO_SHARED static constexpr void set(WorkDescriptor& d, uint32_t batch_idx, uint32_t expert_idx,
                                       uint32_t token_start, uint32_t token_count) {
    d.params[0] = batch_idx;
    d.params[1] = expert_idx;
    d.params[2] = token_start;
    d.params[3] = token_count;
  }

  PTO_SHARED static constexpr uint32_t batch_idx(const WorkDescriptor& d) { return d.params[0]; }
  PTO_SHARED static constexpr uint32_t expert_idx(const WorkDescriptor& d) { return d.params[1]; }
  PTO_SHARED static constexpr uint32_t token_start(const WorkDescriptor& d) { return d.params[2]; }
  PTO_SHARED static constexpr uint32_t token_count(const WorkDescriptor& d) { return d.params[3]; }
};

/// Whether `P::set` stores its four arguments in `params[0..3]` unchanged and touches nothing else. A planner
/// may then write whole descriptors without calling it. Specialize it for a pattern of your own that does the
/// same.
template <typename P>
struct stores_verbatim : std::false_type {};
template <>
struct stores_verbatim<Attention> : std::true_type {};
template <>
struct stores_verbatim<MoE> : std::true_type {};

}  // namespace params
}  // namespace runtime
}  // namespace pto
