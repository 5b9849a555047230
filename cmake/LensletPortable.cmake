# LENSLET_PORTABLE: the shared libraries that only the build machine has are copied to BUILD/portable and found from
# there by a relative run path, so that tests and tools run on another machine as built (Debian has no static ones).
if(NOT LENSLET_PORTABLE)
  return()
endif()
# Executables lie one or two folders down: tools/lenslet, tests/ops/lenslet-test-ops.
set(CMAKE_BUILD_RPATH "$ORIGIN/../portable" "$ORIGIN/../../portable")
foreach(_name fmt hwy crypto webp)
  find_library(LENSLET_${_name}_LIBRARY ${_name})
  mark_as_advanced(LENSLET_${_name}_LIBRARY)
  set(_dynamic)
  if(LENSLET_${_name}_LIBRARY)
    execute_process(COMMAND ${CMAKE_READELF} -d ${LENSLET_${_name}_LIBRARY} OUTPUT_VARIABLE _dynamic ERROR_QUIET)
  endif()
  if(_dynamic MATCHES "SONAME[^[]*\\[([^]]+)\\]") # the name that binaries ask for; static ones have none
    set(_soname ${CMAKE_MATCH_1})
    file(REAL_PATH ${LENSLET_${_name}_LIBRARY} _file)
    configure_file(${_file} ${CMAKE_BINARY_DIR}/portable/${_soname} COPYONLY)
  endif()
endforeach()
