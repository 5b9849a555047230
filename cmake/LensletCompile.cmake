# Compile settings shared by all targets, and the functions that declare them.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Asserts are inner invariants: kept in Debug, gone in Release.

add_library(lenslet_options INTERFACE)
target_include_directories(lenslet_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/include)
target_compile_options(lenslet_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LENSLET_WERROR}>>:-Werror>
  # fp32 results must not depend on how a compiler contracts a*b+c: kernels ask for FMA by name.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(LENSLET_SANITIZE)
  set(_sanitize -fsanitize=${LENSLET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_options(lenslet_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_sanitize}>")
  target_link_options(lenslet_options INTERFACE ${_sanitize})
endif()

# lenslet_layer(NAME SOURCES... ): one layer of the runtime as an object library lenslet_NAME.
# What a layer may use is what its target links: the arrows base <- ops <- graph <- exec <- models.
function(lenslet_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  add_library(lenslet_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(lenslet_${name} PUBLIC lenslet_options Threads::Threads fmt::fmt PkgConfig::hwy ${arg_USES})
  set_property(GLOBAL APPEND PROPERTY LENSLET_LAYERS lenslet_${name})
endfunction()
