# The library from its layers. In the build tree lenslet::lenslet is the static one; installed, it is the shared one.
get_property(_layers GLOBAL PROPERTY LENSLET_LAYERS)
set(_objects)
foreach(_layer IN LISTS _layers)
  list(APPEND _objects $<TARGET_OBJECTS:${_layer}>)
endforeach()
set(_dependencies Threads::Threads fmt::fmt PkgConfig::hwy)
if(LENSLET_HAVE_CUDA)
  list(APPEND _dependencies CUDA::cudart_static)
endif()

# lenslet_library(NAME STATIC|SHARED): targets that link it get the public headers and C++20, but none of our flags.
function(lenslet_library name kind)
  add_library(${name} ${kind} ${_objects})
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:lenslet_options> ${_dependencies})
  target_include_directories(${name} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} INTERFACE cxx_std_20)
endfunction()
lenslet_library(lenslet STATIC)
add_library(lenslet::lenslet ALIAS lenslet)
