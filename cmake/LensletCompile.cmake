# Compile settings shared by all targets, and the functions that declare them.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Asserts check internal invariants: kept in Debug, removed in Release.

# Without the sanitizers, for the tests' references (oracle/): sanitizers check the library.
add_library(lenslet_plain_options INTERFACE)
target_include_directories(lenslet_plain_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(lenslet_plain_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LENSLET_WERROR}>>:-Werror>
  # fp32 results must not depend on how a compiler contracts a*b+c: kernels ask for FMA by name.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
add_library(lenslet_options INTERFACE)
target_link_libraries(lenslet_options INTERFACE lenslet_plain_options)
if(LENSLET_SANITIZE)
  target_compile_definitions(lenslet_options INTERFACE LENSLET_SANITIZE_ALL=$<BOOL:${LENSLET_SANITIZE_ALL}>)
  set(_sanitize -fsanitize=${LENSLET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND NOT LENSLET_SANITIZE_ALL)
    list(APPEND _sanitize -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/sanitize_ignore.txt)
  endif()
  target_compile_options(lenslet_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_sanitize}>")
  target_link_options(lenslet_options INTERFACE ${_sanitize})
  if(LENSLET_SANITIZE MATCHES "address") # 1.2 million addresses to relocate: 30 of 148 ms of a start, and tests start 3,500
    target_link_options(lenslet_options INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
  # Sanitized programs have 130 to 180 MB: 5.1 s of processor time by GNU's linker, 1.0 by LLVM's.
  find_program(LENSLET_LLD ld.lld)
  if(LENSLET_LLD)
    target_link_options(lenslet_options INTERFACE -fuse-ld=lld)
  endif()
endif()

# lenslet_precompile(TARGET [HEADER...]): precompiles common headers, and HEADERs that most files of the target include,
# if LENSLET_PRECOMPILE is ON. Off in other builds, so that a missing include fails. CPU seconds of clang under ASan and
# UBSan, without and with: runtime/exec/plan.cpp 14.1 and 9.8, ops/gemm/einsum.cpp 6.2 and 5.3, tests/ops/softmax_test.cpp
# 3.3 and 2.1. HEADERs of ours save another 0.4 s a file.
set(LENSLET_COMMON_HEADERS <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map> <memory>
  <optional> <random> <span> <string> <string_view> <utility> <vector> <fmt/format.h>)
function(lenslet_precompile target)
  if(LENSLET_PRECOMPILE STREQUAL "ON")
    target_precompile_headers(${target} PRIVATE ${LENSLET_COMMON_HEADERS} ${ARGN})
    # Otherwise ccache would confuse headers precompiled in different folders.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  endif()
endfunction()

# lenslet_arrows(FOLDER [USES FOLDER...] [EXCEPT FOLDER...] [HEADERS FILE...]): restricts what files below FOLDER
# include by "path": their own folder, those of USES, the public headers, and single HEADERS. The check runs after a
# change of such a file, before the layer is compiled. Sets LENSLET_STAMP to the file that records it.
function(lenslet_arrows folder)
  cmake_parse_arguments(arg "" "" "USES;EXCEPT;HEADERS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  set(stamp ${PROJECT_BINARY_DIR}/arrows/${name})
  set(files)
  foreach(ending h cuh cpp cu)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.${ending})
    list(APPEND files ${found})
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/arrows)
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} "-DFOLDER=${folder}" "-DUSES=${arg_USES}" "-DEXCEPT=${arg_EXCEPT}" "-DHEADERS=${arg_HEADERS}"
            "-DSTAMP=${stamp}" -P ${PROJECT_SOURCE_DIR}/cmake/check_arrows.cmake
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/check_arrows.cmake
    COMMENT "Checking what ${folder} includes")
  set(LENSLET_STAMP ${stamp} PARENT_SCOPE)
endfunction()

# lenslet_layer(NAME [USES FOLDER...] [CUDA PATTERN...] [NO_CUDA PATTERN...] [PRECOMPILE HEADER...]): one layer of the runtime
# as the object library lenslet_NAME, from all sources below the calling folder: a new file needs no list entry. Files
# that match CUDA (and every .cu) are compiled only in builds with CUDA, files that match NO_CUDA only in the others.
# The layer may include files below its own folder and the folders it USES; anything else fails the build
# (lenslet_arrows). A layer whose subfolders have arrows of their own declares them first and passes their stamps as
# ARROWS instead.
function(lenslet_layer name)
  cmake_parse_arguments(arg "" "" "USES;CUDA;NO_CUDA;ARROWS;PRECOMPILE" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  file(GLOB_RECURSE plain CONFIGURE_DEPENDS *.cpp)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS *.cu)
  foreach(kind CUDA NO_CUDA)
    set(${kind})
    if(arg_${kind})
      file(GLOB_RECURSE ${kind} CONFIGURE_DEPENDS ${arg_${kind}})
    endif()
  endforeach()
  if(LENSLET_HAVE_CUDA)
    list(REMOVE_ITEM plain ${NO_CUDA} "")
    list(APPEND plain ${kernels})
  else()
    list(REMOVE_ITEM plain ${CUDA} "")
    list(APPEND plain ${NO_CUDA}) # may match both
    list(REMOVE_DUPLICATES plain)
  endif()
  get_property(absent GLOBAL PROPERTY LENSLET_ABSENT_FAMILIES)
  if(absent)
    list(JOIN absent "|" absent)
    list(FILTER plain EXCLUDE REGEX "/${folder}/(${absent})/")
  endif()
  if(NOT arg_ARROWS)
    lenslet_arrows(${folder} USES ${arg_USES})
    set(arg_ARROWS ${LENSLET_STAMP})
  endif()
  add_library(lenslet_${name} OBJECT ${plain} ${arg_ARROWS})
  target_link_libraries(lenslet_${name} PUBLIC lenslet_options Threads::Threads fmt::fmt PkgConfig::hwy)
  if(LENSLET_HAVE_CUDA)
    target_link_libraries(lenslet_${name} PUBLIC lenslet_cuda_options)
  endif()
  lenslet_precompile(lenslet_${name} ${arg_PRECOMPILE})
  # Compiling these takes longer than running them: plan.cpp 9.8 s at -O1, 5.3 at -O0.
  if(LENSLET_SANITIZE AND name MATCHES "^(graph|passes|exec|c_api)$")
    target_compile_options(lenslet_${name} PRIVATE -O0)
  endif()
  set_property(GLOBAL APPEND PROPERTY LENSLET_LAYERS lenslet_${name})
endfunction()
