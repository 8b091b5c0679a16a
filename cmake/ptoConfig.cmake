# SPDX-License-Identifier: MIT
# find_package(pto CONFIG): the headers under include/pto as the target pto::runtime, and the C API with its library
# as pto::wsp, which a source tree compiles into its users.
#
# Headers are looked for in the folders above this file, so that a source tree, an installation prefix and a Python
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

if(NOT TARGET pto::wsp)
  find_package(Threads REQUIRED)
  set(_pto_library "${_pto_root}/lib/libpto_wsp${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(EXISTS "${_pto_library}")
    add_library(pto::wsp SHARED IMPORTED)
    set_target_properties(pto::wsp PROPERTIES IMPORTED_LOCATION "${_pto_library}")
  elseif(EXISTS "${_pto_root}/cpp/capi/pto_runtime.cpp")
    add_library(pto::wsp INTERFACE IMPORTED)
    target_sources(pto::wsp INTERFACE "${_pto_root}/cpp/capi/pto_runtime.cpp")
    target_link_libraries(pto::wsp INTERFACE pto::runtime Threads::Threads ${CMAKE_DL_LIBS})
  endif()
  if(TARGET pto::wsp)
    target_include_directories(pto::wsp INTERFACE "${_pto_root}/include" "${_pto_root}/include/pto/wsp")
  endif()
  unset(_pto_library)
endif()
unset(_pto_root)
unset(_pto_parent)
