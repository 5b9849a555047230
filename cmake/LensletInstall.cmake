# The shared library, and the components of `cmake --install`: runtime (the shared library), dev (including check/ and
# photos/) and, if built, tools (CMakeLists.txt).
include(CMakePackageConfigHelpers)

lenslet_library(lenslet_shared SHARED)
set(_exports ${CMAKE_CURRENT_LIST_DIR}/lenslet.exports)
target_link_options(lenslet_shared PRIVATE -Wl,--version-script=${_exports})
if(NOT LENSLET_SANITIZE) # clang leaves its sanitizer runtimes to the executable
  target_link_options(lenslet_shared PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(lenslet_shared PROPERTIES LINK_DEPENDS ${_exports})
set_target_properties(lenslet PROPERTIES EXPORT_NAME lenslet_static)
# Before 1.0 each minor version may change the interface, so it is part of the soname.
set_target_properties(lenslet_shared PROPERTIES
  EXPORT_NAME lenslet OUTPUT_NAME lenslet
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# lenslet_component(NAME HEADER...): an archive that works with either library: lenslet::NAME with the shared one,
# lenslet::NAME_static with the static one. Both names mean one archive. Its headers are installed only with it.
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/lenslet)
set(_without)
macro(lenslet_component name)
  if(TARGET lenslet_${name})
    set_target_properties(lenslet_${name} PROPERTIES EXPORT_NAME ${name}_archive)
    foreach(_kind "=lenslet_shared" "_static=lenslet")
      string(REGEX MATCH "(.*)=(.*)" _kind ${_kind})
      add_library(lenslet_${name}${CMAKE_MATCH_1}_with INTERFACE)
      target_link_libraries(lenslet_${name}${CMAKE_MATCH_1}_with INTERFACE lenslet_${name} ${CMAKE_MATCH_2})
      set_target_properties(lenslet_${name}${CMAKE_MATCH_1}_with PROPERTIES EXPORT_NAME ${name}${CMAKE_MATCH_1})
    endforeach()
    install(TARGETS lenslet_${name} lenslet_${name}_with EXPORT lenslet_${name}_targets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
    install(TARGETS lenslet_${name}_static_with EXPORT lenslet_${name}_static_targets)
    foreach(_set ${name} ${name}_static)
      install(EXPORT lenslet_${_set}_targets NAMESPACE lenslet:: DESTINATION ${_package} COMPONENT dev)
    endforeach()
  else()
    foreach(_header ${ARGN})
      list(APPEND _without PATTERN ${_header} EXCLUDE)
    endforeach()
  endif()
endmacro()
lenslet_component(check check.h)
lenslet_component(photos card.h classifier.h detector.h lenslet_photos.h photos.h picture.h)

# Export sets: an app with the shared library needs none of our dependencies' development files.
install(DIRECTORY include/lenslet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h" ${_without})
install(TARGETS lenslet_shared EXPORT lensletSharedTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS lenslet EXPORT lensletStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT lensletSharedTargets NAMESPACE lenslet:: DESTINATION ${_package} COMPONENT dev)
install(EXPORT lensletStaticTargets NAMESPACE lenslet:: DESTINATION ${_package} COMPONENT dev)
get_property(_decoders GLOBAL PROPERTY LENSLET_DECODERS)
set(LENSLET_MODULES_jpeg libjpeg)
set(LENSLET_MODULES_png libpng)
set(LENSLET_MODULES_webp "libwebpdemux libwebp")
set(LENSLET_MODULES_heif libheif)
list(JOIN _decoders " " LENSLET_DECODERS)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lensletConfig.cmake.in lensletConfig.cmake
  INSTALL_DESTINATION ${_package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(lensletConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# The .pc file determines its prefix from its own location, so an installed tree can be moved.
set(_pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(LENSLET_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(LENSLET_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(LENSLET_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH LENSLET_PC_PREFIX /prefix/${_pkgconfig} /prefix)
  string(REGEX REPLACE "/$" "" LENSLET_PC_PREFIX "\${pcfiledir}/${LENSLET_PC_PREFIX}")
  set(LENSLET_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(LENSLET_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# Not Requires.private, which pkg-config resolves even for the shared library.
set(LENSLET_PC_LIBS_PRIVATE "-lfmt -lhwy -pthread")
if(LENSLET_HAVE_CUDA)
  string(APPEND LENSLET_PC_LIBS_PRIVATE " ${CUDA_cudart_static_LIBRARY} -ldl -lrt")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/lenslet.pc.in lenslet.pc @ONLY)
set(LENSLET_PC_PHOTOS "fmt libcrypto")
foreach(_decoder IN LISTS _decoders)
  string(APPEND LENSLET_PC_PHOTOS " ${LENSLET_MODULES_${_decoder}}")
endforeach()
foreach(_name check photos)
  if(TARGET lenslet_${_name})
    configure_file(${CMAKE_CURRENT_LIST_DIR}/lenslet_${_name}.pc.in lenslet_${_name}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lenslet_${_name}.pc DESTINATION ${_pkgconfig} COMPONENT dev)
  endif()
endforeach()
if(TARGET lenslet_photos AND NOT LENSLET_TOOLS) # else with the command
  install(DIRECTORY models/cards DESTINATION ${CMAKE_INSTALL_DATADIR}/lenslet COMPONENT dev)
endif()

install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lensletConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lensletConfigVersion.cmake
  DESTINATION ${_package} COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lenslet.pc DESTINATION ${_pkgconfig} COMPONENT dev)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/lenslet COMPONENT runtime)
