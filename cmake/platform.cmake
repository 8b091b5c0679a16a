# The platforms that PTO-WSP builds on. Include after project(), which finds the pointer size.

set(_pto_wsp_platform "${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}")

if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "PTO-WSP needs a 64-bit platform; ${_pto_wsp_platform} is built with "
                      "${CMAKE_SIZEOF_VOID_P}-byte pointers.")
elseif(_pto_wsp_platform MATCHES "^Linux (x86_64|AMD64)$")
  # Tested.
elseif(_pto_wsp_platform MATCHES "^Linux (aarch64|arm64)$")
  message(STATUS "PTO-WSP on ${_pto_wsp_platform}: tested under emulation only.")
elseif(_pto_wsp_platform MATCHES "^Darwin (x86_64|arm64)$")
  message(WARNING "PTO-WSP on ${_pto_wsp_platform}: untested.")
else()
  message(FATAL_ERROR "PTO-WSP does not support ${_pto_wsp_platform}. "
                      "It is tested on Linux x86_64, and on Linux aarch64 under emulation; macOS builds untested.")
endif()
