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
  if(IS_SYMLINK ${LENSLET_${_name}_LIBRARY}) # libfmt.so -> libfmt.so.9, the soname that binaries ask for
    file(READ_SYMLINK ${LENSLET_${_name}_LIBRARY} _soname)
    cmake_path(GET _soname FILENAME _soname)
    file(REAL_PATH ${LENSLET_${_name}_LIBRARY} _file)
    configure_file(${_file} ${CMAKE_BINARY_DIR}/portable/${_soname} COPYONLY)
  endif()
endforeach()
