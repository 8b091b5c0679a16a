# SPDX-License-Identifier: MIT
# find_package(pto CONFIG): the headers under include/pto as the target pto::runtime.
#
# They are looked for in the folders above this file, so that a source tree, an installation prefix and a Python
# package serve alike.

set(_pto_root "${CMAKE_CURRENT_LIST_DIR}")
while(NOT EXISTS "${_pto_root}/include/pto/runtime/runtime.hpp")
  get_filename_component(_pto_parent "${_pto_root}" DIRECTORY)
  if(_pto_parent STREQUAL _pto_root)
    set(pto_FOUND FALSE)
    set(pto_NOT_FOUND_MESSAGE "include/pto/runtime/runtime.hpp lies in no folder above ${CMAKE_CURRENT_LIST_DIR}")
    return()
  endif()
  set(_pto_root "${_pto_parent}")
endwhile()

if(NOT TARGET pto::runtime)
  add_library(pto::runtime INTERFACE IMPORTED)
  target_include_directories(pto::runtime INTERFACE "${_pto_root}/include")
  target_compile_features(pto::runtime INTERFACE cxx_std_17)
endif()
unset(_pto_root)
unset(_pto_parent)
