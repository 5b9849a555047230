#pragma once
// Detects that this process is a fork()ed child, which keeps memory but loses threads and CUDA.

namespace lenslet {

/// The number of fork()s since the library was loaded. An object that stores the number can tell whether its threads
/// still exist. One load; only a raw system call goes unnoticed.
unsigned fork_count() noexcept;

}  // namespace lenslet
