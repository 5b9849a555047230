# The CUDA half. LENSLET_CUDA=AUTO builds it if nvcc is found, ON requires it, OFF omits it. Sets LENSLET_HAVE_CUDA; if
# it is ON, enables the language and defines lenslet_cuda_options.
set(LENSLET_HAVE_CUDA OFF)
if(NOT LENSLET_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LENSLET_CUDA is '${LENSLET_CUDA}'; it can be AUTO, ON or OFF")
endif()
if(LENSLET_CUDA STREQUAL "OFF")
  return()
endif()

# sm_90a machine code for Hopper; the driver compiles compute_80 PTX for everything else from Ampere on. The preset
# `ship` has machine code for more.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "90a-real;80-virtual")
  if(LENSLET_CUDA_QUICK) # PTX is some 40 % of nvcc's time; ops/CMakeLists.txt adds it for files that differ in it
    set(CMAKE_CUDA_ARCHITECTURES "90a-real")
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(LENSLET_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LENSLET_CUDA=ON, but no working CUDA compiler was found: put nvcc on PATH, set "
                        "CMAKE_CUDA_COMPILER, or use LENSLET_CUDA=AUTO or OFF")
  endif()
  message(STATUS "CUDA: no nvcc found, building the CPU half only")
  return()
endif()

enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(LENSLET_HAVE_CUDA ON)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know that nvcc >= 12 supports C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
if(LENSLET_CUDA_QUICK) # of the host's half, a third of nvcc's time: CMake's -O3 would win over a file's option
  set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static) # binaries need only a driver, no toolkit
message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")

# -Wpedantic is left out: the host code that nvcc generates is not strict ISO C++ (GNU line directives).
set(_host_warnings -Wall -Wextra -Wconversion -Wshadow)
if(LENSLET_WERROR)
  list(APPEND _host_warnings -Werror)
endif()
list(JOIN _host_warnings "," _host_warnings)
add_library(lenslet_cuda_options INTERFACE)
target_link_libraries(lenslet_cuda_options INTERFACE CUDA::cudart_static)
# Sections compress to an eighth. Line information, with the PTX that it refers to, is two thirds of the size, and
# changes no instruction.
target_compile_options(lenslet_cuda_options INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${_host_warnings}>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LENSLET_CUDA_LINE_INFO}>>:--generate-line-info>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LENSLET_WERROR}>>:-Werror=all-warnings>)
