// SPDX-License-Identifier: MIT
/// \file
/// Platform macros of the runtime extension (spec 2.3, 10.3).
///
/// | macro        | device compiler (`__CCE_AICORE__`) | anywhere else, and under `__CPU_SIM` |
/// |--------------|------------------------------------|--------------------------------------|
/// | `AICORE`     | `[aicore]`                         | empty                                |
/// | `AICPU`      | empty                              | empty                                |
/// | `__gm__`     | left to the compiler               | empty                                |
/// | `PTO_SHARED` | `[host, aicore]`                   | empty: callable on either side       |
///
/// A macro that is already defined is never touched, so other PTO headers may come first.
/// `aicpu_dispatch_kernel(fn, ...)` exists under `__CPU_SIM` only, where it is a direct call.
#pragma once

#if defined(__CCE_AICORE__) && !defined(__CPU_SIM)
#define PTO_DEVICE_COMPILER 1
#else
#define PTO_DEVICE_COMPILER 0
#endif

#ifndef AICORE
#if PTO_DEVICE_COMPILER
#define AICORE [aicore]
#else
#define AICORE
#endif
#endif

#ifndef PTO_SHARED
#if PTO_DEVICE_COMPILER
#define PTO_SHARED [ host, aicore ]
#else
#define PTO_SHARED
#endif
#endif

#ifndef AICPU
#define AICPU
#endif

#if !PTO_DEVICE_COMPILER && !defined(__gm__)
#define __gm__
#endif

#if defined(__CPU_SIM) && !defined(aicpu_dispatch_kernel)
#define aicpu_dispatch_kernel(fn, ...) fn(__VA_ARGS__)
#endif
