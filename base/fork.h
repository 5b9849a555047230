#pragma once
// Noticing that this process is a child that fork() made: memory comes along, threads and CUDA do not.

namespace lenslet {

/// How many fork()s lie between the process that loaded the library and this one: what remembers the number sees
/// whether its threads are still its own. One load; no fork() is missed but a raw system call.
unsigned fork_count() noexcept;

}  // namespace lenslet
