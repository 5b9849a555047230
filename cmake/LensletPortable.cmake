# LENSLET_PORTABLE: copies the build machine's shared libraries to BUILD/portable, with a relative run path, so that
# tests and tools run on another machine (Debian has no static ones).
if(NOT LENSLET_PORTABLE)
  return()
endif()
# Executables are one or two folders down: tools/lenslet, tests/ops/lenslet-test-ops.
set(CMAKE_BUILD_RPATH "$ORIGIN/../portable" "$ORIGIN/../../portable")
foreach(_name fmt hwy crypto jpeg png16 z webp webpdemux)
  find_library(LENSLET_${_name}_LIBRARY ${_name})
  mark_as_advanced(LENSLET_${_name}_LIBRARY)
  set(_dynamic)
  if(LENSLET_${_name}_LIBRARY)
    execute_process(COMMAND ${CMAKE_READELF} -d ${LENSLET_${_name}_LIBRARY} OUTPUT_VARIABLE _dynamic ERROR_QUIET)
  endif()
  if(_dynamic MATCHES "SONAME[^[]*\\[([^]]+)\\]") # the name that binaries refer to; static ones have none
    set(_soname ${CMAKE_MATCH_1})
    file(REAL_PATH ${LENSLET_${_name}_LIBRARY} _file)
    configure_file(${_file} ${CMAKE_BINARY_DIR}/portable/${_soname} COPYONLY)
  endif()
endforeach()
