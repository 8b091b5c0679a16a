// SPDX-License-Identifier: MIT
/// \file
/// What functions of the C API refuse.
#pragma once

#include <string>

#include "pto/wsp/pto_runtime.h"

namespace pto::wsp::capi {

/// A mistake that a PTOError names.
struct Mistake {
  PTOError code;
  std::string message;
};

/// Something went wrong before, on another thread: that error is kept.
struct Kept {};

}  // namespace pto::wsp::capi
