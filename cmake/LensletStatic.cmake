# lenslet_make_static(TARGET): links everything except glibc and libgcc statically, and uses only symbols of glibc 2.28
# (manylinux_2_28: Debian 10, RHEL 8, Ubuntu 20.04 and newer). It is for LENSLET_STATIC, a folder with libfmt.a,
# libhwy.a, libjpeg.a and libpng16.a of the headers' versions, compiled with -fPIC: Debian has none such, while its
# libcrypto.a, libwebp.a, libz.a and libstdc++.a are position-independent. tools/scripts/build_wheel.sh makes that folder.
# libheif is left out: Debian has no static one, and its codecs are under the LGPL and GPL.

# Functions to which newer glibcs gave a second version, or which moved from libpthread, libdl and librt into libc,
# which counts as one, too. Every glibc still has their old versions. Grouped by x86-64's first version, if it is
# another.
set(_at_2_2_5
  exp exp2 hypot log log2 pow
  dladdr dlclose dlerror dlopen dlsym dlvsym
  __pthread_key_create pthread_condattr_setpshared pthread_create pthread_detach pthread_getspecific pthread_join
  pthread_key_create pthread_key_delete pthread_kill pthread_mutex_trylock pthread_mutexattr_destroy
  pthread_mutexattr_init pthread_mutexattr_setpshared pthread_mutexattr_settype pthread_once pthread_rwlock_destroy
  pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock
  pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock
  pthread_rwlockattr_destroy pthread_rwlockattr_init pthread_rwlockattr_setpshared pthread_setspecific
  pthread_sigmask pthread_spin_destroy pthread_spin_init pthread_spin_lock pthread_spin_trylock pthread_spin_unlock
  sem_destroy sem_init sem_post sem_timedwait sem_trywait sem_wait
  shm_open shm_unlink)
set(_at_2_3_3 dladdr1)
set(_at_2_3_4 dlmopen)
# stat() and related ones are functions since 2.33; earlier headers turned them into __xstat(version, ...).
set(_stat fstat:__fxstat fstat64:__fxstat64 lstat:__lxstat lstat64:__lxstat64 stat:__xstat stat64:__xstat64)

function(lenslet_make_static target)
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    message(FATAL_ERROR "LENSLET_STATIC knows the versions of x86-64's glibc only")
  endif()
  set(text "\n.section .note.GNU-stack,\"\",@progbits\n.text\n")
  set(wraps)
  foreach(version 2_2_5 2_3_3 2_3_4)
    string(REPLACE "_" "." dotted ${version})
    foreach(name IN LISTS _at_${version})
      # The linker redirects each call of NAME to __wrap_NAME, also in static libraries.
      string(APPEND text ".globl __wrap_${name}\n.hidden __wrap_${name}\n.type __wrap_${name}, @function\n"
        "__wrap_${name}: jmp lenslet_old_${name}@PLT\n.symver lenslet_old_${name}, ${name}@GLIBC_${dotted}\n")
      list(APPEND wraps "-Wl,--wrap=${name}")
    endforeach()
  endforeach()
  foreach(pair IN LISTS _stat)
    string(REGEX MATCH "(.*):(.*)" pair ${pair})
    set(name ${CMAKE_MATCH_1})
    set(old ${CMAKE_MATCH_2})
    # Maps (path or descriptor, buffer) to (x86-64's _STAT_VER: 1, path or descriptor, buffer).
    string(APPEND text ".globl __wrap_${name}\n.hidden __wrap_${name}\n.type __wrap_${name}, @function\n"
      "__wrap_${name}: movq %rsi, %rdx\nmovq %rdi, %rsi\nmovl $1, %edi\njmp lenslet_old_${name}@PLT\n"
      ".symver lenslet_old_${name}, ${old}@GLIBC_2.2.5\n")
    list(APPEND wraps "-Wl,--wrap=${name}")
  endforeach()
  # libstdc++ skips atomic instructions if glibc reports a single thread: disabled here.
  string(APPEND text ".bss\n.globl __libc_single_threaded\n.hidden __libc_single_threaded\n"
    ".type __libc_single_threaded, @object\n__libc_single_threaded: .zero 1\n.size __libc_single_threaded, 1\n")
  string(APPEND text ".text\n")
  # glibc 2.30, for std::condition_variable::wait_for(). The real-time clock may be set meanwhile: such a wait ends early
  # or late, once.
  list(APPEND wraps -Wl,--wrap=pthread_cond_clockwait)
  set(clockwait [[
#include <pthread.h>
#include <time.h>
extern "C" int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                             const timespec* until) {
  timespec now{}, end{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += until->tv_sec - now.tv_sec;
  end.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (end.tv_nsec < 0) --end.tv_sec, end.tv_nsec += 1000000000;
  if (end.tv_nsec >= 1000000000) ++end.tv_sec, end.tv_nsec -= 1000000000;
  return pthread_cond_timedwait(condition, mutex, &end);
}
]])
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/glibc_2_28.cpp CONTENT "asm(R\"(${text})\");\n${clockwait}")
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/glibc_2_28.cpp)
  target_link_options(${target} PRIVATE ${wraps} -static-libstdc++ -Wl,--gc-sections -Wl,--exclude-libs,ALL)
  # An old glibc has the old versions in these libraries; in a new one they are empty.
  target_link_libraries(${target} PRIVATE
    -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -l:librt.so.1 -Wl,--pop-state)
endfunction()

# Links libraries that targets request by name statically. Headers and definitions stay, so objects are the same.
macro(lenslet_use_static_libraries)
  foreach(_name fmt hwy jpeg png16)
    if(NOT EXISTS ${LENSLET_STATIC}/lib${_name}.a)
      message(FATAL_ERROR "LENSLET_STATIC=${LENSLET_STATIC} holds no lib${_name}.a")
    endif()
  endforeach()
  set_target_properties(fmt::fmt PROPERTIES IMPORTED_CONFIGURATIONS STATIC IMPORTED_LOCATION_STATIC ${LENSLET_STATIC}/libfmt.a)
  set_target_properties(PkgConfig::hwy PROPERTIES INTERFACE_LINK_LIBRARIES ${LENSLET_STATIC}/libhwy.a)
  set(OPENSSL_USE_STATIC_LIBS ON)
endmacro()
