// SPDX-License-Identifier: MIT
/// \file
/// The runtime extension: iteration spaces, work descriptors, tiers, planner, dispatch. Include this one.
#pragma once

#include "balanced_planner.hpp"
#include "descriptor_buffer.hpp"
#include "dim.hpp"
#include "iteration_space.hpp"
#include "kernel_dispatch.hpp"
#include "platform.hpp"
#include "tier_config.hpp"
#include "work_descriptor.hpp"
#include "work_planner.hpp"
